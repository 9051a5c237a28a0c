//! The options of the environment: variables that begin with `REJOIN_`.
//!
//! Never refuses a variable that it does not know: others set such variables too (Kubernetes sets `REJOIN_PORT` and the like in each pod
//! beside a service named `rejoin`). It is told of instead.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::error::ConfigError;
use super::option::Declared;
use super::{Source, Written, nearest};

/// What our variables begin with.
const PREFIX: &str = "REJOIN_";

/// The variables with our prefix. An empty one counts as not set, as deployments that pass on what may not be there need it.
pub(super) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    pub(super) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let ours = |name: &OsStr| name.as_bytes().starts_with(PREFIX.as_bytes());
        Self(variables.into_iter().filter(|(name, value)| ours(name) && !value.is_empty()).collect())
    }

    /// Takes a variable that is no option's.
    pub(super) fn take(&mut self, variable: &str) -> Option<OsString> {
        self.0.remove(OsStr::new(variable))
    }

    /// Takes the options' variables.
    pub(super) fn read_options<'a>(&mut self, declared: &'a [Declared]) -> Result<BTreeMap<&'a str, Written>, ConfigError> {
        let mut found = BTreeMap::new();
        for option in declared {
            let variable = option.variable();
            let Some(text) = self.take(&variable) else { continue };
            let source = Source::Environment(variable);
            let values = cut(option, text).map_err(|why| ConfigError::Uncut { at: source.clone(), why })?;
            for value in &values {
                option.check(value).map_err(|refused| ConfigError::not_taken(source.clone(), option.name(), refused))?;
            }
            found.insert(option.name(), Written { values, source });
        }
        Ok(found)
    }

    /// What to tell of the variables that nobody took.
    pub(super) fn strangers(&self, declared: &[Declared]) -> Vec<String> {
        let variables: Vec<_> = declared.iter().map(Declared::variable).collect();
        let told = self.0.keys().map(|name| {
            let name = name.to_string_lossy();
            let meant = nearest(&name, variables.iter().map(String::as_str));
            let meant = meant.map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default();
            format!("environment {name} is no option and has no effect{meant}")
        });
        told.collect()
    }
}

/// A variable's text as values: one, or those of a list between commas, or the words of a command as a shell reads them.
fn cut(option: &Declared, text: OsString) -> Result<Vec<OsString>, &'static str> {
    if !option.is_list() {
        return Ok(vec![text]);
    }
    let text = text.into_string().map_err(|_| "is no UTF-8")?;
    if option.is_positional() {
        let words = shlex::split(&text).ok_or("a quote is not closed, or a backslash stands last")?;
        return Ok(words.into_iter().map(OsString::from).collect());
    }
    Ok(text.split(',').map(str::trim).filter(|value| !value.is_empty()).map(OsString::from).collect())
}
