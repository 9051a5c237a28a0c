//! Whole servers side by side: the same clients on rejoin and on the SDKs' own transports, round after round, as one page and one plot.
//!
//! Never measures (that is `works` and `rejoin`'s own storm and check), and never judges an answer.

mod plot;
mod programs;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use crate::works::{self, Sdk, Setting};

/// Whether more of a figure is better, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    More,
    Less,
    /// Counts of what may not be at all: none has no ratio.
    None,
}

/// One thing that is told of each server.
struct Figure {
    name: &'static str,
    unit: &'static str,
    better: Better,
    digits: usize,
}

const fn figure(name: &'static str, unit: &'static str, better: Better, digits: usize) -> Figure {
    Figure { name, unit, better, digits }
}

impl Figure {
    fn title(&self) -> String {
        if self.unit.is_empty() { self.name.into() } else { format!("{}, {}", self.name, self.unit) }
    }
}

/// In the order in which a round gives them.
const FIGURES: [Figure; 6] = [
    figure("violations in the storm", "", Better::None, 0),
    figure("time to resume in the storm, median", "ms", Better::Less, 2),
    figure("time to resume in the storm, p99", "ms", Better::Less, 2),
    figure("reconnect cycles a second of the server's processor time", "", Better::More, 0),
    figure("replay to one client", "MB/s", Better::More, 1),
    figure("memory of an attached idle session", "KiB", Better::Less, 1),
];

/// Figures of one round of one server.
type Round = [f64; FIGURES.len()];

/// The servers; ours is the first, and the others are compared with it.
const SERVERS: [(Sdk, &str); 4] =
    [(Sdk::Rejoin, "rejoin"), (Sdk::Rmcp, "rmcp on axum"), (Sdk::Typescript, "TypeScript SDK"), (Sdk::Python, "Python SDK")];

/// What is known of one server at the end.
#[derive(Default)]
struct Known {
    /// Cases of the check that break continuity, of how many were tested.
    broken: (usize, usize),
    rounds: Vec<Round>,
}

impl Known {
    fn of(&self, figure: usize) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |round| round[figure])
    }

    fn median(&self, figure: usize) -> f64 {
        crate::median(self.of(figure)).unwrap_or_default()
    }
}

/// Measures all of them in alternation; prints the table, and draws the plot into the file.
pub(crate) fn run(setting: &Setting, rounds: usize, plot: &Path) -> io::Result<()> {
    let mut known: [Known; SERVERS.len()] = Default::default();
    for (known, (sdk, name)) in known.iter_mut().zip(SERVERS) {
        known.broken = programs::check(setting, sdk).map_err(|error| named(name, &error))?;
    }
    for _ in 0..rounds {
        for (known, (sdk, name)) in known.iter_mut().zip(SERVERS) {
            known.rounds.push(round(setting, sdk).map_err(|error| named(name, &error))?);
        }
    }
    table(&known)?;
    fs::write(plot, plot::draw(&known).map_err(|error| io::Error::other(error.to_string()))?)
}

fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

fn round(setting: &Setting, sdk: Sdk) -> io::Result<Round> {
    let storm = programs::storm(setting, sdk)?;
    let cycle = works::resumes(setting, sdk)?.cost;
    let byte = works::resumed_byte(setting, sdk)?.cost;
    let memory = works::idle_of(setting, sdk)?.cost;
    Ok([storm.violations, storm.median_ms, storm.p99_ms, 1e9 / cycle, 1e3 / byte, memory / 1024.0])
}

/// How many times as good as a peer's round ours was.
fn ratio(figure: &Figure, ours: f64, theirs: f64) -> f64 {
    match figure.better {
        Better::More => ours / theirs,
        Better::Less | Better::None => theirs / ours,
    }
}

fn table(known: &[Known]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "| | {} |", SERVERS.map(|(_, name)| name).join(" | "))?;
    writeln!(out, "|---{}|", "|---".repeat(SERVERS.len()))?;
    let broken: Vec<_> = known.iter().map(|known| format!("{} of {}", known.broken.0, known.broken.1)).collect();
    writeln!(out, "| cases of the check that break continuity | {} |", broken.join(" | "))?;
    for (number, figure) in FIGURES.iter().enumerate() {
        let cells: Vec<_> =
            known.iter().enumerate().map(|(server, of)| cell(figure, number, of, (server > 0).then(|| &known[0]))).collect();
        writeln!(out, "| {} | {} |", figure.title(), cells.join(" | "))?;
    }
    Ok(())
}

/// A server's median, and how many times as good ours is: the median of the rounds' ratios, the least and the greatest.
fn cell(figure: &Figure, number: usize, of: &Known, ours: Option<&Known>) -> String {
    let median = format!("{:.*}", figure.digits, of.median(number));
    let (least, most) = crate::spread(of.of(number));
    match ours {
        _ if figure.better == Better::None => format!("{median} ({least:.0}–{most:.0})"),
        None => format!("{median} ({least:.*}–{most:.*})", figure.digits, figure.digits),
        Some(ours) => {
            let ratios: Vec<_> = ours.of(number).zip(of.of(number)).map(|(ours, theirs)| ratio(figure, ours, theirs)).collect();
            let (least, most) = crate::spread(ratios.iter().copied());
            let ratio = crate::median(ratios.iter().copied()).unwrap_or_default();
            format!("{median}; **{ratio:.1} ×** ({least:.1}–{most:.1})")
        }
    }
}
