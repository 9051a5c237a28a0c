//! Where the options' values come from: the command line before the environment before the file before the defaults.
//!
//! Never knows an option by its name: it goes by clap's own declaration, and has clap read every value, wherever it was written. So
//! the three ways cannot drift apart. Never starts anything.

mod environment;
mod error;
mod file;
mod option;
mod print;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::options::Serve;

use environment::Environment;
pub(crate) use error::{ConfigError, one_line};
use option::Declared;

/// What the help of `rejoin serve` says below its options.
pub(crate) const HELP: &str = "Each option can be set by its flag, by a variable of the environment (REJOIN_SESSION_TTL for --session-ttl; \
    REJOIN_COMMAND, words as in a shell) or in a TOML file (session-ttl = \"30m\"; command = [\"npx\", \"server\"]), in this order. \
    --print-config shows the outcome. docs/operations.md tells what each is for.";

/// What is given by itself, not as an option of the server.
#[derive(Debug, Args)]
pub(crate) struct Given {
    /// A TOML file of options, a key for each flag [env: REJOIN_CONFIG].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print every option's value as such a file, with where it came from, and exit.
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Print which revision of MCP may resume, batch, have sessions, and needs which headers, and exit.
    #[arg(long)]
    pub(crate) explain_revisions: bool,
    #[command(flatten)]
    _options: OnLine,
}

/// The options, declared on the command line but not yet read: the line alone does not know their values.
#[derive(Debug)]
struct OnLine;

impl Args for OnLine {
    fn augment_args(command: Command) -> Command {
        Serve::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Serve::augment_args_for_update(command)
    }
}

impl FromArgMatches for OnLine {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

/// The variable that names a file where `--config` does not.
const CONFIG: &str = "REJOIN_CONFIG";

/// The options alone, as their declaration has them.
pub(crate) fn options() -> Command {
    Serve::augment_args(Command::new("serve").no_binary_name(true).disable_help_flag(true))
}

fn declared() -> Vec<Declared> {
    options().get_arguments().cloned().map(Declared::new).collect()
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File {
        file: Arc<str>,
        line: usize,
    },
    Environment(String),
    Flag,
    /// What stands behind `--` has no flag.
    CommandLine,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag => f.write_str("flag"),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

/// Values as they were written, each in its turn, and where.
#[derive(Clone, Debug)]
struct Written {
    values: Vec<OsString>,
    source: Source,
}

/// All options with what they were given. Prints itself as a file that gives the same.
#[derive(Debug)]
pub(crate) struct Settings {
    all: Vec<(Declared, Written)>,
    warnings: Vec<String>,
}

impl Settings {
    /// Gathers what the command line, the environment and the file say. Each is right by itself then, also where another one is
    /// preferred.
    pub(crate) fn gather(
        given: &Given,
        line: &ArgMatches,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut environment = Environment::read(variables);
        let by_variable = environment.take(CONFIG).map(PathBuf::from);
        let declared = declared();
        let mut in_file = match given.config.as_ref().or(by_variable.as_ref()) {
            Some(path) => file::read(path, &declared)?,
            None => BTreeMap::new(),
        };
        let mut in_environment = environment.read_options(&declared)?;
        let warnings = environment.strangers(&declared);
        let all = declared.iter().map(|option| {
            let by_file = in_file.remove(option.name());
            let written = on_line(line, option).or(in_environment.remove(option.name())).or(by_file);
            let written = written.unwrap_or_else(|| Written { values: option.defaults(), source: Source::Default });
            (option.clone(), written)
        });
        Ok(Self { all: all.collect(), warnings })
    }

    /// What is strange, but no reason not to start.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The options as the server takes them, which make sense together.
    pub(crate) fn options(&self) -> Result<Serve, ConfigError> {
        let mut line: Vec<OsString> = Vec::new();
        for (option, written) in self.all.iter().filter(|(_, written)| written.source != Source::Default) {
            line.extend(option.as_arguments(&written.values));
        }
        let matches = options().try_get_matches_from(line);
        let serve =
            matches.and_then(|matches| Serve::from_arg_matches(&matches)).map_err(|error| ConfigError::together(&error))?;
        serve.check().map_err(|conflict| {
            let sources = self.all.iter().filter(|(option, _)| conflict.between.contains(&option.name()));
            let sources = sources.map(|(option, written)| (option.name().to_owned(), written.source.clone()));
            ConfigError::Conflict { why: conflict.why, sources: sources.collect() }
        })?;
        Ok(serve)
    }
}

/// What the command line itself says of an option; clap has checked it.
fn on_line(line: &ArgMatches, option: &Declared) -> Option<Written> {
    if line.value_source(option.id()) != Some(ValueSource::CommandLine) {
        return None;
    }
    let values = line.get_raw(option.id())?.map(OsString::from).collect();
    Some(Written { values, source: if option.is_positional() { Source::CommandLine } else { Source::Flag } })
}

/// Which of these names one was probably meant to be.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// As alike as clap wants flags to be before it names one.
    const ALIKE: f64 = 0.8;
    let alike = names.map(|candidate| (strsim::jaro(name, candidate), candidate)).filter(|(alike, _)| *alike > ALIKE);
    alike.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, candidate)| candidate)
}
