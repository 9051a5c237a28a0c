//! Side-by-side runs: the same work on rejoin and on a peer, in alternation, as a ratio.
//!
//! Server and load run on processors of their own. A server's cost is its processor time per unit of work where that can be counted,
//! since wall time on a shared machine says little.

mod load;
mod process;
mod works;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use works::{Cost, Paid, Setting};

/// Measures rejoin beside its peers.
#[derive(Debug, Parser)]
struct Options {
    /// The works to measure, by a part of their names; all where none is named.
    works: Vec<String>,
    /// Alternated runs of each side.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// A little of everything, once: shows that it runs and measures nothing.
    #[arg(long)]
    smoke: bool,
}

/// Something to be measured on both sides.
struct Work {
    name: &'static str,
    unit: &'static str,
    against: &'static str,
    target: &'static str,
    here: fn(&Setting) -> Cost,
    /// What the peer's cost is; `None` where the figure stands alone.
    there: Option<fn(&Setting) -> Cost>,
}

const WORKS: &[Work] = &[
    Work {
        name: "replay, 1 client",
        unit: "ns a byte",
        against: "a blocking write loop",
        target: "≥ 0.9",
        here: |setting| works::replay(setting, 1, Paid::Time),
        there: Some(|setting| works::replay_blocking(setting, 1)),
    },
    Work {
        name: "replay, 64 clients",
        unit: "ns a byte",
        against: "a blocking write loop",
        target: "≥ 0.9",
        here: |setting| works::replay(setting, 64, Paid::Time),
        there: Some(|setting| works::replay_blocking(setting, 64)),
    },
    Work {
        name: "replay, CPU, 1 client",
        unit: "CPU ns a byte",
        against: "axum `Sse`",
        target: "≥ 10",
        here: |setting| works::replay(setting, 1, Paid::Cpu),
        there: Some(|setting| works::replay_axum(setting, 1)),
    },
    Work {
        name: "replay, CPU, 64 clients",
        unit: "CPU ns a byte",
        against: "axum `Sse`",
        target: "≥ 10",
        here: |setting| works::replay(setting, 64, Paid::Cpu),
        there: Some(|setting| works::replay_axum(setting, 64)),
    },
    Work {
        name: "reconnect cycle",
        unit: "CPU ns",
        against: "axum, a fixed answer",
        target: "≥ 1.3",
        here: works::reconnect_here,
        there: Some(works::reconnect_axum),
    },
    Work {
        name: "tools/call echo",
        unit: "CPU ns",
        against: "rmcp on axum",
        target: "≥ 3",
        here: |setting| works::call(setting, 1),
        there: Some(works::call_rmcp),
    },
    Work {
        name: "an attached idle session",
        unit: "bytes",
        against: "axum `Sse`",
        target: "≥ 8",
        here: works::idle,
        there: Some(works::idle_axum),
    },
    Work {
        name: "retained results",
        unit: "bytes kept a byte",
        against: "the bytes themselves",
        target: "≥ 0.4",
        here: works::retained,
        there: Some(|_| Ok(1.0)),
    },
    Work {
        name: "an event a second to each of 10,000",
        unit: "CPU ns an event",
        against: "axum `Sse`",
        target: "≥ 2",
        here: works::tick,
        there: Some(works::tick_axum),
    },
    Work {
        name: "reconnect cycle, 2 shards",
        unit: "CPU ns",
        against: "1 shard",
        target: "≥ 0.87",
        here: |setting| works::reconnect(setting, 64, 2),
        there: Some(works::reconnect_here),
    },
    Work {
        name: "tools/call echo, 2 shards",
        unit: "CPU ns",
        against: "1 shard",
        target: "≥ 0.87",
        here: |setting| works::call(setting, 2),
        there: Some(|setting| works::call(setting, 1)),
    },
    Work {
        name: "reconnect cycle, 15,000 sessions",
        unit: "CPU ns",
        against: "100 sessions",
        target: "≥ 0.83",
        here: |setting| works::reconnect(setting, if setting.scale < 1.0 { 20 } else { 15_000 }, 1),
        there: Some(|setting| works::reconnect(setting, if setting.scale < 1.0 { 10 } else { 100 }, 1)),
    },
];

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wire: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    let programs = std::env::current_exe()?.parent().map(PathBuf::from).unwrap_or_default();
    let setting =
        Setting { rejoin: programs.join("rejoin"), peer: programs.join("peer"), scale: if options.smoke { 0.001 } else { 1.0 } };
    let runs = if options.smoke { 1 } else { options.runs.max(1) };
    println!("| work | against | here | there | ratio | spread | target |\n|---|---|---|---|---|---|---|");
    let chosen = |work: &&Work| options.works.is_empty() || options.works.iter().any(|part| work.name.contains(part.as_str()));
    let mut ran = 0;
    for work in WORKS.iter().filter(chosen) {
        println!("{}", measure(work, &setting, runs)?);
        ran += 1;
    }
    if options.smoke {
        println!("{ran} works, all ran");
    }
    Ok(())
}

/// Alternated runs of a work, as a line of the table: medians, and the ratio's least and greatest value.
fn measure(work: &Work, setting: &Setting, runs: usize) -> io::Result<String> {
    let (mut here, mut there, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        here.push((work.here)(setting)?);
        if let Some(measured) = work.there {
            there.push(measured(setting)?);
            ratios.push(there[there.len() - 1] / here[here.len() - 1]);
        }
    }
    let spread = ratios.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
    let Work { name, unit, against, target, .. } = work;
    Ok(format!(
        "| {name} | {against} | {:.2} {unit} | {:.2} | **{:.2}** | {:.2}–{:.2} | {target} |",
        median(here),
        median(there),
        median(ratios),
        spread.0,
        spread.1
    ))
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
