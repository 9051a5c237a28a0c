//! The command line: what it prints, what it takes, and how it says no.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rejoin_tests::check::place;
use rejoin_tests::matrix::Flavour;
use rejoin_tests::server::{Rejoin, command};
use rejoin_tests::session::{NOVEMBER, Session, call, call_with_token, executions, fresh_key, text_of, ticks_in};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// More than an idle server takes to end, on a slow machine.
const LONG: Duration = Duration::from_secs(15);

fn run(options: &[&str]) -> Output {
    command(options).stdin(Stdio::null()).output().expect("the command runs")
}

/// Asserts a failure that says what is wrong, briefly, and nothing on standard output.
fn fails_and_says(options: &[&str], word: &str) {
    let output = run(options);
    assert!(!output.status.success(), "{options:?} was taken");
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(word), "{options:?} says {said:?}");
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{said}");
}

#[test]
fn a_port_in_use_is_one_clear_line() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = run(&["--listen", &address]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = said.lines().filter(|line| line.contains(&address)).collect();
    assert_eq!(errors.len(), 1, "{said}");
    assert!(output.stdout.is_empty());
}

/// Whoever read its log has gone: it serves and ends all the same.
#[test]
fn a_log_that_nobody_reads_is_no_reason_to_stay() {
    for format in ["text", "json"] {
        let piped = Stdio::piped;
        let mut process = command(&["--log-format", format]);
        let mut server = process.stdin(Stdio::null()).stdout(piped()).stderr(piped()).spawn().expect("the command runs");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        drop(server.stderr.take());
        let address = line.split('/').nth(2).and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let result = Session::begin(address, NOVEMBER).result(&call(1, "echo", json!({"text": "x"})));
        assert_eq!(text_of(&result), "x");
        kill_process(Pid::from_child(&server), Signal::TERM).expect("a child that was not waited for can be signalled");
        let deadline = Instant::now() + LONG;
        let ended = loop {
            let ended = server.try_wait().expect("a child can be waited for");
            if ended.is_some() || Instant::now() > deadline {
                break ended;
            }
            sleep(Duration::from_millis(5));
        };
        // Whatever became of it, it is gone afterwards.
        let _ = server.kill();
        let _ = server.wait();
        assert_eq!(ended.and_then(|status| status.code()), Some(0), "{format}: {ended:?}");
    }
}

#[test]
fn a_bad_flag_or_value_is_named() {
    fails_and_says(&["--no-such-flag"], "--no-such-flag");
    fails_and_says(&["--session-ttl", "soon"], "session-ttl");
    fails_and_says(&["--log-memory", "64XB"], "log-memory");
    fails_and_says(&["--finished", "200"], "finished");
    fails_and_says(&["--driver", "kqueue"], "driver");
    fails_and_says(&["--response", "xml"], "response");
    fails_and_says(&["--listen", "nowhere"], "listen");
    fails_and_says(&["--shards", "0"], "shards");
    fails_and_says(&["--path", "mcp"], "path");
}

#[test]
fn help_lists_every_option() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    for option in rejoin_cli::options().get_arguments().filter_map(|option| option.get_long()) {
        assert!(said.contains(&format!("--{option}")), "no {option} in {said}");
    }
}

#[test]
fn durations_and_sizes_read_as_people_write_them() {
    let options = [
        "--session-ttl",
        "30m",
        "--log-memory",
        "64MiB",
        "--event-ttl",
        "5min",
        "--result-ttl",
        "1h",
        "--retry",
        "200ms",
        "--keep-alive",
        "15s",
        "--max-body",
        "4MiB",
        "--drain",
        "10s",
    ];
    let server = Rejoin::start(Flavour::PLAIN, &options);
    let retry = Session::begin(server.address, NOVEMBER).listen().event().retry.expect("a retry");
    assert!((160..=240).contains(&retry.as_millis()), "{retry:?}");
}

#[test]
fn the_driver_is_logged() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    assert!(server.logs("epoll"), "{}", server.log());
}

fn ticker(session: &Session, id: u64, arguments: &Value) -> Vec<rejoin_tests::sse::Block> {
    session.call(&call(id, "ticker", arguments.clone())).rest()
}

#[test]
fn ticker_pads_each_tick_and_counts_executions_by_key() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    let key = fresh_key();
    let arguments = json!({"count": 3, "interval_ms": 1, "payload_bytes": 100, "key": key});
    let blocks = ticker(&session, 1, &arguments);
    for block in &blocks[1..4] {
        let params = block.json()["params"].clone();
        assert_eq!(params["data"]["pad"].as_str().map(str::len), Some(100), "{params}");
    }
    let result = blocks[4].json()["result"].clone();
    let said: Value = serde_json::from_str(text_of(&result)).expect("JSON");
    assert_eq!(said, json!({"ticks": 3, "key": key, "executions": 1}));
    assert_eq!(executions(&ticker(&session, 2, &arguments)[4].json()["result"]), 2);
    let with_token = session.call(&call_with_token(3, "t", "ticker", arguments)).rest();
    assert_eq!(ticks_in(&with_token), [1, 2, 3]);
    let params = &with_token[1].json()["params"];
    assert_eq!((&params["progressToken"], params["total"].as_f64()), (&json!("t"), Some(3.0)), "{params}");
}

#[test]
fn broadcast_says_it_all_before_its_result() {
    let server = Rejoin::start(Flavour::PLAIN, &["--response", "sse"]);
    let session = Session::begin(server.address, NOVEMBER);
    session.call(&call(1, "broadcast", json!({"count": 4, "interval_ms": 20}))).rest();
    let mut listening = session.listen();
    assert_eq!(listening.take(5).len(), 5, "an opening and four messages are there when the result is");
    listening.stays_silent(Duration::from_millis(50));
}

#[test]
fn rotate_answers_before_it_turns() {
    let server = Rejoin::start(Flavour::PLAIN, &["--response", "sse"]);
    let session = Session::begin(server.address, NOVEMBER);
    for life in 1..4 {
        let blocks = session.call(&call(life, "rotate", json!({}))).rest();
        assert!(blocks[1].json()["result"].is_object(), "{blocks:?}");
        assert_eq!(place(blocks[0].cursor()).0, life);
    }
}
