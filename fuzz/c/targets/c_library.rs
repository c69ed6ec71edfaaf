#![no_main]
#[allow(dead_code)]
#[path = "../../entries/c/mod.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::c_library::run(data));
