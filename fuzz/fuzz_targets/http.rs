#![no_main]

use rejoin_fuzz_oracles::{http, plant_from_environment};

libfuzzer_sys::fuzz_target!(init: plant_from_environment(), |data: &[u8]| http::check(data));
