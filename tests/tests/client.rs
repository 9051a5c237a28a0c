//! Our client over sockets, on both runtimes: against `rejoin serve`, and against servers that others wrote, each cut off in the middle.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use rejoin_client::{CallSettings, Client, Events, Loss, Notice, Options, Outcome, StreamKey, Unknown};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::proxy::{Asked, Cut, How, Proxy, Record};
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{executions, fresh_key};
use serde_json::json;

on_every_server!(
    on_tokio_a_call_cut_once_anywhere_has_its_result_and_each_event_once,
    on_monoio_a_call_cut_once_anywhere_has_its_result_and_each_event_once,
    on_tokio_a_call_survives_a_cut_at_every_event,
    on_monoio_a_call_survives_a_cut_at_every_event,
);

/// Ticks of the call under test.
const TICKS: u64 = 20;

const HOWS: [How; 3] = [How::Reset, How::Truncate, How::CleanEnd];

/// Which shell.
#[derive(Clone, Copy, Debug)]
enum Shell {
    Tokio,
    Monoio,
}

impl Shell {
    /// Runs a future on a runtime of this kind.
    fn run<T>(self, work: impl Future<Output = T>) -> T {
        match self {
            Self::Tokio => tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work),
            Self::Monoio => {
                let runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build();
                runtime.expect("a runtime").block_on(work)
            }
        }
    }

    async fn connect(self, url: &str) -> (Client, Events) {
        self.connect_with(url, |_| {}).await
    }

    async fn connect_with(self, url: &str, change: impl FnOnce(&mut Options)) -> (Client, Events) {
        let mut options = Options::default();
        change(&mut options);
        let connected = match self {
            Self::Tokio => rejoin_client::tokio::connect(url, options).await,
            Self::Monoio => rejoin_client::monoio::connect(url, options).await,
        };
        connected.unwrap_or_else(|error| panic!("{url}: {error}"))
    }
}

/// What a caller saw of a call of `ticker`.
#[derive(Debug)]
struct Seen {
    ticks: Vec<f64>,
    outcome: Outcome,
    notices: Vec<Notice>,
}

/// Calls `ticker` with progress, and ends the session.
async fn tick(shell: Shell, url: String) -> Seen {
    tick_and_cut(shell, url, None).await
}

/// The same; the call's connection is cut after so many ticks.
async fn tick_and_cut(shell: Shell, url: String, cut_after: Option<usize>) -> Seen {
    let (client, mut events) = shell.connect(&url).await;
    let arguments = json!({ "count": TICKS, "interval_ms": 10, "key": fresh_key() });
    let settings = CallSettings { progress: true, ..CallSettings::default() };
    let mut running = client.start_tool("ticker", arguments, settings);
    let stream = StreamKey::Call(running.id().await.expect("taken"));
    let mut ticks = Vec::new();
    while let Some(report) = { running.progress().next().await } {
        ticks.push(report.progress);
        if Some(ticks.len()) == cut_after {
            client.cut(stream);
        }
    }
    let outcome = running.await;
    client.end().await;
    let mut notices = Vec::new();
    while let Some(notice) = events.next().await {
        notices.push(notice);
    }
    Seen { ticks, outcome, notices }
}

/// Asserts what a caller cares about: each tick once and in order, one result, one execution, and nothing that was wrong.
fn each_once(label: &str, seen: &Seen) {
    let Outcome::Result(result) = &seen.outcome else { panic!("{label}: {seen:?}") };
    assert_eq!(seen.ticks, (1..=TICKS).map(|tick| tick as f64).collect::<Vec<_>>(), "{label}");
    assert_eq!(executions(&serde_json::from_slice(result).expect("JSON")), 1, "{label}");
    let wrong =
        |notice: &&Notice| matches!(notice, Notice::ContinuityViolated { .. } | Notice::Gap { .. } | Notice::Malformed { .. });
    assert!(seen.notices.iter().find(wrong).is_none(), "{label}: {:?}", seen.notices);
    assert!(matches!(seen.notices.last(), Some(Notice::Ended)), "{label}: {:?}", seen.notices);
}

/// Asserts that each cut happened, and that the client came back for each with the last id that it was sent, no sooner than it was told.
fn cuts_and_returns(label: &str, record: &Record, cuts: usize) {
    assert_eq!(record.cuts.len(), cuts, "{label}: every cut must happen");
    assert_eq!(record.asked.iter().filter(|asked| asked.calls("tools/call")).count(), 1, "{label}: sent once");
    let returns: Vec<&Asked> = record.asked.iter().filter(|asked| asked.cursor().is_some()).collect();
    assert_eq!(returns.len(), cuts, "{label}: one return a cut");
    for (cut, back) in record.cuts.iter().zip(returns) {
        assert_eq!(back.cursor(), cut.cursor.as_deref(), "{label}: Last-Event-ID must be the last id sent");
        let away = back.at.saturating_duration_since(cut.at);
        assert!(away >= Duration::from_millis(150), "{label}: `retry` was not honoured, back after {away:?}");
    }
}

/// One session for each place of the call, each cut once there, all at once.
fn cut_once_anywhere(shell: Shell, to: SocketAddr) {
    let proxies: Vec<(String, Proxy)> = (0..=TICKS as usize)
        .map(|after_messages| {
            let how = HOWS[after_messages % 3];
            let plan = move |asked: &Asked, _: &Record| asked.calls("tools/call").then_some(Cut { after_messages, how });
            (format!("{shell:?}, {how:?} after {after_messages} messages"), Proxy::start(to, plan))
        })
        .collect();
    let seen = shell.run(join_all(proxies.iter().map(|(_, proxy)| tick(shell, proxy.url()))));
    for ((label, proxy), seen) in proxies.iter().zip(&seen) {
        each_once(label, seen);
        cuts_and_returns(label, &proxy.record(), 1);
    }
}

/// Sessions whose every stream is cut after one message, until the call is through.
fn cut_at_every_event(shell: Shell, to: SocketAddr) {
    let proxies: Vec<(How, Proxy)> = HOWS
        .into_iter()
        .map(|how| {
            let plan = move |asked: &Asked, record: &Record| {
                let ours = asked.calls("tools/call") || asked.cursor().is_some();
                (ours && record.cuts.len() < TICKS as usize).then_some(Cut { after_messages: 1, how })
            };
            (how, Proxy::start(to, plan))
        })
        .collect();
    let seen = shell.run(join_all(proxies.iter().map(|(_, proxy)| tick(shell, proxy.url()))));
    for ((how, proxy), seen) in proxies.iter().zip(&seen) {
        let label = format!("{shell:?}, {how:?} at every event");
        each_once(&label, seen);
        cuts_and_returns(&label, &proxy.record(), TICKS as usize);
    }
}

fn rejoin(on: Flavour) -> Rejoin {
    Rejoin::start(on, &["--retry", "200ms"])
}

fn on_tokio_a_call_cut_once_anywhere_has_its_result_and_each_event_once(on: Flavour) {
    cut_once_anywhere(Shell::Tokio, rejoin(on).address);
}

fn on_monoio_a_call_cut_once_anywhere_has_its_result_and_each_event_once(on: Flavour) {
    cut_once_anywhere(Shell::Monoio, rejoin(on).address);
}

fn on_tokio_a_call_survives_a_cut_at_every_event(on: Flavour) {
    cut_at_every_event(Shell::Tokio, rejoin(on).address);
}

fn on_monoio_a_call_survives_a_cut_at_every_event(on: Flavour) {
    cut_at_every_event(Shell::Monoio, rejoin(on).address);
}

fn a_restarted_server_loses_the_session_and_leaves_the_call_unknown(shell: Shell) {
    let first = rejoin(Flavour::PLAIN);
    let address = first.address.to_string();
    shell.run(async {
        let (client, mut events) = shell.connect(&format!("http://{address}/mcp")).await;
        let call = client.start_tool("ticker", json!({ "count": 1_000, "interval_ms": 20 }), CallSettings::default());
        while !matches!(events.next().await, Some(Notice::Notification { stream: StreamKey::Call(_), .. })) {}
        drop(first);
        let _second = Rejoin::start(Flavour::PLAIN, &["--retry", "200ms", "--listen", &address]);
        assert_eq!(call.await, Outcome::Unknown(Unknown::SessionLost));
        let lost = loop {
            match events.next().await {
                Some(Notice::SessionLost { reason, unknown }) => break (reason, unknown.len()),
                Some(_) => {}
                None => panic!("the session's loss was not told"),
            }
        };
        // Under another key nobody can tell whose it was.
        assert_eq!(lost, (Some("unknown".into()), 1));
        assert!(events.next().await.is_none());
        let after = client.call_tool("echo", json!({ "text": "x" })).await;
        assert!(matches!(after, Outcome::Error(_) | Outcome::Unknown(Unknown::Ended)), "{after:?}");
    });
}

#[test]
fn on_tokio_a_restarted_server_loses_the_session_and_leaves_the_call_unknown() {
    a_restarted_server_loses_the_session_and_leaves_the_call_unknown(Shell::Tokio);
}

#[test]
fn on_monoio_a_restarted_server_loses_the_session_and_leaves_the_call_unknown() {
    a_restarted_server_loses_the_session_and_leaves_the_call_unknown(Shell::Monoio);
}

#[test]
fn what_was_evicted_while_the_client_was_away_is_told_as_a_gap() {
    let server = Rejoin::start(Flavour::PLAIN, &["--retry", "500ms", "--stream-events", "5"]);
    Shell::Tokio.run(async {
        let (client, mut events) = Shell::Tokio.connect(&format!("http://{}/mcp", server.address)).await;
        let mut call = client.start_tool("ticker", json!({ "count": 100, "interval_ms": 10 }), CallSettings::default());
        let stream = StreamKey::Call(call.id().await.expect("taken"));
        while !matches!(events.next().await, Some(Notice::Notification { stream: StreamKey::Call(_), .. })) {}
        client.cut(stream);
        assert!(matches!(call.await, Outcome::Result(_)));
        client.end().await;
        let mut lost = 0;
        while let Some(notice) = events.next().await {
            match notice {
                Notice::Gap { gap, .. } => lost += gap.lost.expect("how many"),
                Notice::ContinuityViolated { violation, .. } => panic!("{violation}"),
                _ => {}
            }
        }
        assert!(lost > 10, "{lost} lost");
    });
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    for shell in [Shell::Tokio, Shell::Monoio] {
        // A port that was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let url = format!("http://{free}/mcp");
        let failed = shell.run(async {
            match shell {
                Shell::Tokio => rejoin_client::tokio::connect(&url, Options::default()).await.err(),
                Shell::Monoio => rejoin_client::monoio::connect(&url, Options::default()).await.err(),
            }
        });
        let lost = rejoin_client::StartError::Lost(Loss::Unreachable);
        assert!(matches!(failed, Some(rejoin_client::ConnectError::Start(why)) if why == lost), "{shell:?}");
    }
}

/// A server that somebody else wrote, stopped at the end.
struct Other {
    child: Child,
    address: SocketAddr,
}

impl Other {
    /// Starts a program that says its port on its first line.
    fn start(program: &Path, script: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script);
        let mut child = Command::new(program)
            .arg(&script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error} (scripts/test installs it)", program.display()));
        let mut line = String::new();
        let read = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
        let port = read.ok().and_then(|_| line.trim().parse::<u16>().ok());
        let Some(port) = port else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{} said {line:?}: scripts/test installs what it needs", script.display());
        };
        Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    fn typescript() -> Self {
        Self::start(Path::new("node"), "typescript/server.mjs")
    }

    fn python() -> Self {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/clients/python/bin/python");
        Self::start(&python, "python/server.py")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A call without a cut, and one that is cut in the middle.
fn another_server(shell: Shell, server: &Other) {
    let url = format!("http://{}/mcp", server.address);
    for cut_after in [None, Some(5)] {
        let seen = shell.run(tick_and_cut(shell, url.clone(), cut_after));
        each_once(&format!("cut after {cut_after:?}"), &seen);
        let lost = |notice: &&Notice| matches!(notice, Notice::Lost { stream: StreamKey::Call(_), .. });
        assert_eq!(seen.notices.iter().filter(lost).count(), usize::from(cut_after.is_some()));
    }
}

#[test]
fn a_server_of_the_typescript_sdk_is_returned_to() {
    another_server(Shell::Tokio, &Other::typescript());
}

#[test]
fn a_server_of_the_python_sdk_is_returned_to() {
    another_server(Shell::Monoio, &Other::python());
}

#[test]
fn sessions_of_both_runtimes_end_when_their_handles_are_dropped() {
    let server = rejoin(Flavour::PLAIN);
    for shell in [Shell::Tokio, Shell::Monoio] {
        let proxy = Proxy::transparent(server.address);
        shell.run(async {
            let (client, events) = shell.connect_with(&proxy.url(), |options| options.listen = false).await;
            assert!(matches!(client.call_tool("echo", json!({ "text": "x" })).await, Outcome::Result(_)));
            drop((client, events));
            match shell {
                Shell::Tokio => tokio::time::sleep(Duration::from_millis(100)).await,
                Shell::Monoio => monoio::time::sleep(Duration::from_millis(100)).await,
            }
        });
        thread::sleep(Duration::from_millis(50));
        let deleted = proxy.record().asked.iter().any(|asked| asked.head.method() == "DELETE");
        assert!(!deleted, "a dropped session is left to expire: its calls may still be wanted");
    }
}
