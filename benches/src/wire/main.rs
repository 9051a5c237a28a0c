//! Side-by-side runs: the same work on rejoin and on a peer, in alternation, as a ratio.
//!
//! Server and load run on processors of their own. A server's cost is its processor time per unit of work where that can be counted,
//! since wall time on a shared machine says little.

mod load;
mod process;
mod side;
mod table;
mod works;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use table::{WORKS, Work};
use works::{Busy, Sample, Setting};

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
    /// Whole servers side by side instead, with their plot in this file.
    #[arg(long, value_name = "SVG", conflicts_with = "works")]
    side: Option<PathBuf>,
}

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
    let setting = Setting { programs, scale: if options.smoke { 0.001 } else { 1.0 } };
    let runs = if options.smoke { 1 } else { options.runs.max(1) };
    if let Some(plot) = &options.side {
        side::run(&setting, runs, plot)?;
        if options.smoke {
            println!("1 works, all ran");
        }
        return Ok(());
    }
    println!(
        "| work | against | here | there | ratio | spread | target | busy here | busy there |\n|---|---|---|---|---|---|---|---|---|"
    );
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
    let Work { name, unit, against, target, .. } = work;
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        here.push((work.here)(setting).map_err(named)?);
        if let Some(measured) = work.there {
            there.push(measured(setting).map_err(named)?);
        }
    }
    let ratios: Vec<_> = here.iter().zip(&there).map(|(here, there)| there.cost / here.cost).collect();
    let spread = spread(ratios.iter().copied());
    let compared = match median(ratios.iter().copied()) {
        Some(ratio) => format!("**{ratio:.2}** | {:.2}–{:.2}", spread.0, spread.1),
        None => "– | –".into(),
    };
    let costs = |of: &[Sample]| median(of.iter().map(|sample| sample.cost)).map_or("–".into(), |cost| format!("{cost:.2}"));
    let busy = |of: &[Sample]| of.last().and_then(|sample| sample.busy).map_or("–".into(), |busy: Busy| busy.to_string());
    Ok(format!(
        "| {name} | {against} | {} {unit} | {} | {compared} | {target} | {} | {} |",
        costs(&here),
        costs(&there),
        busy(&here),
        busy(&there)
    ))
}

/// The least and the greatest.
fn spread(of: impl Iterator<Item = f64>) -> (f64, f64) {
    of.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), one| (least.min(one), most.max(one)))
}

fn median(of: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<_> = of.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
