//! What the tests of programs have in common: where things are, and a tree as it is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory where cargo put the library that these tests are built with.
pub fn libraries() -> PathBuf {
    let place = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    assert!(
        place.join("libnoctule_c.so").exists(),
        "no libnoctule_c.so in {}: run these tests by cargo test -p noctule-c",
        place.display()
    );
    place
}

pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?} does not start: {e}. Debian has it in build-essential or valgrind"))
}

pub fn succeed(command: &mut Command) -> String {
    let out = output(command);
    let words = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}\n{words}", out.status);
    words
}

pub fn has_cmake() -> bool {
    let is_here = Command::new("cmake").arg("--version").output().is_ok();
    if !is_here {
        eprintln!("*** SKIPPED: there is no cmake here");
    }
    is_here
}

/// An installed tree as cargo-c makes it, except for the library's file name.
pub fn install(prefix: &Path) {
    let put = |from: PathBuf, to: &str| {
        let to = prefix.join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        // Unchanged files are not written again, so that what is built from them stays up to date.
        let is_same = std::fs::read(&to).is_ok_and(|old| old == std::fs::read(&from).unwrap());
        if !is_same {
            std::fs::copy(&from, to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
    };
    put(here().join("include/noctule.h"), "include/noctule.h");
    put(here().join("../cpp/noctule.hpp"), "include/noctule.hpp");
    for name in ["noctule-config.cmake", "noctule-config-version.cmake"] {
        put(here().join("../cpp/cmake").join(name), &format!("share/noctule/cmake/{name}"));
    }
    put(libraries().join("libnoctule_c.so"), "lib/libnoctule.so");
}
