#![no_main]

use rejoin_fuzz_oracles::{plant_from_environment, session_id};

libfuzzer_sys::fuzz_target!(init: plant_from_environment(), |data: &[u8]| session_id::check(data));
