//! The options of a file: TOML, one key for each flag, all at the top.
//!
//! Never panics on any text: it gives the options, or an error that names a line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::str;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;
use super::option::Declared;
use super::{Source, Written, nearest};

/// The largest file, in bytes. Reason: all options together are a hundred times smaller; a wrong path must not fill the memory.
const MAX_BYTES: u64 = 1 << 20;

/// The longest piece of a file that is shown as what is wrong, in bytes. Reason: an error is one line.
const MAX_SHOWN: usize = 64;

/// Reads a file.
pub(super) fn read<'a>(path: &Path, declared: &'a [Declared]) -> Result<BTreeMap<&'a str, Written>, ConfigError> {
    let file: Arc<str> = path.to_string_lossy().into();
    let bytes = bytes_of(path).map_err(|error| ConfigError::Unreadable { file: Arc::clone(&file), why: error.to_string() })?;
    parse(&file, &bytes, declared)
}

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("is larger than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Reads what a file has. Of several mistakes the first is told.
pub(super) fn parse<'a>(
    file: &Arc<str>,
    bytes: &[u8],
    declared: &'a [Declared],
) -> Result<BTreeMap<&'a str, Written>, ConfigError> {
    let at = |place: Range<usize>| Source::File { file: Arc::clone(file), line: line_of(bytes, place.start) };
    let text = str::from_utf8(bytes).map_err(|error| {
        let place = error.valid_up_to();
        ConfigError::Syntax { at: at(place..place), why: "is no UTF-8".into() }
    })?;
    let table = DeTable::parse(text).map_err(|error| {
        // TOML knows the place of every mistake; the whole text is the place of one that has none.
        let place = error.span().unwrap_or_default();
        let wrong = text.get(place.clone()).filter(|wrong| (1..=MAX_SHOWN).contains(&wrong.len()) && !wrong.contains('\n'));
        let wrong = wrong.map(|wrong| format!(": `{wrong}`")).unwrap_or_default();
        ConfigError::Syntax { at: at(place), why: format!("{}{wrong}", error.message()) }
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut found = BTreeMap::new();
    for (key, value) in entries {
        let Some(option) = declared.iter().find(|option| option.name() == key.get_ref()) else {
            let meant = nearest(key.get_ref(), declared.iter().map(Declared::name)).map(str::to_owned);
            return Err(ConfigError::UnknownKey { at: at(key.span()), key: key.get_ref().to_string(), meant });
        };
        let mut values = Vec::new();
        for one in each(option, value).map_err(|bad| bad.of(option, at))? {
            let value = scalar(one).map_err(|bad| bad.of(option, at))?;
            option.check(&value).map_err(|refused| ConfigError::not_taken(at(one.span()), option.name(), refused))?;
            values.push(value);
        }
        found.insert(option.name(), Written { values, source: at(key.span()) });
    }
    Ok(found)
}

/// A value of the wrong kind, and where.
struct BadKind {
    place: Range<usize>,
    expected: &'static str,
    found: &'static str,
}

impl BadKind {
    fn of(self, option: &Declared, at: impl Fn(Range<usize>) -> Source) -> ConfigError {
        ConfigError::BadKind { at: at(self.place), name: option.name().into(), expected: self.expected, found: self.found }
    }
}

/// The values that a key gives: one, or an array's for a list.
fn each<'a, 'i>(option: &Declared, value: &'a Spanned<DeValue<'i>>) -> Result<Vec<&'a Spanned<DeValue<'i>>>, BadKind> {
    match value.get_ref() {
        DeValue::Array(values) if option.is_list() => Ok(values.iter().collect()),
        other if option.is_list() => Err(BadKind { place: value.span(), expected: "an array of strings", found: kind(other) }),
        _ => Ok(vec![value]),
    }
}

/// A value as a flag would have it.
fn scalar(value: &Spanned<DeValue<'_>>) -> Result<OsString, BadKind> {
    let bad = |found| BadKind { place: value.span(), expected: "a string, a whole number or a boolean", found };
    match value.get_ref() {
        DeValue::String(text) => Ok(text.as_ref().into()),
        DeValue::Boolean(yes) => Ok(yes.to_string().into()),
        // In whatever base it is written: 0xff is 255.
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Ok(number.to_string().into()),
            Err(_) => Err(bad("a number of more than 64 bits")),
        },
        other => Err(bad(kind(other))),
    }
}

/// A kind of value, as a sentence has it.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or a time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// The line of a place in a text, counted from one.
fn line_of(text: &[u8], place: usize) -> usize {
    let before = text.get(..place).unwrap_or(text);
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}
