#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| noctule_command::fuzzing::proxy(data));
