//! The options of `rejoin storm`.
//!
//! Never starts anything.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Map, Value};

use super::library;
use super::report::{Outputs, Reading};
use super::script::Script;
use crate::target::{self, Target, Terms};

/// `rejoin storm`.
#[derive(Debug, Args)]
pub(crate) struct Storm {
    /// The server's endpoint: http://HOST:PORT/PATH, or https://.
    #[arg(value_name = "URL", required_unless_present_any = ["list", "compare", "from"])]
    url: Option<String>,
    /// What happens: a script of ours by its name (see --list), or a file.
    #[arg(long, value_name = "NAME|FILE", required_unless_present_any = ["list", "compare", "from"])]
    script: Option<String>,
    /// List the scripts that come with rejoin.
    #[arg(long)]
    pub(super) list: bool,
    /// Sessions, in place of the script's number; what it states scales with them.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: Option<u32>,
    /// Every length in the script, but patience and settling, times this.
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    time_scale: Option<f64>,
    /// What all chance comes from; the same seed is the same storm [default: another each time].
    #[arg(long)]
    seed: Option<u64>,
    /// Threads, each with its own event loop and sessions [default: one a core].
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Tool to call in place of the script's. Without ticker's numbering, ids and answers are what is checked.
    #[arg(long)]
    tool: Option<String>,
    /// The tool's arguments, a JSON object.
    #[arg(long, value_name = "JSON", requires = "tool", value_parser = target::object)]
    args: Option<Map<String, Value>>,
    /// A shell command that restarts the server, and returns once it listens again; for scripts that restart.
    #[arg(long, value_name = "COMMAND")]
    pub(super) restart_command: Option<String>,
    /// A field that every request carries. May be repeated.
    #[arg(long, value_name = "NAME: VALUE", value_parser = target::field)]
    header: Vec<(String, String)>,
    /// A bearer token that every request carries.
    #[arg(long)]
    token: Option<String>,
    /// Certificates (PEM) of the only authorities to trust for https [default: Mozilla's].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The target is not on this machine, and is yours to storm.
    #[arg(long)]
    i_own_this_target: bool,
    /// Say nothing while it runs.
    #[arg(long)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) outputs: Outputs,
    #[command(flatten)]
    pub(super) reading: Reading,
}

/// A factor that leaves something of a time.
fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if (0.001..=1_000.0).contains(&factor) { Ok(factor) } else { Err("is from 0.001 to 1000".into()) }
}

impl Storm {
    /// The script, as these options change it.
    pub(super) fn script(&self) -> Result<Script, String> {
        let name = self.script.as_deref().unwrap_or_default();
        let mut script = library::find(name).map_err(|error| error.to_string())?;
        if let Some(sessions) = self.sessions {
            script = script.with_sessions(sessions);
        }
        if let Some(scale) = self.time_scale {
            script = script.with_time_scale(scale);
        }
        if let Some(tool) = &self.tool {
            script = script.with_tool(tool, &self.args.clone().unwrap_or_default());
        }
        if script.restarts() && self.restart_command.is_none() {
            return Err(format!("the script {} restarts the server: say how with --restart-command", script.name));
        }
        Ok(script)
    }

    /// The target.
    pub(super) fn target(&self) -> Result<Target, String> {
        let terms = Terms {
            command: "storm",
            fields: target::given_fields(&self.header, self.token.as_deref())?,
            authorities: target::authorities(self.ca.as_deref())?,
            owned: self.i_own_this_target,
        };
        Target::new(self.url.as_deref().unwrap_or_default(), &terms)
    }

    /// The seed: the given one, or another each time.
    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            // Small enough to be typed again.
            u64::from(now.subsec_nanos()) ^ (now.as_secs() & 0xffff)
        })
    }

    /// How many threads.
    pub(super) fn threads(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(cores, NonZeroUsize::get)
    }
}
