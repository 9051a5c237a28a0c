//! The options of `rejoin check`.
//!
//! Never starts anything.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use super::bench::Settings;
use super::cases::{self, Case};
use super::report::Format;
use super::server::Tools;
use crate::bounds;
use crate::target::{self, Target, Terms};

/// `rejoin check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The server's endpoint: http://HOST:PORT/PATH, or https://.
    #[arg(value_name = "URL", required_unless_present = "list")]
    url: Option<String>,
    /// List the cases.
    #[arg(long)]
    pub(super) list: bool,
    /// Only cases whose name contains this. May be repeated.
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Run this case, and print what was said on the wire.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["case", "format"])]
    pub(super) explain: Option<String>,
    /// Tool to call, which emits several events [default: one that fits].
    #[arg(long)]
    tool: Option<String>,
    /// The tool's arguments, a JSON object; "$events", "$every_ms", "$every_s", "$duration_ms", "$duration_s", "$payload" and "$key" in it
    /// are filled in.
    #[arg(long, value_name = "JSON", requires = "tool", value_parser = target::object)]
    args: Option<Map<String, Value>>,
    /// Tool whose result's text is the number of executions so far [default: `effects`, where there is one].
    #[arg(long, value_name = "NAME")]
    effects_tool: Option<String>,
    /// A shell command that restarts the server, and returns once it listens again.
    #[arg(long, value_name = "COMMAND")]
    restart_command: Option<String>,
    /// A time after which an idle session has expired.
    #[arg(long, value_name = "TIME", value_parser = bounds::time)]
    expire_after: Option<Duration>,
    /// Events of one call that are more than the server holds.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    overflow: u32,
    /// A field that every request carries. May be repeated.
    #[arg(long, value_name = "NAME: VALUE", value_parser = target::field)]
    header: Vec<(String, String)>,
    /// A bearer token that every request carries.
    #[arg(long)]
    token: Option<String>,
    /// The bearer token of another principal.
    #[arg(long, value_name = "TOKEN", requires = "token")]
    other_token: Option<String>,
    /// Certificates (PEM) of the only authorities to trust for https [default: Mozilla's].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The target is not on this machine, and is yours to check.
    #[arg(long)]
    i_own_this_target: bool,
    /// How long something that must come is waited for.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = bounds::time)]
    pub(super) patience: Duration,
    /// How long a case may take.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = bounds::time)]
    pub(super) time_limit: Duration,
    /// Requests of the whole run, at most.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub(super) max_requests: u32,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

impl Check {
    /// The cases to run.
    pub(super) fn chosen(&self) -> Result<Vec<&'static Case>, String> {
        let all = cases::all();
        if let Some(name) = &self.explain {
            let found: Vec<_> = all.into_iter().filter(|case| case.name == name).collect();
            return if found.is_empty() { Err(format!("no case {name:?}; --list has them")) } else { Ok(found) };
        }
        if let Some(unknown) = self.case.iter().find(|part| !all.iter().any(|case| case.name.contains(part.as_str()))) {
            return Err(format!("no case's name contains {unknown:?}; --list has them"));
        }
        let wanted = |case: &&Case| self.case.is_empty() || self.case.iter().any(|part| case.name.contains(part.as_str()));
        Ok(all.into_iter().filter(wanted).collect())
    }

    /// The target.
    pub(super) fn target(&self) -> Result<Target, String> {
        let terms = Terms {
            command: "check",
            fields: target::given_fields(&self.header, self.token.as_deref())?,
            authorities: target::authorities(self.ca.as_deref())?,
            owned: self.i_own_this_target,
        };
        Target::new(self.url.as_deref().unwrap_or_default(), &terms)
    }

    /// What the user says of tools.
    pub(super) fn tools(&self) -> Tools {
        Tools { tool: self.tool.clone(), arguments: self.args.clone(), effects: self.effects_tool.clone() }
    }

    /// What the user says of the target.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            restart: self.restart_command.clone(),
            expire_after: self.expire_after,
            overflow: self.overflow,
            token: self.token.is_some(),
            other_token: self.other_token.clone(),
        }
    }
}
