//! One option, as clap has it declared, and all that is asked of a declaration: its names, its kind, whether it takes a value.
//!
//! Never reads a value by itself: that is clap's.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};

/// A declared option.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    arg: Arg,
    name: Arc<str>,
}

/// A value that an option does not take, and why.
#[derive(Debug)]
pub(super) struct NotTaken {
    pub(super) value: String,
    pub(super) why: String,
}

impl Declared {
    pub(super) fn new(arg: Arg) -> Self {
        let name = arg.get_long().unwrap_or_else(|| arg.get_id().as_str()).into();
        Self { arg, name }
    }

    /// Its name in a file: its flag's, without the dashes.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its variable in the environment.
    pub(super) fn variable(&self) -> String {
        format!("REJOIN_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// Its name inside clap.
    pub(super) fn id(&self) -> &str {
        self.arg.get_id().as_str()
    }

    /// Whether it has no flag: the words behind `--`.
    pub(super) fn is_positional(&self) -> bool {
        self.arg.is_positional()
    }

    /// Whether it takes several values.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::Append)
    }

    /// What it is where nobody says; nothing where it is simply not set.
    pub(super) fn defaults(&self) -> Vec<OsString> {
        self.arg.get_default_values().iter().map(OsString::from).collect()
    }

    /// Whether it is a number or a boolean, which a file may have without quotes.
    pub(super) fn is_bare(&self) -> bool {
        let kind = self.arg.get_value_parser().type_id();
        [TypeId::of::<u64>(), TypeId::of::<u32>(), TypeId::of::<usize>(), TypeId::of::<bool>()].iter().any(|bare| kind == *bare)
    }

    /// These values as arguments of a command line that has no others behind them.
    pub(super) fn as_arguments(&self, values: &[OsString]) -> Vec<OsString> {
        let behind = (self.is_positional() && !values.is_empty()).then(|| OsString::from("--"));
        let one = |value: &OsString| match self.arg.get_long() {
            Some(long) => {
                let mut argument = OsString::from(format!("--{long}="));
                argument.push(value);
                argument
            }
            None => value.clone(),
        };
        behind.into_iter().chain(values.iter().map(one)).collect()
    }

    /// Asks clap whether the option takes this value.
    pub(super) fn check(&self, value: &OsStr) -> Result<(), NotTaken> {
        let alone = Command::new("value").no_binary_name(true).disable_help_flag(true).arg(self.arg.clone());
        match alone.try_get_matches_from(self.as_arguments(&[value.to_owned()])) {
            Ok(_) => Ok(()),
            Err(error) => Err(NotTaken { value: value.to_string_lossy().into_owned(), why: why(&error) }),
        }
    }
}

/// What is wrong with a value, without the flag that it was not given by.
fn why(error: &clap::Error) -> String {
    if let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue)
        && !valid.is_empty()
    {
        return format!("must be one of {}", valid.join(", "));
    }
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}
