//! What `rejoin serve` tells a service manager, on the real socket of one.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rejoin_tests::check::soon;
use rejoin_tests::matrix::Flavour;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{NOVEMBER, Session, call, ticks};
use rejoin_tests::wire::{Connection, PATIENCE};
use rustix::process::Signal;

/// The manager's end.
struct Manager {
    path: PathBuf,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rejoin-notify-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let socket = UnixDatagram::bind(&path).expect("a new path");
        Self { path, socket }
    }

    fn starts(&self, options: &[&str]) -> Rejoin {
        let path = self.path.to_str().expect("text");
        Rejoin::start_with_environment(Flavour::PLAIN, &[("NOTIFY_SOCKET", path)], options)
    }

    /// The lines of the next message.
    fn told(&self) -> Vec<String> {
        self.socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes options");
        let mut message = [0; 4096];
        let count = self.socket.recv(&mut message).expect("a message");
        str::from_utf8(&message[..count]).expect("text").lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn told_nothing(&self) {
        self.socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket takes options");
        let error = self.socket.recv(&mut [0; 64]).expect_err("nothing is said");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // The path is all that is left of it.
        let _ = fs::remove_file(&self.path);
    }
}

#[test]
fn ready_is_said_when_clients_are_served_and_once() {
    let manager = Manager::new();
    let server = manager.starts(&[]);
    assert_eq!(manager.told(), ["READY=1", &format!("STATUS=Serving http://{}/mcp", server.address)]);
    Session::begin(server.address, NOVEMBER);
    manager.told_nothing();
}

#[test]
fn ready_is_not_said_by_a_server_that_cannot_listen() {
    let manager = Manager::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = taken.local_addr().expect("bound").to_string();
    let mut server = rejoin_tests::server::command(&["--listen", &listen]);
    let output = server.env("NOTIFY_SOCKET", &manager.path).output().expect("it runs");
    assert!(!output.status.success());
    manager.told_nothing();
}

#[test]
fn stopping_is_said_while_streams_still_drain() {
    let manager = Manager::new();
    let mut server = manager.starts(&["--drain", "30s"]);
    manager.told();
    let session = Session::begin(server.address, NOVEMBER);
    let mut stream = session.call(&call(1, "ticker", ticks(15, 100)));
    stream.event();
    server.terminate();
    assert_eq!(manager.told(), ["STOPPING=1", "STATUS=Draining"]);
    assert!(server.runs(), "a call is under way");
    stream.rest();
    assert!(server.exit_within(PATIENCE).expect("it ends").success());
    manager.told_nothing();
}

/// With files to read again or without: a manager sends SIGHUP to all.
#[test]
fn a_reload_is_begun_and_ended() {
    let manager = Manager::new();
    let mut server = manager.starts(&[]);
    manager.told();
    let mut last = 0;
    for _ in 0..2 {
        server.signal(Signal::HUP);
        let begun = manager.told();
        let [reloading, time] = &begun[..] else { panic!("{begun:?}") };
        assert_eq!(reloading, "RELOADING=1");
        let time: u64 = time.strip_prefix("MONOTONIC_USEC=").and_then(|time| time.parse().ok()).expect("a time");
        assert!(time > last, "{time} after {last}");
        last = time;
        assert_eq!(manager.told(), ["READY=1"]);
    }
    assert!(server.runs());
    Connection::open(server.address);
}

#[test]
fn a_manager_that_has_gone_is_a_line_of_the_log() {
    let gone = Manager::new();
    fs::remove_file(&gone.path).expect("removed");
    let server = gone.starts(&[]);
    Session::begin(server.address, NOVEMBER);
    assert!(server.logs("the service manager was not told"));
    gone.told_nothing();
}

#[test]
fn a_child_is_not_given_the_managers_socket() {
    let manager = Manager::new();
    let file = manager.path.with_extension("environment");
    let write = format!("env > {0}.new; mv {0}.new {0}", file.display());
    let path = manager.path.to_str().expect("text");
    let environment = [("NOTIFY_SOCKET", path), ("WATCHDOG_USEC", "1"), ("WATCHDOG_PID", "1"), ("GIVEN", "yes")];
    let server = Rejoin::start_with_environment(Flavour::PLAIN, &environment, &["--", "sh", "-c", &write]);
    let asked = rejoin_tests::wire::Request::post(server.address, &rejoin_tests::session::initialize(1, NOVEMBER));
    // It ends without an answer.
    rejoin_tests::wire::ask(server.address, &asked);
    soon("the child has written its environment", || file.exists());
    let given = fs::read_to_string(&file).expect("read");
    fs::remove_file(&file).expect("removed");
    assert!(given.contains("GIVEN=yes"), "{given}");
    assert!(!given.contains("NOTIFY_SOCKET") && !given.contains("WATCHDOG"), "{given}");
}
