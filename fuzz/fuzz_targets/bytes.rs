#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redis_reentrant_lock::fuzzing::bytes(data));
