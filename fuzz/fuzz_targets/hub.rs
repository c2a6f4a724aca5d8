//! Fuzzes `checks/hub.rs`.
#![no_main]

#[path = "../checks/mod.rs"]
mod checks;
#[path = "../start.rs"]
mod start;

libfuzzer_sys::fuzz_target!(init: start::start(), |bytes: &[u8]| start::run(checks::hub::check, bytes));
