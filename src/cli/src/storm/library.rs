//! The scripts that come with the binary: the files of `scripts/storms`.
//!
//! Never reads a file at run time.

use std::path::Path;

use super::script::{BadScript, Script};

/// Each script's name and text.
const SCRIPTS: [(&str, &str); 8] = [
    ("flap", include_str!("../../storms/flap.toml")),
    ("forgery", include_str!("../../storms/forgery.toml")),
    ("herd", include_str!("../../storms/herd.toml")),
    ("lapse", include_str!("../../storms/lapse.toml")),
    ("partition", include_str!("../../storms/partition.toml")),
    ("rolling-restart", include_str!("../../storms/rolling-restart.toml")),
    ("slow-readers", include_str!("../../storms/slow-readers.toml")),
    ("soak", include_str!("../../storms/soak.toml")),
];

/// Finds a script: one of ours by its bare name, else a file.
pub(crate) fn find(name: &str) -> Result<Script, BadScript> {
    match SCRIPTS.iter().find(|(ours, _)| *ours == name) {
        Some((name, text)) => Script::parse(&format!("{name}.toml"), text),
        None => Script::read(Path::new(name)),
    }
}

/// Every script's name and summary, a line each.
pub(crate) fn list() -> Result<String, BadScript> {
    let mut lines = String::new();
    for (name, text) in SCRIPTS {
        let script = Script::parse(&format!("{name}.toml"), text)?;
        lines += &format!("{name:<16} {}\n", script.summary);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_script_of_ours_and_reads() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/storms");
        let mut files: Vec<_> = std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path()).collect();
        files.sort();
        let names: Vec<_> = files.iter().map(|file| file.file_stem().expect("a name").to_str().expect("UTF-8")).collect();
        assert_eq!(names, SCRIPTS.map(|(name, _)| name));
        for name in names {
            let script = find(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(script.name, name);
        }
    }

    #[test]
    fn every_script_states_what_it_must_have_seen() {
        for (name, _) in SCRIPTS {
            let least = find(name).expect("a script").least;
            for (count, stated) in least.named().into_iter().take(4) {
                assert!(stated.is_some(), "{name} says nothing of {count}");
            }
            assert!(least.resumes > Some(0) || least.lost > Some(0), "{name} is no reconnect storm");
        }
    }

    #[test]
    fn an_unknown_name_is_a_file_that_is_not_there() {
        let error = find("no-such-script").expect_err("refused").to_string();
        assert!(error.starts_with("no-such-script: "), "{error}");
        assert_eq!(list().expect("all read").lines().count(), SCRIPTS.len());
    }
}
