//! The command as a process: its first line, its signals, its exit codes, and a shortage of descriptors.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const DRIVERS: [&str; 2] = ["epoll", "auto"];

/// A running `rejoin serve`, killed if its test fails.
struct Served {
    child: Child,
    address: SocketAddr,
}

/// What begins with `REJOIN_` is a setting to the command, and something else to the scripts that run tests.
fn without_our_variables(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"REJOIN_")) {
        command.env_remove(name);
    }
    command
}

/// Runs the command by a shell line in which `$0` is the binary.
fn serve(line: &str) -> Served {
    let mut child = without_our_variables(Command::new("sh"))
        .args(["-c", line, env!("CARGO_BIN_EXE_rejoin")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut first).expect("a line");
    let url = first.strip_prefix("rejoin listening on http://").expect("the ready line");
    let address = url.strip_suffix("/mcp\n").and_then(|address| address.parse().ok()).expect("an address");
    Served { child, address }
}

impl Served {
    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(kill.expect("kill").success());
    }

    fn ended_within(&mut self, time: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                return status;
            }
            assert!(began.elapsed() < time, "still running after {time:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(stream)
    }

    /// What one request is answered.
    fn ask(&self, request: &str) -> std::io::Result<String> {
        let mut stream = self.connect()?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// User and system time of the process, in clock ticks (hundredths of a second).
    fn cpu(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a process");
        let after_name = stat.rsplit_once(") ").expect("a name").1;
        let field = |at: usize| after_name.split(' ').nth(at).and_then(|ticks| ticks.parse::<u64>().ok()).expect("ticks");
        field(11) + field(12)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ended already, in a test that passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(stderr: Option<ChildStderr>) -> String {
    let mut text = String::new();
    stderr.expect("piped").read_to_string(&mut text).expect("text");
    text
}

/// Refused at once, whatever the session: enough to see that somebody answers.
const PROBE: &str = "GET /elsewhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

fn post(session: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{session}Content-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_signal_drains_it_and_it_exits_with_zero() {
    for driver in DRIVERS {
        for signal in ["TERM", "INT"] {
            let mut served = serve(&format!("exec \"$0\" serve --listen 127.0.0.1:0 --driver {driver}"));
            assert!(served.ask(PROBE).expect("an answer").starts_with("HTTP/1.1 404 "));
            served.signal(signal);
            assert!(served.ended_within(Duration::from_secs(5)).success());
        }
    }
}

#[test]
fn a_call_under_way_ends_at_the_drain_time_and_its_outcome_is_said_to_be_unknown() {
    for driver in DRIVERS {
        let mut served = serve(&format!("exec \"$0\" serve --listen 127.0.0.1:0 --driver {driver} --drain 300ms"));
        let mut stream = served.connect().expect("connect");
        stream.write_all(post("", INITIALIZE).as_bytes()).expect("write");
        let mut head = [0; 4096];
        let read = stream.read(&mut head).expect("read");
        let head = String::from_utf8_lossy(&head[..read]).into_owned();
        let session = head.lines().find(|line| line.starts_with("Mcp-Session-Id: ")).expect("a session");
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ticker","arguments":{"count":1000,"interval_ms":20}}}"#;
        stream.write_all(post(&format!("{session}\r\n"), call).as_bytes()).expect("write");
        thread::sleep(Duration::from_millis(150));
        served.signal("TERM");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("a clean end");
        assert!(answer.contains("\"tick\":1") && answer.contains("-32010"), "{answer}");
        assert!(answer.contains("\r\n0\r\n\r\n"), "the stream ends cleanly: {answer}");
        drop(stream);
        assert!(served.ended_within(Duration::from_secs(5)).success());
    }
}

#[test]
fn a_second_signal_exits_at_once() {
    let mut served = serve("exec \"$0\" serve --listen 127.0.0.1:0 --drain 1h");
    let mut stream = served.connect().expect("connect");
    // A request under way holds the drain.
    stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n").expect("write");
    thread::sleep(Duration::from_millis(100));
    served.signal("TERM");
    thread::sleep(Duration::from_millis(300));
    assert!(served.child.try_wait().expect("a status").is_none());
    served.signal("TERM");
    assert!(!served.ended_within(Duration::from_secs(2)).success());
}

#[test]
fn a_port_in_use_or_a_bad_flag_is_one_line_and_a_failure() {
    let served = serve("exec \"$0\" serve --listen 127.0.0.1:0");
    let taken = served.address.to_string();
    let run = |arguments: &[&str]| {
        without_our_variables(Command::new(env!("CARGO_BIN_EXE_rejoin"))).args(arguments).output().expect("run")
    };
    for (arguments, said) in [
        (vec!["serve", "--listen", &taken], "in use"),
        (vec!["serve", "--listen", "nowhere"], "--listen"),
        (vec!["serve", "--drain", "soon"], "--drain"),
        (vec!["serve", "--no-such-flag"], "--no-such-flag"),
        (vec!["serve", "--listen", "127.0.0.1:0", "--allow-host", "a b"], "a b"),
        (vec!["serve", "--listen", "127.0.0.1:0", "--path", "mcp"], "path"),
        (vec!["serve", "--listen", "127.0.0.1:0", "--shards", "0"], "shards"),
    ] {
        let output = run(&arguments);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
        let stderr = String::from_utf8(output.stderr).expect("text");
        let complaints: Vec<_> = stderr.lines().filter(|line| !line.contains(" INFO ")).collect();
        assert!(complaints.len() == 1 && complaints[0].contains(said), "{arguments:?}: {stderr}");
    }
}

#[test]
fn without_descriptors_it_refuses_who_comes_says_so_once_rests_and_recovers() {
    for driver in DRIVERS {
        let mut served = serve(&format!("ulimit -n 60; exec \"$0\" serve --listen 127.0.0.1:0 --shards 1 --driver {driver}"));
        // A head that is not whole keeps its connection for the head's time limit. An error is a refusal that was quick.
        let connect = |_| served.connect().and_then(|mut stream| stream.write_all(b"GET ").map(|()| stream)).ok();
        let held: Vec<_> = (0..100).filter_map(connect).collect();
        thread::sleep(Duration::from_secs(1));
        let is_held = |mut stream: &TcpStream| {
            stream.set_nonblocking(true).expect("an option");
            stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        let served_ones = held.iter().filter(|stream| is_held(stream)).count();
        assert!((20..60).contains(&served_ones), "{served_ones} of 100 are served, the rest is refused");
        // At rest although somebody is always waiting: a twentieth of a core at most.
        let (before, began) = (served.cpu(), Instant::now());
        let waiting: Vec<_> = (0..10).filter_map(connect).collect();
        thread::sleep(Duration::from_secs(1));
        let (ticks, elapsed) = (served.cpu() - before, began.elapsed());
        assert!(ticks as f64 / 100.0 < elapsed.as_secs_f64() / 20.0, "{ticks} ticks in {elapsed:?}");
        drop((held, waiting));
        let recovered = Instant::now();
        while served.ask(PROBE).map_or(true, |answer| answer.is_empty()) {
            assert!(recovered.elapsed() < Duration::from_secs(5), "connections are accepted again");
            thread::sleep(Duration::from_millis(50));
        }
        served.signal("TERM");
        assert!(served.ended_within(Duration::from_secs(5)).success());
        let log = rest(served.child.stderr.take());
        assert_eq!(log.matches("no descriptors left").count(), 1, "{log}");
    }
}

#[test]
fn a_handoff_without_descriptors_does_not_stop_a_shard() {
    for driver in DRIVERS {
        let mut served = serve(&format!("ulimit -n 70; exec \"$0\" serve --listen 127.0.0.1:0 --shards 2 --driver {driver}"));
        let mut idle: Vec<TcpStream> = Vec::new();
        // Many `initialize` at once, of which half move: some cannot while descriptors are short.
        for _ in 0..60 {
            // An error is a refusal that was quick.
            idle.extend(
                served.connect().and_then(|mut stream| stream.write_all(post("", INITIALIZE).as_bytes()).map(|()| stream)),
            );
        }
        thread::sleep(Duration::from_millis(300));
        drop(idle);
        let began = Instant::now();
        while served.ask(PROBE).map_or(true, |answer| answer.is_empty()) {
            assert!(began.elapsed() < Duration::from_secs(5), "connections are accepted again");
            thread::sleep(Duration::from_millis(50));
        }
        served.signal("TERM");
        assert!(served.ended_within(Duration::from_secs(5)).success());
    }
}
