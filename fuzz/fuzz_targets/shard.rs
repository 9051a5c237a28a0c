#![no_main]

use rejoin_fuzz_oracles::{plant_from_environment, shard};

libfuzzer_sys::fuzz_target!(init: plant_from_environment(), |data: &[u8]| shard::check(data));
