//! All options as a TOML file that gives the same again, each with where it came from.
//!
//! Never shows what is in a file that an option names.

use std::ffi::OsString;
use std::fmt;

use toml_writer::{ToTomlValue, TomlStringBuilder};

use super::error::one_line;
use super::option::Declared;
use super::{Settings, Written};

/// Up to this column comments stand below each other; behind a longer value they stand where it ends.
const MAX_COLUMN: usize = 48;

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> =
            self.all.iter().map(|(option, written)| (line(option, written), one_line(&written.source.to_string()))).collect();
        let widths = lines.iter().map(|(line, _)| line.chars().count()).filter(|&width| width <= MAX_COLUMN);
        let column = widths.max().unwrap_or_default();
        writeln!(f, "# rejoin {}: flags before environment before file before defaults", env!("CARGO_PKG_VERSION"))?;
        lines.iter().try_for_each(|(line, source)| writeln!(f, "{line:column$}  # {source}"))
    }
}

/// One option; as a comment where it is not set, and where TOML cannot say it.
fn line(option: &Declared, written: &Written) -> String {
    let name = option.name();
    let Some(values) = written.values.iter().map(|value| scalar(option, value)).collect::<Option<Vec<_>>>() else {
        let shown: Vec<_> = written.values.iter().map(|value| one_line(&value.to_string_lossy())).collect();
        return format!("# {name} = {} (not UTF-8: only a flag or the environment can say it)", shown.join(" "));
    };
    match (option.is_list(), values.first()) {
        (true, _) => format!("{name} = [{}]", values.join(", ")),
        (false, Some(value)) => format!("{name} = {value}"),
        (false, None) => format!("# {name} is not set"),
    }
}

/// A value as TOML has it, on one line.
fn scalar(option: &Declared, value: &OsString) -> Option<String> {
    let text = value.to_str()?;
    let plain = text == "true" || text == "false" || text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
    if option.is_bare() && plain {
        return Some(text.to_owned());
    }
    Some(TomlStringBuilder::new(text).as_basic().to_toml_value())
}
