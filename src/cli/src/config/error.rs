//! What is wrong with a configuration, in words that say where.
//!
//! Never shows more of a file than the key or the value that is wrong.

use std::fmt;
use std::sync::Arc;

use super::Source;
use super::option::NotTaken;

/// Why there is no configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    Unreadable { file: Arc<str>, why: String },
    /// A line of it is no TOML.
    Syntax { at: Source, why: String },
    /// It has a key that no option has.
    UnknownKey { at: Source, key: String, meant: Option<String> },
    /// An option does not take this value.
    BadValue { at: Source, name: String, value: String, why: String },
    /// A value is of a kind that the option does not have.
    BadKind { at: Source, name: String, expected: &'static str, found: &'static str },
    /// A variable's text cannot be cut into values.
    Uncut { at: Source, why: &'static str },
    /// Options that cannot stand together.
    Conflict { why: String, sources: Vec<(String, Source)> },
}

impl ConfigError {
    /// The option refused a value from here.
    pub(super) fn not_taken(at: Source, name: &str, refused: NotTaken) -> Self {
        Self::BadValue { at, name: name.into(), value: refused.value, why: refused.why }
    }

    /// What clap says of options together that it took one by one.
    pub(super) fn together(error: &clap::Error) -> Self {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Self::Conflict { why: line.into(), sources: Vec::new() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, why } => write!(f, "the configuration file {file} cannot be read: {why}"),
            Self::Syntax { at, why } => write!(f, "{at}: {why}"),
            Self::UnknownKey { at, key, meant: None } => write!(f, "{at}: unknown key `{key}`"),
            Self::UnknownKey { at, key, meant: Some(meant) } => write!(f, "{at}: unknown key `{key}` (did you mean `{meant}`?)"),
            // A variable names its option itself.
            Self::BadValue { at: at @ Source::Environment(_), value, why, .. } => {
                write!(f, "{at}: invalid value `{value}`: {why}")
            }
            Self::BadValue { at, name, value, why } => write!(f, "{at}: {name}: invalid value `{value}`: {why}"),
            Self::BadKind { at, name, expected, found } => write!(f, "{at}: {name}: must be {expected}, and is {found}"),
            Self::Uncut { at, why } => write!(f, "{at}: {why}"),
            Self::Conflict { why, sources } => {
                f.write_str(why)?;
                // Flags are in plain sight, and nobody gave the defaults.
                let elsewhere =
                    sources.iter().filter(|(_, source)| matches!(source, Source::File { .. } | Source::Environment(_)));
                let elsewhere: Vec<_> = elsewhere.map(|(name, source)| format!("{name} is from {source}")).collect();
                if elsewhere.is_empty() { Ok(()) } else { write!(f, " ({})", elsewhere.join(", ")) }
            }
        }
    }
}

/// A text as one line without control characters, for a terminal or a comment.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
