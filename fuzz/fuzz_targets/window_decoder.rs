#![no_main]
#[allow(dead_code)]
#[path = "../entries/codes/mod.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::window_decoder::run(data));
