//! The layers without a process: any text as a file, any text as a variable.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap::FromArgMatches;
use proptest::prelude::*;

use super::*;

/// What these arguments and variables give.
fn gather(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let line = ["rejoin", "serve"].iter().chain(arguments);
    let matches = crate::command().try_get_matches_from(line).expect("a right command line");
    let serve = matches.subcommand_matches("serve").expect("serve");
    let given = Given::from_arg_matches(serve).expect("a right command line");
    Settings::gather(&given, serve, variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
}

fn parsed(bytes: &[u8]) -> Result<Vec<(String, Vec<OsString>, Source)>, ConfigError> {
    let declared = declared();
    let found = file::parse(&"f".into(), bytes, &declared)?;
    Ok(found.into_iter().map(|(name, written)| (name.to_owned(), written.values, written.source)).collect())
}

fn written<'a>(settings: &'a Settings, name: &str) -> &'a Written {
    &settings.all.iter().find(|(option, _)| option.name() == name).expect("an option").1
}

/// The line of the file that an error names.
fn line_named(error: &ConfigError) -> Option<usize> {
    error.to_string().strip_prefix("f:")?.split(':').next()?.parse().ok()
}

#[test]
fn no_two_options_share_a_name_or_a_variable() {
    let declared = declared();
    let names: BTreeSet<_> = declared.iter().map(|option| option.name().to_owned()).collect();
    let variables: BTreeSet<_> = declared.iter().map(Declared::variable).collect();
    assert_eq!((names.len(), variables.len()), (declared.len(), declared.len()));
    assert!(!variables.contains(CONFIG), "it names the file");
}

#[test]
fn a_mistake_names_its_line_and_what_was_meant() {
    for (text, said) in [
        ("# a\n\nsesion-ttl = \"1m\"\n", "f:3: unknown key `sesion-ttl` (did you mean `session-ttl`?)"),
        ("zzz = 1", "f:1: unknown key `zzz`"),
        ("config = \"f\"", "f:1: unknown key `config`"),
        ("session_ttl = \"1m\"", "f:1: unknown key `session_ttl` (did you mean `session-ttl`?)"),
        ("[serve]\nretry = \"1s\"", "f:1: unknown key `serve`"),
        ("path = \"/x\"\r\nretry = 5\r\n", "f:2: retry: invalid value `5`: time unit needed, for example 5sec or 5ms"),
        ("driver = \"kqueue\"", "f:1: driver: invalid value `kqueue`: must be one of auto, uring, epoll"),
        ("allow-host = [\n  \"a\",\n  \"b c\",\n]", "f:3: allow-host: invalid value `b c`: "),
        ("allow-host = \"a\"", "f:1: allow-host: must be an array of strings, and is a string"),
        ("command = \"npx server\"", "f:1: command: must be an array of strings, and is a string"),
        ("retry = [\"1s\"]", "f:1: retry: must be a string, a whole number or a boolean, and is an array"),
        ("listen.port = 1", "f:1: listen: must be a string, a whole number or a boolean, and is a table"),
        ("max-sessions = 1.5", "f:1: max-sessions: must be a string, a whole number or a boolean, and is a fraction"),
        ("max-sessions = 99999999999999999999", "f:1: max-sessions: "),
        ("max-sessions = -1", "f:1: max-sessions: invalid value `-1`: "),
        ("allow-anonymous = \"yes\"", "f:1: allow-anonymous: invalid value `yes`: must be one of true, false"),
        ("retry = \"1s\"\nretry = \"2s\"", "f:2: duplicate key: `retry`"),
        ("retry = 1s", "f:1: "),
        ("retry = \"1s", "f:1: "),
        ("a = \n", "f:1: "),
    ] {
        let error = parsed(text.as_bytes()).expect_err(text).to_string();
        assert!(error.starts_with(said), "{text:?} gives {error:?}");
    }
    let error = parsed(b"retry = \"1s\"\n# \xff").expect_err("no UTF-8").to_string();
    assert_eq!(error, "f:2: is no UTF-8");
}

#[test]
fn counts_are_taken_up_to_their_bounds_and_no_further() {
    for (name, most) in [
        ("max-sessions", crate::bounds::MAX_SESSIONS),
        ("max-connections", crate::bounds::MAX_CONNECTIONS),
        ("max-children", crate::bounds::MAX_CHILDREN),
        ("stream-events", crate::bounds::MAX_STREAM_EVENTS),
    ] {
        for (count, taken) in [(0, false), (1, true), (most, true), (most + 1, false)] {
            assert_eq!(parsed(format!("{name} = {count}").as_bytes()).is_ok(), taken, "{name} = {count}");
        }
    }
}

#[test]
fn the_first_of_several_mistakes_is_told() {
    let error = parsed(b"zzz = 1\naaa = 1\nretry = 0").expect_err("three mistakes");
    assert_eq!(line_named(&error), Some(1));
}

#[test]
fn numbers_are_read_in_any_base_and_lists_whole() {
    let found = parsed(b"max-body = 0x1_000\ncommand = [\"a\", 7, \"\"]\nallow-origin = []").expect("right");
    let values: Vec<_> = found.iter().map(|(name, values, _)| (name.as_str(), values.clone())).collect();
    let expected =
        [("allow-origin", vec![]), ("command", vec!["a".into(), "7".into(), "".into()]), ("max-body", vec!["4096".into()])];
    assert_eq!(values, expected);
}

#[test]
fn a_wrong_value_is_told_also_where_another_one_is_preferred() {
    let error = gather(&["--retry", "1s"], &[("REJOIN_RETRY", "soon")]).expect_err("wrong").to_string();
    assert_eq!(error, "environment REJOIN_RETRY: invalid value `soon`: expected number at 0");
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let settings = gather(&[], &[("REJOIN_TOKENS", ""), ("REJOIN_RETRY", ""), ("REJOIN_COMMAND", "")]).expect("right");
    assert!(settings.all.iter().all(|(_, written)| written.source == Source::Default));
    assert!(settings.warnings().is_empty());
}

#[test]
fn lists_of_the_environment_are_cut_at_commas_and_the_command_as_a_shell_does() {
    let variables = [("REJOIN_ALLOW_HOST", "a, b:1 ,"), ("REJOIN_COMMAND", r#"sh -c 'echo "a  b"' c\ d $HOME """#)];
    let settings = gather(&[], &variables).expect("right");
    assert_eq!(written(&settings, "allow-host").values, ["a", "b:1"]);
    assert_eq!(written(&settings, "command").values, ["sh", "-c", r#"echo "a  b""#, "c d", "$HOME", ""]);
    let error = gather(&[], &[("REJOIN_COMMAND", "a 'b")]).expect_err("a quote").to_string();
    assert!(error.starts_with("environment REJOIN_COMMAND: a quote"), "{error}");
}

#[test]
fn a_variable_of_nobody_is_told_with_what_was_meant() {
    let settings = gather(&[], &[("REJOIN_TOKEN", "x"), ("REJOIN_PORT_8931_TCP", "x"), ("OTHER", "x")]).expect("it starts");
    let told = settings.warnings();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("environment REJOIN_PORT_8931_TCP is no option"), "{told:?}");
    assert!(told[1].ends_with("(did you mean REJOIN_TOKENS?)"), "{told:?}");
}

#[test]
fn a_conflict_says_where_its_options_come_from() {
    let error = gather(&["--tokens", "t"], &[("REJOIN_ALLOW_ANONYMOUS", "true")]).and_then(|settings| settings.options());
    let said = error.expect_err("one or the other").to_string();
    assert!(said.ends_with(" (allow-anonymous is from environment REJOIN_ALLOW_ANONYMOUS)"), "{said}");
    let said = gather(&["--listen", "0.0.0.0:1"], &[]).and_then(|settings| settings.options()).expect_err("open").to_string();
    assert!(!said.contains(" is from "), "a flag is in plain sight: {said}");
}

#[test]
fn a_value_that_toml_cannot_say_is_shown_as_a_comment() {
    use std::os::unix::ffi::OsStrExt;
    let declared = declared();
    let option = declared.iter().find(|option| option.name() == "key-file").expect("an option").clone();
    let values = vec![OsStr::from_bytes(b"a\xff\nb").to_owned()];
    let settings = Settings { all: vec![(option, Written { values, source: Source::Flag })], warnings: Vec::new() };
    let text = settings.to_string();
    assert!(text.lines().all(|line| line.starts_with("# ")), "{text}");
}

/// Texts that are often nearly right: keys of ours, values of all kinds, in lines.
fn nearly_right() -> impl Strategy<Value = String> {
    let names: Vec<String> = declared().iter().map(|option| option.name().to_owned()).chain(["x".into(), "".into()]).collect();
    let values = [
        "1",
        "-1",
        "true",
        "\"1s\"",
        "'1MiB'",
        "[]",
        "[\"a\", 'b']",
        "[1",
        "{ a = 1 }",
        "1.5",
        "1979-05-27",
        "\"\"\"\na\"\"\"",
        "0xff",
    ];
    let line = (prop::sample::select(names), prop::sample::select(values.to_vec()), "[ =#\\[\\.\"]{0,2}");
    prop::collection::vec(line.prop_map(|(name, value, noise)| format!("{name} ={noise} {value}\n")), 0..6)
        .prop_map(|lines| lines.concat())
}

/// A configuration, or an error that names a line of this text.
fn a_configuration_or_a_line(bytes: &[u8]) {
    let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
    if let Err(error) = parsed(bytes) {
        let named = line_named(&error);
        assert!(named.is_some_and(|line| (1..=lines).contains(&line)), "{error} of {lines} lines");
        assert_eq!(one_line(&error.to_string()).lines().count(), 1);
    }
}

proptest! {
    #[test]
    fn any_text_gives_a_configuration_or_an_error_that_names_a_line(text in "(\\PC|[\\n\\r\\t\\x00])*") {
        a_configuration_or_a_line(text.as_bytes());
    }

    #[test]
    fn any_bytes_give_a_configuration_or_an_error_that_names_a_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        a_configuration_or_a_line(&bytes);
    }

    #[test]
    fn a_text_that_is_nearly_right_gives_a_configuration_or_an_error_that_names_a_line(text in nearly_right()) {
        a_configuration_or_a_line(text.as_bytes());
    }

    /// What is printed is a file that says the same.
    #[test]
    fn any_command_survives_being_printed_and_read(words in prop::collection::vec("(\\PC|[\\n\\r\\t\\x01\\x7f\"'#])*", 1..4)) {
        let arguments: Vec<&str> = std::iter::once("--").chain(words.iter().map(String::as_str)).collect();
        let printed = gather(&arguments, &[]).expect("right").to_string();
        let found = parsed(printed.as_bytes()).expect("it reads what it prints");
        let command = found.iter().find(|(name, ..)| name == "command").expect("the command");
        prop_assert_eq!(&command.1, &words.iter().map(OsString::from).collect::<Vec<_>>());
        prop_assert_eq!(printed.lines().count(), declared().len() + 1);
    }
}

#[test]
fn nesting_without_end_is_an_error_that_names_a_line() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        a_configuration_or_a_line(format!("path = {}{}", open.repeat(100_000), close.repeat(100_000)).as_bytes());
    }
    a_configuration_or_a_line(format!("{}a = 1", "a.".repeat(100_000)).as_bytes());
}
