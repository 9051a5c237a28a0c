//! Every option by flag, environment and file, as the command's own declaration has them; and what is not an option: key files, the log's
//! form, completions, pages for `man`, the version, the page for operators.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use clap::{Arg, ArgAction};
use rejoin_tests::check::expired;
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::{Rejoin, bare};
use rejoin_tests::session::{NOVEMBER, Session, initialize};
use rejoin_tests::wire::{PATIENCE, Request, ask};
use serde_json::Value;
use tempfile::TempDir;

on_every_server!(ids_of_before_a_restart_are_known_by_the_key_file_and_unknown_without_it);

/// For each option three values that differ from the default, as TOML (and JSON) has them, for flag, environment and file; then a value
/// that it does not take, where there is one.
const SAMPLES: &[(&str, [&str; 3], Option<&str>)] = &[
    ("listen", [r#""127.0.0.1:1""#, r#""[::1]:2""#, r#""127.0.0.2:0""#], Some("nowhere")),
    ("path", [r#""/a""#, r#""/b/c""#, r#""/""#], Some("mcp")),
    ("shards", ["1", "255", "256"], Some("257")),
    ("session-ttl", [r#""41m""#, r#""1h 2m""#, r#""1ms""#], Some("0s")),
    ("log-memory", [r#""2MiB""#, "4096", r#""1TiB""#], Some("0")),
    ("finished", [r#""405""#, r#""204""#, r#""405""#], Some("200")),
    ("stream-events", ["1", "2", "1000000000"], Some("1000000001")),
    ("event-ttl", [r#""1s""#, r#""2s""#, r#""3s""#], Some("soon")),
    ("result-ttl", [r#""1s""#, r#""2s""#, r#""3s""#], Some("3")),
    ("retry", [r#""1s""#, r#""2s""#, r#""10years""#], Some("0ms")),
    ("keep-alive", [r#""1s""#, r#""2s""#, r#""4s""#], Some("999us")),
    ("max-sessions", ["1", "2", "10000000"], Some("10000001")),
    ("max-exchanges", ["1", "2", "10000000"], Some("10000001")),
    ("max-idempotency-keys", ["1", "2", "10000000"], Some("10000001")),
    ("idempotency-memory", [r#""1MiB""#, "4096", r#""1TiB""#], Some("0")),
    ("idempotency-ttl", [r#""1s""#, r#""2h""#, r#""1ms""#], Some("0s")),
    ("max-connections", ["1", "2", "10000000"], Some("0")),
    ("admission-wait", [r#""1ms""#, r#""2s""#, r#""3s""#], Some("0s")),
    ("max-body", [r#""1KiB""#, "1", r#""8MiB""#], Some("64XB")),
    ("allow-origin", [r#"["https://a.example"]"#, r#"["null", "http://b:1"]"#, r#"["*"]"#], Some("a.example")),
    ("allow-host", [r#"["a.example"]"#, r#"["b:1", "::1"]"#, r#"["*"]"#], Some("a b")),
    ("response", [r#""sse""#, r#""json""#, r#""sse""#], Some("xml")),
    ("drain", [r#""0s""#, r#""1s""#, r#""2s""#], Some("-1s")),
    ("driver", [r#""epoll""#, r#""uring""#, r#""epoll""#], Some("kqueue")),
    ("tokens", [r#""a""#, r#""b c""#, r#""/d""#], None),
    ("allow-anonymous", ["true", "false", "true"], Some("yes")),
    ("key-file", [r#""a""#, r#""b""#, r#""c""#], None),
    ("admin", [r#""127.0.0.1:1""#, r#""[::1]:2""#, r#""127.0.0.2:0""#], Some("nowhere")),
    ("log-format", [r#""json""#, r#""text""#, r#""json""#], Some("xml")),
    ("max-children", ["1", "2", "4194304"], Some("4194305")),
    ("child-start-timeout", [r#""1s""#, r#""2s""#, r#""3s""#], Some("0s")),
    ("command", [r#"["a", "--b"]"#, r#"["c"]"#, r#"["d", "e"]"#], None),
];

/// The samples of an option.
fn samples(name: &str) -> (&'static [&'static str; 3], Option<&'static str>) {
    let found = SAMPLES.iter().find(|(sampled, ..)| *sampled == name);
    let (_, values, wrong) = found.unwrap_or_else(|| panic!("--{name} is a new option: give SAMPLES three values of it"));
    (values, *wrong)
}

/// The options that the command declares.
fn options() -> Vec<Arg> {
    rejoin_cli::options().get_arguments().cloned().collect()
}

fn name(option: &Arg) -> String {
    option.get_long().map_or_else(|| option.get_id().to_string(), str::to_owned)
}

fn variable(option: &Arg) -> String {
    format!("REJOIN_{}", name(option).to_uppercase().replace('-', "_"))
}

/// The values of a sample, one by one: its TOML is JSON too.
fn words(toml: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match serde_json::from_str(toml).expect("a sample") {
        Value::Array(values) => values.iter().map(text).collect(),
        value => vec![text(&value)],
    }
}

/// The arguments that give an option these values.
fn flags(option: &Arg, words: &[String]) -> Vec<String> {
    match option.get_long() {
        // A switch may stand alone.
        Some(long) if words == ["true"] => vec![format!("--{long}")],
        Some(long) => words.iter().map(|word| format!("--{long}={word}")).collect(),
        None => std::iter::once("--").chain(words.iter().map(String::as_str)).map(str::to_owned).collect(),
    }
}

/// The text of a variable that gives an option these values.
fn text(option: &Arg, words: &[String]) -> String {
    words.join(if option.is_positional() { " " } else { "," })
}

/// A file of configuration in a folder of its own.
fn file(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rejoin.toml");
    fs::write(&path, text).expect("written");
    let path = path.to_str().expect("UTF-8").to_owned();
    (folder, path)
}

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the command runs")
}

/// What `--print-config` says with a file, variables and flags: lines of name, value as TOML, source.
fn printed(file: Option<&str>, variables: &[(&str, &str)], flags: &[String]) -> Vec<(String, Option<String>, String)> {
    let mut command = bare(&["serve", "--print-config"]);
    command.args(file.map(|file| format!("--config={file}"))).envs(variables.iter().copied()).args(flags);
    read(&String::from_utf8(output(&mut command).stdout).expect("text"))
}

fn read(text: &str) -> Vec<(String, Option<String>, String)> {
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("# rejoin ")), "{text}");
    lines
        .map(|line| {
            let (setting, source) = line.rsplit_once("  # ").unwrap_or_else(|| panic!("no source: {line}"));
            let setting = setting.trim_end();
            match setting.strip_prefix("# ").and_then(|unset| unset.strip_suffix(" is not set")) {
                Some(name) => (name.to_owned(), None, source.to_owned()),
                None => {
                    let (name, value) = setting.split_once(" = ").unwrap_or_else(|| panic!("no value: {line}"));
                    (name.to_owned(), Some(value.to_owned()), source.to_owned())
                }
            }
        })
        .collect()
}

#[test]
fn every_option_is_reached_by_flag_environment_and_file_in_this_order() {
    for option in options() {
        let name = name(&option);
        let ([by_flag, by_variable, by_file], _) = samples(&name);
        let (_folder, file) = file(&format!("# a file\n\n{name} = {by_file}\n"));
        let (variable, text) = (variable(&option), text(&option, &words(by_variable)));
        let flags = flags(&option, &words(by_flag));
        let flag = if option.is_positional() { "command line" } else { "flag" };
        let default = option.get_default_values().first().and_then(|value| value.to_str()).map(str::to_owned);
        let is_list = matches!(option.get_action(), ArgAction::Append);
        let says = |file: Option<&str>, variables: &[(&str, &str)], flags: &[String]| {
            let all = printed(file, variables, flags);
            let (of_it, of_others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(printed, ..)| *printed == name);
            assert!(of_others.iter().all(|(.., source)| source == "default"), "{name} changes another option: {of_others:?}");
            let [(_, value, source)] = &of_it[..] else { panic!("--print-config says {name} so: {of_it:?}") };
            (value.clone(), source.clone())
        };
        let unset = says(None, &[], &[]);
        let expected = if is_list { Some(Vec::new()) } else { default.map(|value| vec![value]) };
        assert_eq!((unset.0.as_deref().map(words), unset.1.as_str()), (expected, "default"), "{name}");
        let set = |value: &str, source: String| (Some(value.to_owned()), source);
        let variables = [(variable.as_str(), text.as_str())];
        assert_eq!(says(Some(&file), &[], &[]), set(by_file, format!("{file}:3")));
        assert_eq!(says(Some(&file), &variables, &[]), set(by_variable, format!("environment {variable}")));
        assert_eq!(says(Some(&file), &variables, &flags), set(by_flag, flag.into()));
        assert_eq!(says(None, &[], &flags), set(by_flag, flag.into()));
    }
}

#[test]
fn no_sample_is_of_an_option_that_is_gone_or_of_its_default() {
    let options = options();
    for (sampled, values, _) in SAMPLES {
        let option = options.iter().find(|option| name(option) == *sampled).unwrap_or_else(|| panic!("no option --{sampled}"));
        let default: Vec<_> = option.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        // Only the middle one may be the default, where there are but two values: it stands between others.
        assert!(words(values[0]) != default && words(values[2]) != default, "{sampled}");
        assert!(values[0] != values[1] && values[1] != values[2], "{sampled}");
    }
}

/// Asserts that this is refused with one line that begins so and names the value, and nothing on standard output.
fn refused(command: &mut Command, begins: &str, names: &str) {
    let output = output(command);
    assert_eq!(output.status.code(), Some(2), "{command:?}");
    assert!(output.stdout.is_empty(), "{command:?}");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with(&format!("rejoin: {begins}")) && said.contains(names), "{begins:?}, {names:?}: {said}");
}

#[test]
fn a_bad_value_names_where_it_stands_whichever_way_it_came() {
    for option in options() {
        let name = name(&option);
        let Some(wrong) = samples(&name).1 else { continue };
        refused(bare(&["serve"]).args(flags(&option, &[wrong.into()])), "", &format!("'--{name}"));
        let variable = variable(&option);
        refused(bare(&["serve"]).env(&variable, wrong), &format!("environment {variable}: "), wrong);
        let value =
            if matches!(option.get_action(), ArgAction::Append) { format!("[\"{wrong}\"]") } else { format!("\"{wrong}\"") };
        let (_folder, path) = file(&format!("# a file\n\n{name} = {value}\n"));
        refused(&mut bare(&["serve", "--config", &path]), &format!("{path}:3: {name}: "), wrong);
    }
}

#[test]
fn a_file_names_its_line_for_an_unknown_key_and_for_what_is_no_toml() {
    let (_folder, path) = file("retry = \"1s\"\nsesion-ttl = \"5m\"\n");
    let begins = format!("{path}:2: unknown key `sesion-ttl` (did you mean `session-ttl`?)");
    refused(bare(&["serve"]).args(["--config", &path]), &begins, "");
    refused(bare(&["serve"]).env("REJOIN_CONFIG", &path), &begins, "");
    let (_folder, path) = file("\nretry = \n");
    refused(&mut bare(&["serve", "--config", &path]), &format!("{path}:2: "), "");
    let (_folder, path) = file("listen = \"0.0.0.0:0\"\n");
    refused(&mut bare(&["serve", "--config", &path]), "--listen 0.0.0.0:0 ", &format!("(listen is from {path}:1)"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("none.toml");
    for path in [missing.to_str().expect("UTF-8"), folder.path().to_str().expect("UTF-8"), "/dev/zero"] {
        refused(&mut bare(&["serve", "--config", path]), "the configuration file ", path);
    }
}

#[test]
fn a_flag_names_the_file_before_a_variable_does() {
    let (_first, by_flag) = file("path = \"/flag\"");
    let (_second, by_variable) = file("path = \"/variable\"");
    let all = printed(Some(&by_flag), &[("REJOIN_CONFIG", &by_variable)], &[]);
    assert!(all.contains(&("path".into(), Some(r#""/flag""#.into()), format!("{by_flag}:1"))), "{all:?}");
    let all = printed(None, &[("REJOIN_CONFIG", &by_variable)], &[]);
    assert!(all.contains(&("path".into(), Some(r#""/variable""#.into()), format!("{by_variable}:1"))), "{all:?}");
}

#[test]
fn what_print_config_prints_is_a_file_that_says_the_same() {
    let odd = [
        "--tokens=a \"b\"\\ \u{fc}'#",
        "--allow-host=a",
        "--allow-host=[::1]:80",
        "--log-memory=4096",
        "--",
        "sh",
        "-c",
        "a\n\tb # c",
    ];
    let output = output(bare(&["serve", "--print-config", "--session-ttl=1h 1m"]).args(odd));
    let first = String::from_utf8(output.stdout).expect("text");
    let (_folder, path) = file(&first);
    let again = printed(Some(&path), &[], &[]);
    let values =
        |all: Vec<(String, Option<String>, String)>| all.into_iter().map(|(name, value, _)| (name, value)).collect::<Vec<_>>();
    assert_eq!(values(again.clone()), values(read(&first)));
    for (line, (name, value, source)) in (2..).zip(again) {
        let expected = if value.is_some() { format!("{path}:{line}") } else { "default".into() };
        assert_eq!(source, expected, "{name}");
    }
}

#[test]
fn print_config_starts_nothing_and_shows_what_is_wrong_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    let output = output(bare(&["serve", "--print-config", "--listen", "0.0.0.0:0", "--key-file"]).arg(&key));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("rejoin: --listen 0.0.0.0:0 "));
    assert!(String::from_utf8_lossy(&output.stdout).contains("listen = \"0.0.0.0:0\""));
    assert!(!key.exists());
}

#[test]
fn a_variable_of_nobody_is_told_and_stops_nothing() {
    let server = Rejoin::start_by(bare(&["serve", "--listen=127.0.0.1:0"]).env("REJOIN_TOKEN", "secret").env("REJOIN_X", "1"));
    assert!(server.logs("REJOIN_TOKEN is no option and has no effect (did you mean REJOIN_TOKENS?)"), "{}", server.log());
    assert!(server.logs("REJOIN_X is no option"), "{}", server.log());
    assert!(!server.log().contains("secret"));
}

#[test]
fn a_server_obeys_its_file() {
    let (_folder, path) = file("listen = \"127.0.0.1:0\"\nretry = \"200ms\"\nmax-sessions = 2\nshards = 1\n");
    let server = Rejoin::start_by(bare(&["serve", "--config", &path]).env("REJOIN_MAX_SESSIONS", "1"));
    let session = Session::begin(server.address, NOVEMBER);
    let retry = session.listen().event().retry.expect("a retry");
    assert!((160..=240).contains(&retry.as_millis()), "{retry:?}");
    let second = ask(server.address, &Request::post(server.address, &initialize(1, NOVEMBER)));
    assert_eq!(second.status(), 503, "the environment goes before the file");
}

fn ids_of_before_a_restart_are_known_by_the_key_file_and_unknown_without_it(on: Flavour) {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    let key = key.to_str().expect("UTF-8");
    let mut before = Rejoin::start(on, &["--key-file", key]);
    assert_eq!(fs::metadata(key).expect("made").permissions().mode() & 0o7777, 0o600);
    let session = Session::begin(before.address, NOVEMBER);
    let cursor = session.listen().event().id.expect("an opening event");
    before.terminate();
    assert!(before.exit_within(PATIENCE).is_some_and(|status| status.success()));
    let after = Rejoin::start(on, &["--key-file", key]);
    expired(&ask(after.address, &session.get()), "restarted");
    expired(&ask(after.address, &session.get_after(&cursor)), "restarted");
    expired(&ask(after.address, &session.delete()), "restarted");
    let forgetful = Rejoin::start(on, &[]);
    expired(&ask(forgetful.address, &session.get()), "unknown");
    expired(&ask(forgetful.address, &session.get_after(&cursor)), "unknown");
}

#[test]
fn a_key_file_that_is_not_right_stops_the_start_with_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    let refused = |text: &str, mode: u32, why: &str| {
        fs::write(&key, text).expect("written");
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("permitted");
        let output = output(bare(&["serve", "--listen=127.0.0.1:0", "--key-file"]).arg(&key));
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).expect("text");
        let told: Vec<_> = said.lines().filter(|line| line.starts_with("rejoin: --key-file ")).collect();
        assert!(told.len() == 1 && told[0].contains(why) && !said.contains("0123456789"), "{said}");
        assert_eq!(fs::read_to_string(&key).expect("there"), text, "it stays as it was");
    };
    refused("rejoin-key-1 0123456789abcdef0123456789abcdef\n", 0o640, "chmod 600 ");
    refused("rejoin-key-1 0123456789abcdef\n", 0o600, "is too short");
    refused("0123456789abcdef0123456789abcdef\n", 0o600, "does not begin with");
}

#[test]
fn the_log_is_json_line_by_line_where_it_is_asked_for() {
    let mut server = Rejoin::start(Flavour::PLAIN, &["--log-format", "json"]);
    Session::begin(server.address, NOVEMBER);
    server.terminate();
    server.exit_within(PATIENCE).expect("it ends");
    assert!(server.logs("\"ended\""), "{}", server.log());
    for line in server.log().lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "message", "target"] {
            assert!(event[field].is_string(), "no {field}: {line}");
        }
    }
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    assert!(server.logs("driver=epoll"), "{}", server.log());
    assert!(!server.log().contains('\u{1b}'));
}

#[test]
fn a_wrong_filter_of_the_log_is_told() {
    let output = output(bare(&["serve", "--listen=127.0.0.1:0"]).env("RUST_LOG", "a=b=c"));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("rejoin: environment RUST_LOG: "));
}

#[test]
fn the_version_names_commit_drivers_and_revisions() {
    let output = output(&mut bare(&["--version"]));
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<_> = said.lines().collect();
    let commit =
        lines[0].strip_prefix(concat!("rejoin ", env!("CARGO_PKG_VERSION"), " (commit ")).and_then(|rest| rest.strip_suffix(')'));
    let commit = commit.unwrap_or_else(|| panic!("{said}"));
    assert!(commit == "unknown" || commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{said}");
    let uring_works = io_uring::IoUring::new(2).is_ok_and(|ring| ring.submit().is_ok());
    assert_eq!(lines[1].contains("works here"), uring_works, "{said}");
    assert!(lines[1].starts_with("drivers: epoll; io_uring"), "{said}");
    assert_eq!(lines[2], "MCP revisions: 2024-11-05 (of stdio servers), 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28");
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_shell_completes_options_by_what_is_printed_for_it() {
    let output = output(&mut bare(&["completions", "bash"]));
    assert!(output.status.success() && output.stderr.is_empty());
    let (_folder, path) = file(&String::from_utf8(output.stdout).expect("text"));
    let script = r#"source "$0" && COMP_WORDS=(rejoin serve --session-) COMP_CWORD=2 && _rejoin rejoin --session- serve && echo "${COMPREPLY[@]}""#;
    let completed = self::output(Command::new("bash").args(["-c", script, &path]));
    assert_eq!(
        String::from_utf8_lossy(&completed.stdout).trim(),
        "--session-ttl",
        "{}",
        String::from_utf8_lossy(&completed.stderr)
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for arguments in [&["completions", "zsh"][..], &["man", "serve"], &["serve", "--print-config"]] {
        let mut command = bare(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_page_for_man_names_the_commands_and_their_options() {
    let page = |arguments: &[&str]| String::from_utf8(output(&mut bare(arguments)).stdout).expect("text").replace("\\-", "-");
    assert!(page(&["man"]).contains("rejoin-serve(1)"));
    let serve = page(&["man", "serve"]);
    assert!(options().iter().filter_map(Arg::get_long).all(|long| serve.contains(&format!("--{long}"))), "{serve}");
    refused(&mut bare(&["man", "nothing"]), "no command `nothing`", "");
}

/// The rows of the table of options in the page for operators: name and default.
fn rows_of(page: &str) -> Vec<(String, String)> {
    let table =
        page.lines().skip_while(|line| !line.starts_with("| option | default |")).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect::<Vec<_>>();
    table.skip(2).map(cells).map(|cells| (cells[1].clone(), cells[2].clone())).collect()
}

#[test]
fn the_page_for_operators_has_every_option_with_its_default_and_no_other() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    let page = fs::read_to_string(page).expect("the page");
    let rows = rows_of(page.split("\n## ").find(|section| section.starts_with("Configuration")).expect("the section"));
    let expected: Vec<_> = options()
        .iter()
        .map(|option| {
            let default = option.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
            (name(option), default.unwrap_or_default())
        })
        .collect();
    let names: BTreeSet<_> = rows.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, expected.iter().map(|(name, _)| name.clone()).collect(), "the options in docs/operations.md");
    assert_eq!(names.len(), rows.len(), "an option stands there twice");
    for (name, default) in expected {
        let (_, told) = rows.iter().find(|(told, _)| *told == name).expect("compared above");
        let none = ["", "not set", "one a core"].contains(&told.as_str());
        assert!(*told == default || default.is_empty() && none, "{name} has the default {default}, and the page says {told}");
    }
}

#[test]
fn a_start_with_a_key_waits_for_nothing() {
    // A pipe in the key file's place must not hold the start.
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().expect("mkfifo").success());
    let mut child =
        bare(&["serve", "--listen=127.0.0.1:0", "--key-file"]).arg(&pipe).stderr(Stdio::piped()).spawn().expect("it runs");
    let began = std::time::Instant::now();
    while child.try_wait().expect("waited").is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().expect("killed");
            panic!("it waits");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = String::from_utf8(child.wait_with_output().expect("ended").stderr).expect("text");
    assert!(said.contains("is not a regular file"), "{said}");
}
