//! Headless Chromium's own `EventSource`, one page for each bed, each with a door of its own.
//!
//! A door serves the page, adds the header fields that a page cannot set to what it asks, and is told what the page saw. The session's id
//! stands in a header, never in a URL.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rejoin_tests::http::{Direction, Head, Piece, Reader};
use rejoin_tests::session::{NOVEMBER, Session, call_with_token};
use rejoin_tests::wire::{PATIENCE as PATIENCE_FOR_ONE, Request};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use socket2::SockRef;

use crate::bed::{Bed, PATIENCE, TIMEOUT_MS};

/// How long a page waits for its stream to be over, in milliseconds: a browser that is asked for many pages at once is slow to begin.
const PATIENCE_OF_A_PAGE_MS: u64 = 4 * TIMEOUT_MS;

const PAGE: &str = include_str!("eventsource.html");

/// What a door adds for its page: whose stream it reads, and from where. The call is made when the page first asks.
struct Adds {
    front: SocketAddr,
    arguments: Value,
    call: OnceLock<(Session, String)>,
}

impl Adds {
    fn call(&self) -> &(Session, String) {
        self.call.get_or_init(|| called(self.front, &self.arguments))
    }
}

/// One page's door.
struct Door {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    told: mpsc::Receiver<Value>,
    acceptor: Option<JoinHandle<()>>,
}

impl Door {
    fn before(bed: &Bed) -> Self {
        let [arguments, _] = bed.calls();
        let adds = Adds { front: bed.front.address, arguments, call: OnceLock::new() };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let stopping = Arc::new(AtomicBool::new(false));
        let (tells, told) = mpsc::channel();
        let acceptor = thread::spawn({
            let stopping = Arc::clone(&stopping);
            let adds = Arc::new(adds);
            move || {
                for browser in listener.incoming().map_while(Result::ok).take_while(|_| !stopping.load(Ordering::SeqCst)) {
                    let (adds, tells) = (Arc::clone(&adds), tells.clone());
                    thread::spawn(move || serve(&browser, &adds, &tells));
                }
            }
        });
        Self { address, stopping, told, acceptor: Some(acceptor) }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// One request; the connection ends with its answer.
fn serve(mut browser: &TcpStream, adds: &Adds, tells: &mpsc::Sender<Value>) {
    let Some((head, body)) = request(browser) else { return };
    let page = PAGE.replace("PATIENCE_MS", &PATIENCE_OF_A_PAGE_MS.to_string());
    let (status, body) = match head.start.split(' ').nth(1).unwrap_or_default() {
        "/mcp" => return relay(browser, &head, adds),
        "/" => ("200 OK", page.as_str()),
        "/seen" => {
            // Whoever waited may have given up.
            let _ = tells.send(serde_json::from_slice(&body).expect("what a page tells is JSON"));
            ("200 OK", "")
        }
        _ => ("404 Not Found", ""),
    };
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    // A browser that is gone needs no answer.
    let _ = browser.write_all(answer.as_bytes());
}

fn request(mut browser: &TcpStream) -> Option<(Head, Vec<u8>)> {
    let mut reader = Reader::new(Direction::Requests);
    let (mut head, mut body, mut byte) = (None, Vec::new(), [0]);
    while head.is_none() || !reader.whole() {
        browser.read_exact(&mut byte).ok()?;
        match reader.push(byte[0]) {
            Some(Piece::Head(whole)) => head = Some(whole),
            Some(Piece::Body(byte)) => body.push(byte),
            None => {}
        }
    }
    head.map(|head| (head, body))
}

/// Asks what the page asks, with the fields that are missing; the answer is passed on as it comes, and so is a reset.
fn relay(mut browser: &TcpStream, head: &Head, adds: &Adds) {
    let (session, beginning) = adds.call();
    let cursor = head.field("Last-Event-ID").unwrap_or(beginning);
    let asked = session.of(Request::get(adds.front)).with("Last-Event-ID", cursor).with("Connection", "close");
    let mut server = TcpStream::connect(adds.front).expect("the proxy listens");
    server.write_all(&asked.bytes()).expect("the proxy reads");
    let mut buffer = [0; 16 << 10];
    loop {
        match server.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) if browser.write_all(&buffer[..count]).is_ok() => {}
            Ok(_) => return,
            Err(_) => return SockRef::from(browser).set_linger(Some(Duration::ZERO)).expect("a socket takes options"),
        }
    }
}

/// A running browser; its processes are a group, which ends with it.
struct Chromium(Child);

impl Chromium {
    fn start(folder: &Path, page: &Path) -> Self {
        use std::os::unix::process::CommandExt as _;
        let child = Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--no-proxy-server"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(page)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("chromium: {error}: scripts/test installs what is not ours"));
        Self(child)
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its number names the group until it is waited for. Whatever of the group has ended needs no signal.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Plays every bed's session at once; gives what each page saw.
pub(crate) fn play(beds: &[Bed]) -> Vec<Value> {
    let doors: Vec<Door> = beds.iter().map(Door::before).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let mut frames = String::from("<!doctype html>");
    for door in &doors {
        write!(frames, "<iframe src='http://{}/'></iframe>", door.address).expect("a string takes all");
    }
    let page = folder.path().join("frames.html");
    fs::write(&page, frames).expect("a file");
    let _browser = Chromium::start(folder.path(), &page);
    let deadline = Instant::now() + PATIENCE;
    let told = |door: &Door| {
        let left = deadline.saturating_duration_since(Instant::now()).max(PATIENCE_FOR_ONE / 20);
        door.told.recv_timeout(left).expect("each page tells what it saw")
    };
    doors.iter().map(told).collect()
}

/// Calls in the page's place, and leaves with the stream's first id: the page reads from there.
fn called(front: SocketAddr, arguments: &Value) -> (Session, String) {
    let session = Session::begin(front, NOVEMBER);
    let mut stream = session.call(&call_with_token(1, "token-1", "ticker", arguments.clone()));
    let cursor = stream.event().cursor().to_owned();
    stream.leave();
    (session, cursor)
}
