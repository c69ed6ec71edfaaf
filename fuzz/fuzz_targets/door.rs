#![no_main]
#[allow(dead_code)]
#[path = "../entries/proto/mod.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::door::run(data));
