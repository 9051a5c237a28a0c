//! `rejoin storm`: reconnect storms by script, and what came of them.
//!
//! Never serves anything.

// The engine calls the rest of it.
#[cfg_attr(not(test), expect(dead_code, reason = "only the reports of runs that are over are read here"))]
mod measure;
#[cfg_attr(not(test), expect(dead_code, reason = "only the reports of runs that are over are read here"))]
mod report;
#[cfg_attr(not(test), expect(dead_code, reason = "only the reports of runs that are over are read here"))]
mod results;

use clap::Args;

/// `rejoin storm`.
#[derive(Debug, Args)]
pub(crate) struct Storm {
    #[command(flatten)]
    reading: report::Reading,
    #[command(flatten)]
    outputs: report::Outputs,
}

/// Reads runs that are over.
pub(crate) fn run(storm: &Storm) -> Result<(), String> {
    storm.reading.run(&storm.outputs).unwrap_or_else(|| Err("give --compare A.json B.json or --from RESULTS.json".into()))
}
