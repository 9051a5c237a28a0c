//! The admin listener: every metric is there and moved by the event that it counts, the page that explains them is complete, and health
//! is what it says.

mod boundary;
mod calls;
mod embedded;
mod gateway;
mod health;
mod log;
mod room;
mod scrape;

use std::collections::BTreeSet;

use rejoin_tests::matrix::Flavour;
use rejoin_tests::server::Rejoin;

use scrape::{Expected, Scrape, scrape};

const PAGE: &str = include_str!("../../../docs/operations.md");

/// Series that no event moves yet.
const UNMOVED: [&str; 2] = [
    // Nothing ends a session to save the rest: streams and readers go first.
    "rejoin_sessions_ended_total reason=shed",
    "rejoin_verdicts_total kind=refused code=session_expired reason=shed",
];

/// What the scenarios move, each as its metric and its labels.
fn moved() -> BTreeSet<String> {
    let all: [&[&[(&str, Expected)]]; 5] = [boundary::MOVES, calls::MOVES, gateway::MOVES, log::MOVES, room::MOVES];
    let series = all.into_iter().flatten().copied().flatten().map(|(series, _)| *series);
    series.chain(embedded::MOVES).chain(UNMOVED).map(str::to_owned).collect()
}

/// Everything that a gateway exposes, which is everything there is.
fn exposed() -> Scrape {
    let server = Rejoin::start(Flavour::PLAIN, &["--admin", "127.0.0.1:0", "--", "cat"]);
    scrape(server.admin())
}

#[test]
fn every_series_is_moved_by_a_scenario() {
    let (moved, exposed) = (moved(), exposed().series());
    let differ: Vec<_> = exposed.symmetric_difference(&moved).collect();
    assert!(differ.is_empty(), "exposed and moved differ in {differ:#?}");
}

#[test]
fn the_page_explains_exactly_the_metrics_that_there_are() {
    let cell = |line: &str| {
        line.strip_prefix("| `rejoin_").and_then(|rest| rest.split_once('`')).map(|(name, _)| format!("rejoin_{name}"))
    };
    let explained: Vec<_> = PAGE.lines().filter_map(cell).collect();
    let exposed = exposed().names();
    assert_eq!(explained.iter().cloned().collect::<BTreeSet<_>>(), exposed);
    assert_eq!(explained.len(), exposed.len(), "a metric is explained twice");
}

#[test]
fn names_are_as_prometheus_wants_them() {
    let scrape = exposed();
    for (name, kind) in &scrape.kinds {
        assert!(name.starts_with("rejoin_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        assert!(scrape.helps.get(name).is_some_and(|help| help.ends_with('.')), "{name} has no help");
    }
    for series in scrape.series() {
        for label in series.split(' ').skip(1).filter_map(|label| label.split_once('=')).map(|(label, _)| label) {
            assert!(["kind", "code", "reason"].contains(&label), "{series}");
        }
    }
}
