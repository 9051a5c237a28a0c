//! Every oracle over its corpus, on stable.

use std::path::Path;

use rejoin_fuzz_oracles::TARGETS;

/// The seeds of a target, by file name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).expect("a readable seed")))
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

#[test]
fn the_kernel_passes_every_oracle_over_its_corpus() {
    for (target, check) in TARGETS {
        for (name, seed) in seeds(target) {
            println!("{target}/{name}");
            check(&seed);
            // What a fuzzer would try first.
            for at in 0..seed.len() {
                check(&seed[at..]);
                check(&seed[..at]);
            }
        }
    }
}

/// The seeds alone notice each canary, so this evidence needs no nightly toolchain.
#[cfg(feature = "canary")]
#[test]
fn every_canary_of_a_fuzz_target_is_noticed_over_its_corpus() {
    use rejoin_proto::canary::{Canary, Hunter, plant};

    std::panic::set_hook(Box::new(|_| {}));
    let mut unnoticed = Vec::new();
    let hunts = Canary::ALL.iter().flat_map(|&canary| canary.hunters().iter().map(move |&hunter| (canary, hunter)));
    for (canary, hunter) in hunts {
        let Hunter::Fuzz(target) = hunter else { continue };
        let (_, check) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target of that name");
        plant(Some(canary));
        let noticed = seeds(target).iter().any(|(_, seed)| std::panic::catch_unwind(|| check(seed)).is_err());
        plant(None);
        if !noticed {
            unnoticed.push(canary);
        }
    }
    let _ = std::panic::take_hook();
    assert_eq!(unnoticed, [], "not noticed");
}

#[test]
fn every_target_has_its_binary_and_its_dictionary() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (folder, extension) in [("fuzz_targets", "rs"), ("dictionaries", "dict")] {
        let mut names: Vec<_> = std::fs::read_dir(fuzz.join(folder))
            .expect("a readable folder")
            .map(|entry| entry.expect("a readable folder").file_name().into_string().expect("plain names"))
            .collect();
        names.sort();
        assert_eq!(names, TARGETS.iter().map(|(target, _)| format!("{target}.{extension}")).collect::<Vec<_>>());
    }
}
