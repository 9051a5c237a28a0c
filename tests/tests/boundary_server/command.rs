//! The same server as a process, which an audit can be pointed at and restart by a command.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};

use rejoin_tests::boundary_server::Fault;
use rejoin_tests::session::{NOVEMBER, Session};
use rejoin_tests::wire::Connection;

use crate::look::*;

const BINARY: &str = env!("CARGO_BIN_EXE_boundary-server");

/// A process that ends with the test.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(options: &[&str]) -> Self {
        let mut child = Command::new(BINARY).args(options).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
        let address = url.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("no URL: {line:?}"));
        Self { child, address }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(options: &[&str]) -> Output {
    Command::new(BINARY).args(options).output().expect("it runs")
}

#[test]
fn a_restarted_process_knows_the_ids_of_the_one_before_it_by_its_key_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    let key = key.to_str().expect("UTF-8");
    let process = Process::start(&["--key-file", key]);
    let session = Session::begin(process.address, NOVEMBER);
    let port = process.address.port().to_string();
    drop(process);
    let _again = Process::start(&["--key-file", key, "--port", &port]);
    dead(&no_stream(&session, &session.get()), "restarted");
}

#[test]
fn a_fault_is_chosen_by_its_name() {
    let process = Process::start(&["--fault", "accepts-empty-cursor"]);
    let session = Session::begin(process.address, NOVEMBER);
    let mut connection = Connection::open(process.address);
    connection.send(&session.get_after(""));
    assert_eq!(connection.head().status(), 200);
}

#[test]
fn the_list_names_every_fault() {
    let output = said(&["--list"]);
    let list = String::from_utf8(output.stdout).expect("text");
    let names: Vec<_> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, Fault::ALL.iter().map(|fault| fault.name()).collect::<Vec<_>>());
}

#[test]
fn what_it_does_not_know_is_refused_in_one_line() {
    for options in
        [&["--fault", "nothing"][..], &["--port"], &["--port", "x"], &["--whatever", "1"], &["--key-file", "/no/such/file"]]
    {
        let output = said(options);
        assert_eq!(
            (output.status.code(), output.stderr.iter().filter(|&&byte| byte == b'\n').count()),
            (Some(2), 1),
            "{options:?}"
        );
    }
}
