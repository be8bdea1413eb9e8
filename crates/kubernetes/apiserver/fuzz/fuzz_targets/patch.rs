//! See `apiserver::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| apiserver::fuzz::patch(data));
