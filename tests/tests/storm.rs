//! `rejoin storm`: its scripts find nothing to blame in rejoin, and every forbidden outcome in servers that have it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rejoin_tests::fakes::{Fake, Fault};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::server::{Rejoin, binary};
use rejoin_tests::tls::TlsFront;
use serde_json::{Value, json};

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/storms/small.toml");

/// Runs a storm to its end.
fn storm(options: &[&str]) -> Output {
    Command::new(binary()).arg("storm").args(options).stdin(Stdio::null()).output().expect("the command runs")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Asserts a run without a violation, which saw what its script states.
#[track_caller]
fn passes(options: &[&str]) -> String {
    let output = storm(options);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{options:?}: {said}");
    said
}

// ---- rejoin itself, under every script ----------------------------------------------------------------------------------------------

/// A shipped script, made small, against a server with these options.
fn weathers(shards: u8, script: &str, serve: &[&str], options: &[&str]) {
    let driver = if shards == 1 { "epoll" } else { "auto" };
    let server = Rejoin::start(Flavour { driver, shards }, serve);
    let url = format!("http://{}/mcp", server.address);
    passes(&[&["--script", script, "--seed", "7", &url], options].concat());
}

macro_rules! on_1_and_2_shards {
    ($($name:ident: $script:literal, $serve:expr, $options:expr;)+) => { $(
        mod $name {
            #[test]
            fn on_1_shard() {
                super::weathers(1, $script, &$serve, &$options);
            }

            #[test]
            fn on_2_shards() {
                super::weathers(2, $script, &$serve, &$options);
            }
        }
    )+ };
}

on_1_and_2_shards! {
    herd: "herd", [], ["--sessions", "50", "--time-scale", "0.15"];
    partition: "partition", [], ["--sessions", "50", "--time-scale", "0.15"];
    flap: "flap", [], ["--sessions", "50", "--time-scale", "0.15"];
    forgery: "forgery", [], ["--sessions", "50"];
    slow_readers: "slow-readers", ["--stream-events", "32"], ["--sessions", "6"];
    lapse: "lapse", ["--event-ttl", "1s", "--session-ttl", "4s"], ["--sessions", "30"];
    soak: "soak", [], ["--sessions", "20", "--time-scale", "0.01"];
}

/// A server that a shell command restarts, at the same port; it is ended with the test, by its own number.
struct Restartable {
    folder: PathBuf,
    command: String,
    url: String,
}

impl Restartable {
    fn start(signal: &str, shards: u8) -> Self {
        let folder = std::env::temp_dir().join(format!("rejoin-storm-{}-{signal}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let port = Rejoin::start(Flavour::PLAIN, &[]).address.port();
        let script = format!(
            "cd {folder}\n\
             if [ -f pid ]; then kill -{signal} \"$(cat pid)\"; while kill -0 \"$(cat pid)\" 2>/dev/null; do sleep 0.02; done; fi\n\
             rm -f out\n\
             {binary} serve --listen 127.0.0.1:{port} --shards {shards} --drain 200ms >out 2>>log </dev/null &\n\
             echo $! >pid\n\
             for _ in $(seq 500); do grep -q listening out 2>/dev/null && exit 0; sleep 0.02; done\n\
             exit 1\n",
            folder = folder.display(),
            binary = binary().display(),
        );
        let file = folder.join("restart");
        fs::write(&file, script).expect("a script");
        let command = format!("sh {}", file.display());
        let started = Command::new("sh").arg(&file).status().expect("a shell");
        assert!(started.success(), "{}", fs::read_to_string(folder.join("log")).unwrap_or_default());
        Self { folder, command, url: format!("http://127.0.0.1:{port}/mcp") }
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

fn weathers_restarts(signal: &str, shards: u8) -> String {
    let server = Restartable::start(signal, shards);
    let options =
        ["--script", "rolling-restart", "--seed", "7", "--sessions", "40", "--restart-command", &server.command, &server.url];
    passes(&options)
}

#[test]
fn rolling_restart_on_1_shard() {
    weathers_restarts("TERM", 1);
}

#[test]
fn rolling_restart_on_2_shards_without_a_word_from_the_server() {
    weathers_restarts("KILL", 2);
}

// ---- servers of our own making ------------------------------------------------------------------------------------------------------

fn against(fault: Fault) -> Output {
    let fake = Fake::start(fault);
    storm(&["--script", SMALL, "--seed", "3", "--threads", "1", &format!("http://{}/mcp", fake.address)])
}

/// Asserts that a run fails over this outcome, and shows what it saw.
#[track_caller]
fn is_caught(fault: Fault, outcome: &str) {
    let output = against(fault);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(outcome), "no {outcome} in {said}");
    assert!(said.contains("GET Last-Event-ID: session-") || said.contains("POST tools/call"), "no transcript in {said}");
}

#[test]
fn a_correct_server_raises_no_alarm() {
    for fault in [Fault::None, Fault::Forgetful] {
        let output = against(fault);
        assert_eq!(output.status.code(), Some(0), "{fault:?}: {}", said(&output));
    }
}

#[test]
fn a_silent_gap_is_caught() {
    is_caught(Fault::SilentGap, "silent_gap");
}

#[test]
fn a_duplicate_is_caught() {
    is_caught(Fault::Duplicate, "duplicate");
}

#[test]
fn a_second_result_is_caught() {
    is_caught(Fault::SecondResult, "duplicate");
}

#[test]
fn a_reorder_is_caught() {
    is_caught(Fault::Reorder, "reorder");
}

#[test]
fn ids_that_begin_anew_are_caught() {
    is_caught(Fault::RestartedIds, "restarted_ids");
}

#[test]
fn a_foreign_event_is_caught() {
    is_caught(Fault::ForeignEvent, "foreign_event");
}

#[test]
fn a_double_execution_is_caught() {
    is_caught(Fault::DoubleExecution, "double_execution");
}

#[test]
fn a_lost_result_is_caught() {
    is_caught(Fault::LostResult, "lost_result");
    is_caught(Fault::EmptyEnds, "lost_result");
}

#[test]
fn a_hang_is_caught() {
    is_caught(Fault::Hang, "hang");
}

#[test]
fn a_server_that_takes_any_cursor_is_caught() {
    is_caught(Fault::TakesAnyCursor, "bad_cursor_taken");
}

#[test]
fn a_refusal_of_the_client_that_nothing_else_explains_is_told() {
    is_caught(Fault::SkipsPlaces, "continuity_violated");
}

// ---- TLS ----------------------------------------------------------------------------------------------------------------------------

#[test]
fn a_server_behind_tls_is_stormed_by_those_who_trust_its_authority() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let front = TlsFront::start(server.address);
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(front.authority.as_bytes()).expect("written");
    let (ca, url) = (file.path().to_str().expect("UTF-8"), format!("https://{}/mcp", front.address));
    passes(&["--script", SMALL, "--seed", "3", "--ca", ca, &url]);

    let output = storm(&["--script", SMALL, "--seed", "3", &url]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("connect_failed") && said.contains("UnknownIssuer"), "{said}");

    is_refused(&["--script", SMALL, "--ca", SMALL, &url], "no certificates to trust");
    is_refused(&["--script", SMALL, "--ca", "/no/such/file", &url], "/no/such/file");
}

// ---- the command line ---------------------------------------------------------------------------------------------------------------

/// Asserts a run that was not made, in one line that says why.
#[track_caller]
fn is_refused(options: &[&str], why: &str) {
    let output = storm(options);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
    assert!(said.contains(why) && !said.contains("panicked"), "{options:?} says {said}");
}

#[test]
fn a_target_on_another_machine_is_refused() {
    let began = Instant::now();
    is_refused(&["--script", "herd", "http://192.0.2.1:9/mcp"], "--i-own-this-target");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_cannot_run_says_why() {
    let url = "http://127.0.0.1:9/mcp";
    is_refused(&["--script", "no-such-storm", url], "no-such-storm");
    is_refused(&["--script", "rolling-restart", url], "--restart-command");
    is_refused(&["--script", "herd", "--sessions", "900000", url], "--sessions");
    is_refused(&["--script", "herd", "--args", "[1]", "--tool", "t", url], "JSON object");
    is_refused(&["--script", "herd"], "URL");
    is_refused(&[url], "--script");
}

#[test]
fn the_library_is_listed_and_is_the_folder() {
    let output = storm(&["--list"]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/cli/storms");
    for file in fs::read_dir(folder).expect("the folder") {
        let name = file.expect("a file").path().file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(listed.lines().any(|line| line.starts_with(&name)), "no {name} in {listed}");
    }
}

/// The small script with a change, as a file that is gone with this value.
struct Changed(PathBuf);

impl Changed {
    fn new(name: &str, from: &str, to: &str) -> Self {
        let text = fs::read_to_string(SMALL).expect("the small script");
        assert!(text.contains(from), "no {from} in {SMALL}");
        let file = std::env::temp_dir().join(format!("rejoin-storm-{}-{name}.toml", std::process::id()));
        fs::write(&file, text.replace(from, to)).expect("a script");
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_bad_script_names_its_line() {
    let bad = Changed::new("bad", "how = \"mixed\"", "how = \"gently\"");
    let text = fs::read_to_string(&bad.0).expect("the script");
    let line = text.lines().position(|line| line.contains("gently")).expect("the line") + 1;
    is_refused(&["--script", bad.path(), "http://127.0.0.1:9/mcp"], &format!("{}:{line}:", bad.path()));
}

#[test]
fn too_little_of_what_a_script_states_fails_the_run() {
    let much = Changed::new("least", "cuts = 50", "cuts = 50000");
    let fake = Fake::start(Fault::None);
    let output = storm(&["--script", much.path(), &format!("http://{}/mcp", fake.address)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cuts") && said.contains("50000"), "{said}");
}

#[test]
fn too_much_of_what_a_script_states_fails_the_run() {
    let little = Changed::new("most", "[most]\nlost = 0", "[most]\nanswers = 1");
    let fake = Fake::start(Fault::None);
    let output = storm(&["--script", little.path(), &format!("http://{}/mcp", fake.address)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("too many answers"), "{said}");
}

#[test]
fn a_run_stops_at_its_bound_of_requests() {
    let bounded = Changed::new("bound", "settle = \"4s\"", "settle = \"4s\"\nrequests = 40");
    let fake = Fake::start(Fault::None);
    let output = storm(&["--script", bounded.path(), &format!("http://{}/mcp", fake.address)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("at most 40 requests") && said.contains("bound of 40 requests was reached"), "{said}");
    assert_eq!(fake.requests(), 40);
}

#[test]
fn calls_that_only_needed_longer_are_no_violation_and_no_pass() {
    let short = Changed::new("short", "settle = \"4s\"", "settle = \"100ms\"");
    let long = fs::read_to_string(&short.0).expect("the script").replace("ticks = 8", "ticks = 400");
    fs::write(&short.0, long).expect("a script");
    let fake = Fake::start(Fault::None);
    let output = storm(&["--script", short.path(), &format!("http://{}/mcp", fake.address)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("8 calls were still going on") && !said.contains("violation"), "{said}");
}

#[test]
fn too_few_descriptors_say_how_many_to_ask_for() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 64 && exec \"$0\" storm --script herd http://127.0.0.1:9/mcp"]).arg(binary());
    let output = shell.stdin(Stdio::null()).output().expect("a shell");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("10064") && said.contains("ulimit"), "{said}");
}

#[test]
fn any_tool_of_any_server_can_be_stormed() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let url = format!("http://{}/mcp", server.address);
    let options = ["--script", SMALL, "--tool", "echo", "--args", r#"{"text":"hello"}"#, "--format", "json", "--quiet", &url];
    let output = storm(&options);
    let results: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
    assert_eq!(results["violations_by_name"], json!({}), "{results}");
    assert!(results["latencies"]["call"].is_object() && results["totals"]["calls"].as_u64() > Some(100), "{results}");
}

#[test]
fn one_seed_cuts_the_same_connections() {
    let fake = Fake::start(Fault::None);
    let url = format!("http://{}/mcp", fake.address);
    let cuts = |seed: &str| {
        let output = storm(&["--script", SMALL, "--seed", seed, "--format", "json", "--quiet", &url]);
        let results: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
        assert_eq!(results["seed"].to_string(), seed);
        results["totals"]["cuts"].as_u64().expect("a number")
    };
    // A cut between two calls of a connection that is closed just then is none.
    let (one, again) = (cuts("11"), cuts("11"));
    assert!(one.abs_diff(again) <= 6 && one > 50, "{one} and {again}");
}

#[test]
fn a_server_that_is_not_there_is_no_pass() {
    let output = storm(&["--script", SMALL, "http://127.0.0.1:9/mcp"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}
