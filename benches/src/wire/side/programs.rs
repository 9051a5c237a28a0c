//! What the command `rejoin` finds out about a server that runs: by its storm, and by its check.
//!
//! Never reads more of their results than is told.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::Process;
use crate::works::{Sdk, Setting};

/// What a storm came to.
pub(super) struct Storm {
    pub(super) violations: f64,
    pub(super) median_ms: f64,
    pub(super) p99_ms: f64,
}

/// Of the two exit codes that are results: 0 is that all is well, and 1 that something was found.
const FOUND: i32 = 1;

/// Runs `rejoin` with this command and these arguments against a server; gives the JSON that it prints.
fn rejoin(setting: &Setting, server: &Process, arguments: &[&str]) -> io::Result<Value> {
    let mut command = Command::new(setting.programs.join("rejoin"));
    command.args(arguments).arg(format!("http://{}/mcp", server.address)).stdin(Stdio::null());
    let output = command.output()?;
    match output.status.code() {
        Some(0 | FOUND) => Ok(serde_json::from_slice(&output.stdout)?),
        _ => Err(io::Error::other(format!("rejoin {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr)))),
    }
}

/// The storm that stands beside this file.
pub(super) fn storm(setting: &Setting, sdk: Sdk) -> io::Result<Storm> {
    let server = sdk.start(setting)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wire/side/storm.toml");
    let script = script.to_string_lossy();
    let mut arguments = vec!["storm", "--quiet", "--seed", "1", "--script", &script, "--format", "json"];
    if setting.is_smoke() {
        arguments.extend(["--sessions", "4", "--time-scale", "0.1"]);
    }
    let results = rejoin(setting, &server, &arguments)?;
    let milliseconds = |name: &str| results["latencies"]["time_to_resume"][name].as_f64().map(|microseconds| microseconds / 1e3);
    let violations = results["totals"]["violations"].as_f64();
    match (violations, milliseconds("p50_us"), milliseconds("p99_us")) {
        (Some(violations), Some(median_ms), Some(p99_ms)) => Ok(Storm { violations, median_ms, p99_ms }),
        _ => Err(io::Error::other("the storm resumed nothing")),
    }
}

/// How many cases of the check break continuity, of those that could be tested.
pub(super) fn check(setting: &Setting, sdk: Sdk) -> io::Result<(usize, usize)> {
    let server = sdk.start(setting)?;
    let mut arguments = vec!["check", "--format", "json"];
    if setting.is_smoke() {
        arguments.extend(["--case", "cursor-garbage"]);
    }
    let report = rejoin(setting, &server, &arguments)?;
    let verdicts: Vec<_> = report["cases"].as_array().into_iter().flatten().filter_map(|case| case["verdict"].as_str()).collect();
    let with = |verdict: &str| verdicts.iter().filter(|found| **found == verdict).count();
    Ok((with("breaks-continuity"), verdicts.len() - with("untested")))
}
