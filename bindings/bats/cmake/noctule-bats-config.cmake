# find_package(noctule-bats): the target noctule::bats. With NOCTULE_BATS_ALIAS set before, also bats::protocol, by which programs of the BATS API link.
include(CMakeFindDependencyMacro)
find_dependency(noctule 0.1)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/noctule-bats-targets.cmake")
if(NOCTULE_BATS_ALIAS AND NOT TARGET bats::protocol)
    add_library(bats::protocol INTERFACE IMPORTED)
    set_target_properties(bats::protocol PROPERTIES INTERFACE_LINK_LIBRARIES noctule::bats)
endif()
