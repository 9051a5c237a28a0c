//! Sessions come and go by the hundreds, and a server's process dies: nothing stays behind, and nobody waits in vain.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rejoin_tests::check::{error, expired, outcome_unknown, refused, soon};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::sdk::installed;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{NOVEMBER, Session, call, call_with_token, initialize, messages_of, request, text_of, ticks_in};
use rejoin_tests::wire::{Request, ask};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::public::{everything, serving};

/// A server in a line of shell: quick to start. Our first message to a child has the id 0.
const LIGHT: &str = r#"read -r line
echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"t","version":"1"}}}'
cat > /dev/null"#;

/// Memory that five hundred sessions may leave behind: one and a half KiB each. Reason: the allocator keeps some of what threads freed,
/// 200 KiB where measured.
const LEFT_KIB: u64 = 768;

/// Every process that has this variable in its environment, whoever its parent is now. Zombies have none.
fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("REJOIN_TEST_MARK={mark}");
    let processes = fs::read_dir("/proc").expect("a proc").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number: &u32| {
            let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
        })
        .collect()
}

/// A mark that no other process has.
fn fresh_mark(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// A server whose children are marked.
fn start(name: &str, most: usize) -> (Rejoin, String) {
    let mark = fresh_mark(name);
    let command = format!("export REJOIN_TEST_MARK={mark}; exec sh -c \"$0\"");
    let most = most.to_string();
    let server = Rejoin::start(Flavour::PLAIN, &["--max-children", &most, "--", "sh", "-c", &command, LIGHT]);
    (server, mark)
}

/// Begins a session and deletes it; waits for a place where there is none.
fn come_and_go(server: &Rejoin) {
    let begin = Request::post(server.address, &initialize(1, NOVEMBER));
    let mut answer = ask(server.address, &begin);
    while answer.status() == 503 {
        thread::sleep(Duration::from_millis(20));
        answer = ask(server.address, &begin);
    }
    let id = answer.head.field("Mcp-Session-Id").expect("a session");
    let delete = Request::new("DELETE", server.address).with("Mcp-Session-Id", id);
    assert_eq!(ask(server.address, &delete).status(), 204);
}

fn many_come_and_go(server: &Rejoin, sessions: usize) {
    let left = AtomicUsize::new(sessions);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while take() {
                    come_and_go(server);
                }
            });
        }
    });
    soon("no child is left", || server.children().is_empty());
}

#[test]
fn five_hundred_sessions_leave_no_process_no_descriptor_and_no_memory() {
    let (server, mark) = start("hundreds", 32);
    // An allocator keeps what it had at the busiest moment, on each thread: as many as come later show it.
    many_come_and_go(&server, 500);
    let (descriptors, memory) = (server.descriptors(), server.resident_kib());
    many_come_and_go(&server, 500);
    soon("no descriptor is left", || server.descriptors() <= descriptors);
    assert_eq!(marked(&mark), [0; 0], "processes are left");
    let grown = server.resident_kib().saturating_sub(memory);
    assert!(grown <= LEFT_KIB, "{memory} KiB before, {grown} KiB more after");
}

#[test]
fn a_storm_of_initialize_stops_at_the_limit() {
    const MOST: usize = 8;
    let (server, mark) = start("storm", MOST);
    let begin = Request::post(server.address, &initialize(1, NOVEMBER));
    let (over, most_seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let answers: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most_seen.fetch_max(server.children().len(), Ordering::Relaxed);
            }
        });
        let storm: Vec<_> = (0..64).map(|_| scope.spawn(|| [0; 4].map(|_| ask(server.address, &begin)))).collect();
        let answers = storm.into_iter().flat_map(|one| one.join().expect("answered")).collect();
        over.store(true, Ordering::Relaxed);
        answers
    });
    let (begun, refusals): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status() == 200);
    assert_eq!((begun.len(), refusals.len()), (MOST, 256 - MOST));
    for refusal in &refusals {
        refused(refusal, 503, "shed");
        assert!(refusal.head.field("Retry-After").is_some(), "{}", refusal.head);
    }
    assert_eq!((most_seen.load(Ordering::Relaxed), server.children().len()), (MOST, MOST));
    for answer in &begun {
        let id = answer.head.field("Mcp-Session-Id").expect("a session");
        let delete = Request::new("DELETE", server.address).with("Mcp-Session-Id", id);
        assert_eq!(ask(server.address, &delete).status(), 204);
    }
    soon("no child is left", || server.children().is_empty());
    assert_eq!(marked(&mark), [0; 0], "processes are left");
    come_and_go(&server);
}

/// The one child of a server.
fn only_child(server: &Rejoin) -> Pid {
    let [child] = server.children()[..] else { panic!("one child: {:?}", server.children()) };
    Pid::from_raw(child.cast_signed()).expect("a process id")
}

/// A call that takes so many tenths of a second, and says so.
fn long(id: u64, tenths: u32) -> Value {
    let arguments = json!({"duration": f64::from(tenths) / 10.0, "steps": tenths});
    call_with_token(id, id, "trigger-long-running-operation", arguments)
}

/// npm's runner is what most people put online: it starts a shell that starts the server, which does not end with its input while it has
/// a timer.
#[test]
fn a_public_server_under_its_runner_ends_with_its_session_whole() {
    let mark = fresh_mark("runner");
    let folder = installed("servers/node");
    let folder = folder.display();
    let command = format!("cd {folder} && export REJOIN_TEST_MARK={mark} && exec npx --no-install mcp-server-everything");
    let server = Rejoin::start(Flavour::PLAIN, &serving(&[], &command));
    let session = Session::begin(server.address, NOVEMBER);
    session.result(&call(1, "toggle-simulated-logging", json!({})));
    let processes = marked(&mark);
    assert!(processes.len() > 1 && server.children().len() == 1, "a runner, and what it runs: {processes:?}");
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    soon("the runner and what it runs are gone", || marked(&mark).is_empty());
    soon("the runner is reaped", || server.children().is_empty());
}

/// The harness's own promise: a gateway that is killed cannot end its children, and this one does not end with its input.
#[test]
fn a_gateway_that_a_test_drops_leaves_no_process() {
    let mark = fresh_mark("dropped");
    let command = format!("export REJOIN_TEST_MARK={mark}; {}", everything());
    let server = Rejoin::start(Flavour::PLAIN, &serving(&[], &command));
    Session::begin(server.address, NOVEMBER).result(&call(1, "toggle-simulated-logging", json!({})));
    assert!(!marked(&mark).is_empty());
    drop(server);
    soon("its child is gone", || marked(&mark).is_empty());
}

/// Stopped, a server neither reads nor says anything: calls wait for it, as many bytes of them as may; the rest is refused at once. It goes
/// on where it was.
#[test]
fn a_public_server_that_stalls_keeps_its_calls_and_harms_no_other() {
    let command = format!("exec {}", everything());
    let server = Rejoin::start(Flavour::PLAIN, &serving(&["--max-body", "128KiB"], &command));
    let session = Session::begin(server.address, NOVEMBER);
    let child = only_child(&server);
    let other = Session::begin(server.address, NOVEMBER);
    let mut stream = session.call(&long(1, 10));
    let begun = stream.until(|block| block.is_message());
    kill_process(child, Signal::STOP).expect("it runs");
    // The pipe takes some, and then two of the largest bodies may wait.
    let echo = |id: u64| call(id, "echo", json!({"message": "x".repeat(100_000)}));
    thread::scope(|scope| {
        let echoed = &|id| {
            scope.spawn({
                let session = &session;
                move || session.tell(&echo(id))
            })
        };
        let mut asked: Vec<_> = (2..12).map(echoed).collect();
        soon("what is too much is refused", || asked.iter().any(|answer| answer.is_finished()));
        assert_eq!(other.result(&request(1, "ping", json!({}))), json!({}), "nobody else waits");
        thread::sleep(Duration::from_millis(300));
        let refusals = asked.extract_if(.., |answer| answer.is_finished()).map(|answer| answer.join().expect("answered"));
        let refusals: Vec<_> = refusals.collect();
        assert!((5..=8).contains(&refusals.len()), "{} of 10 are refused", refusals.len());
        for refusal in &refusals {
            // It is an answer to this call alone: the session is well.
            error(&messages_of(refusal)[0]["error"], "shed");
        }
        kill_process(child, Signal::CONT).expect("it runs");
        for answer in asked {
            let messages = messages_of(&answer.join().expect("answered"));
            assert_eq!(text_of(&messages[0]["result"]).len(), "Echo: ".len() + 100_000);
        }
    });
    let told: Vec<_> = begun.into_iter().chain(stream.rest()).collect();
    assert_eq!(ticks_in(&told), (1..=10).collect::<Vec<_>>());
    assert!(text_of(&told.last().expect("a result").json()["result"]).ends_with("Steps: 10."));
}

/// What is stopped does not hear SIGTERM.
#[test]
fn a_public_server_that_stalls_ends_with_its_session() {
    let command = format!("exec {}", everything());
    let server = Rejoin::start(Flavour::PLAIN, &serving(&["--max-children", "1"], &command));
    let session = Session::begin(server.address, NOVEMBER);
    kill_process(only_child(&server), Signal::STOP).expect("it runs");
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    soon("it is killed", || server.children().is_empty());
    come_and_go(&server);
}

#[test]
fn a_public_server_that_is_killed_ends_its_session_and_no_other() {
    let command = format!("exec {}", everything());
    let server = Rejoin::start(Flavour::PLAIN, &serving(&[], &command));
    let session = Session::begin(server.address, NOVEMBER);
    let child = only_child(&server);
    let other = Session::begin(server.address, NOVEMBER);
    let mut streams = [1, 2].map(|id| session.call(&long(id, 300)));
    for stream in &mut streams {
        stream.until(|block| block.is_message());
    }
    kill_process(child, Signal::KILL).expect("it runs");
    for (stream, id) in streams.iter_mut().zip([1, 2]) {
        outcome_unknown(stream.rest().last().expect("an answer"), id);
    }
    expired(&session.tell(&request(3, "ping", json!({}))), "closed");
    assert_eq!(other.result(&request(4, "ping", json!({}))), json!({}));
    soon("the dead child is reaped", || server.children().len() == 1);
}
