//! Golden transcripts: `tests/golden/*.txt` against a running server, byte for byte.
//!
//! After a wanted change: `UPDATE_GOLDEN=1 cargo test -p rejoin-tests --test golden epoll_1`, then read the difference before it is committed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rejoin_tests::golden::run;
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

macro_rules! transcripts {
    ($($name:ident),+ $(,)?) => {
        $(fn $name(on: Flavour) {
            run(&folder().join(concat!(stringify!($name), ".txt")), on);
        })+

        on_every_server!($($name),+);

        const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

transcripts!(
    batch,
    batch_array,
    complete,
    incarnation,
    initialize,
    initialize_as_stream,
    invalid_cursor,
    preflight,
    refusals,
    replay,
    replay_june,
    repost_join,
    resync,
    resync_outcome_unknown,
    session_expired,
    standalone,
    standalone_late,
    takeover,
);

#[test]
fn every_transcript_is_run() {
    let files = std::fs::read_dir(folder()).expect("the transcripts").map(|entry| entry.expect("an entry").path());
    let files: BTreeSet<String> = files.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    assert_eq!(files, NAMES.iter().map(|&name| name.to_owned()).collect());
}
