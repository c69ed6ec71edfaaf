# find_package(noctule): the target noctule::noctule has the headers noctule.h and noctule.hpp, and the library of the same prefix.
find_path(noctule_INCLUDE_DIR noctule.h HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../include" NO_DEFAULT_PATH)
file(GLOB noctule_HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../lib" "${CMAKE_CURRENT_LIST_DIR}/../../../lib/*-linux-gnu*" "${CMAKE_CURRENT_LIST_DIR}/../../../lib64")
find_library(noctule_LIBRARY noctule HINTS ${noctule_HINTS} NO_DEFAULT_PATH)
mark_as_advanced(noctule_INCLUDE_DIR noctule_LIBRARY)

if(NOT noctule_INCLUDE_DIR OR NOT noctule_LIBRARY)
    set(noctule_FOUND FALSE)
    set(noctule_NOT_FOUND_MESSAGE "noctule.h or libnoctule is missing beside ${CMAKE_CURRENT_LIST_DIR}")
    return()
endif()

if(NOT TARGET noctule::noctule)
    add_library(noctule::noctule UNKNOWN IMPORTED)
    set_target_properties(noctule::noctule PROPERTIES
        IMPORTED_LOCATION "${noctule_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${noctule_INCLUDE_DIR}")
endif()
