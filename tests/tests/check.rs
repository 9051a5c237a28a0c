//! `rejoin check`: finds nothing to blame in rejoin and leaves nothing untested, names what fakes do wrong, and says in one line why it cannot
//! run.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;

use rejoin_tests::fakes::{Fake, Fault};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::{Rejoin, binary};
use serde_json::Value;

on_every_server!(rejoin_passes_every_case_and_none_is_untested);

/// Runs a check to its end.
fn check(options: &[&str]) -> Output {
    Command::new(binary()).arg("check").args(options).stdin(Stdio::null()).output().expect("the command runs")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A run's JSON, which must have this exit code.
#[track_caller]
fn results(options: &[&str], code: i32) -> Value {
    let output = check(&[&["--format", "json"], options].concat());
    assert_eq!(output.status.code(), Some(code), "{options:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&output)))
}

/// The names of the cases with this verdict.
fn with(results: &Value, verdict: &str) -> Vec<String> {
    let cases = results["cases"].as_array().expect("cases").iter();
    cases.filter(|case| case["verdict"] == verdict).map(|case| case["name"].as_str().expect("a name").to_owned()).collect()
}

/// A server with short times, of two principals, that a shell command restarts at the same port. Ended with the test, by its own number.
struct Restartable {
    folder: PathBuf,
    command: String,
    url: String,
}

impl Restartable {
    fn start(on: Flavour) -> Self {
        let name = format!("rejoin-check-{}-{}-{}", std::process::id(), on.driver, on.shards);
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("tokens"), "alice one\nbob two\n").expect("a file");
        let port = Rejoin::start(Flavour::PLAIN, &[]).address.port();
        let script = format!(
            "cd {folder}\n\
             if [ -f pid ]; then kill \"$(cat pid)\"; while kill -0 \"$(cat pid)\" 2>/dev/null; do sleep 0.02; done; fi\n\
             rm -f out\n\
             {binary} serve --listen 127.0.0.1:{port} --driver {driver} --shards {shards} --drain 200ms --tokens tokens \
             --session-ttl 2s --stream-events 64 >out 2>>log </dev/null &\n\
             echo $! >pid\n\
             for _ in $(seq 500); do grep -q listening out 2>/dev/null && exit 0; sleep 0.02; done\n\
             exit 1\n",
            folder = folder.display(),
            binary = binary().display(),
            driver = on.driver,
            shards = on.shards,
        );
        let file = folder.join("restart");
        fs::write(&file, script).expect("a script");
        let started = Command::new("sh").arg(&file).status().expect("a shell");
        assert!(started.success(), "{}", fs::read_to_string(folder.join("log")).unwrap_or_default());
        Self { folder, command: format!("sh {}", file.display()), url: format!("http://127.0.0.1:{port}/mcp") }
    }
}

impl Drop for Restartable {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.folder.join("pid")) {
            // It is a server of this test's own: its number was written by whoever started it.
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn rejoin_passes_every_case_and_none_is_untested(on: Flavour) {
    let server = Restartable::start(on);
    let known = ["--token", "one", "--other-token", "two", "--restart-command", &server.command, "--expire-after", "4s"];
    // A machine with other work to do keeps a case waiting; none of them waits for that to pass.
    let results = results(&[&known[..], &["--patience", "15s", &server.url]].concat(), 0);
    for verdict in ["breaks-continuity", "violates-mcp", "unclear", "untested"] {
        let found: Vec<_> =
            results["cases"].as_array().expect("cases").iter().filter(|case| case["verdict"] == verdict).collect();
        assert!(found.is_empty(), "{verdict}: {found:#?}");
    }
    assert_eq!(results["passed"], true);
    assert!(with(&results, "pass").len() >= 60, "{results}");
}

#[test]
fn what_is_not_given_is_untested_with_its_reason_and_fails_nothing() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let url = format!("http://{}/mcp", server.address);
    let results =
        results(&["--case", "session-expired", "--case", "restart", "--case", "unauthorized", "--case", "evicted", &url], 0);
    assert_eq!(with(&results, "untested").len(), 5, "{results}");
    for case in results["cases"].as_array().expect("cases") {
        assert!(case["untested"].as_str().is_some_and(|why| why.contains("--")), "says what to give: {case}");
    }
}

// ---- fakes --------------------------------------------------------------------------------------------------------------------------

const TICKER: &str = r#"{"count": "$events", "interval_ms": "$every_ms", "key": "$key"}"#;

/// Asserts that a fake fails, and that what it does is found at this cost by one of the cases about it.
#[track_caller]
fn is_caught(fault: Fault, cost: &str) {
    let fake = Fake::start(fault);
    let url = format!("http://{}/mcp", fake.address);
    let cases = ["--case", "uncut", "--case", "cut-while", "--case", "result-while", "--case", "cursor-garbage"];
    let options = [&["--tool", "ticker", "--args", TICKER, "--patience", "1s"], &cases[..], &[&url]].concat();
    let results = results(&options, 1);
    let findings =
        results["cases"].as_array().expect("cases").iter().flat_map(|case| case["findings"].as_array().expect("findings"));
    let costs: Vec<_> = findings.filter_map(|finding| finding["cost"].as_str()).collect();
    assert!(costs.contains(&cost), "{fault:?}: {costs:?} in {results}");
}

#[test]
fn a_gap_is_named_by_its_cost() {
    is_caught(Fault::SilentGap, "gap");
}

#[test]
fn an_event_twice_is_named_by_its_cost() {
    is_caught(Fault::Duplicate, "duplicate");
}

#[test]
fn events_out_of_order_are_a_gap() {
    is_caught(Fault::Reorder, "gap");
}

#[test]
fn another_sessions_event_is_a_leak() {
    is_caught(Fault::ForeignEvent, "leak");
}

#[test]
fn a_result_that_never_comes_is_a_hang() {
    is_caught(Fault::EmptyEnds, "hang");
}

// ---- what cannot run, and how it is said -------------------------------------------------------------------------------------------

/// Asserts exit 2 and one line with this in it.
#[track_caller]
fn cannot_run(options: &[&str], why: &str) {
    let output = check(options);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(error.lines().count() == 1 && error.contains(why), "{error}");
}

/// A listener that answers every connection with these bytes.
fn canned(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket.write_all(bytes);
        }
    });
    url
}

#[test]
fn what_is_no_mcp_server_is_said_in_one_line() {
    cannot_run(&[&canned(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")], "does not speak MCP");
    cannot_run(&[&canned(b"SSH-2.0-OpenSSH_9\r\n\r\n")], "does not speak MCP");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    cannot_run(&[&format!("http://{free}/mcp")], "cannot be reached");
    cannot_run(&["http://192.0.2.7/mcp"], "--i-own-this-target");
    cannot_run(&["http://127.0.0.1/mcp", "--case", "no-such-case"], "no-such-case");
}

#[test]
fn a_server_that_wants_to_know_who_calls_is_said_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, "alice one\n").expect("a file");
    let server = Rejoin::start(Flavour::PLAIN, &["--tokens", tokens.to_str().expect("text")]);
    cannot_run(&[&format!("http://{}/mcp", server.address)], "--token");
}

#[test]
fn a_server_that_dies_half_way_is_said_to_have_and_the_report_is_written() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let url = format!("http://{}/mcp", server.address);
    let kill = format!("kill -9 {}", server.id());
    let output = check(&["--format", "json", "--restart-command", &kill, &url, "--case", "restart", "--case", "uncut"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("gone after the case restart-session"), "{}", said(&output));
    let results: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!((results["passed"].as_bool(), with(&results, "pass")), (Some(false), vec!["uncut".to_owned()]));
}

#[test]
fn a_case_is_explained_by_what_was_said_without_secrets() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let url = format!("http://{}/mcp", server.address);
    let output = check(&["--explain", "cursor-empty", "--header", "X-Secret: abracadabra", &url]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for word in ["> GET /mcp HTTP/1.1", "Last-Event-ID: ", "< HTTP/1.1 400", "invalid_cursor", "pass"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    assert!(!text.contains("abracadabra"), "{text}");
}

#[test]
fn a_run_has_no_more_requests_than_it_may_and_says_so() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let url = format!("http://{}/mcp", server.address);
    let results = results(&["--max-requests", "20", "--case", "cursor", &url], 0);
    assert!(!with(&results, "untested").is_empty());
    assert!(results["cases"].to_string().contains("--max-requests"), "{results}");
}

#[test]
fn the_list_names_every_case_that_a_run_has() {
    let output = check(&["--list"]);
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0));
    let documented = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/check.md")).expect("the page");
    let names: Vec<_> =
        list.lines().filter(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 60, "{list}");
    for name in names {
        assert!(documented.contains(&format!("| `{name}` |")), "docs/check.md has no row for {name}");
    }
}
