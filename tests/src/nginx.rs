//! Debian's nginx as a reverse proxy that keeps its connections to the server alive: one worker, which can be killed.
//!
//! Never a daemon and never more than it needs: it is ended by the process id that it was started with, and its folder goes with it.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::wire::PATIENCE;

/// How often a worker is looked for that must come soon.
const LOOK: Duration = Duration::from_millis(5);

/// What rejoin needs of nginx, as an operator would write it: connections to the server that are kept alive, and the client's own `Host`.
/// Streams need nothing, because rejoin tells nginx not to buffer them.
pub const SETTINGS: &str = "proxy_http_version 1.1;
proxy_set_header Connection \"\";
proxy_set_header Host $http_host;
";

/// What Debian installs.
const PROGRAM: &str = "/usr/sbin/nginx";

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    /// Where it listens.
    pub address: SocketAddr,
    master: Child,
    folder: TempDir,
}

impl Nginx {
    /// Starts one before this server, and waits until its worker is there.
    pub fn before(server: SocketAddr) -> Self {
        assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing: scripts/test installs what is not ours");
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let file = folder.path().join("nginx.conf");
        fs::write(&file, configuration(address, server, folder.path())).expect("a file");
        // It takes the listener over from us, as from an older nginx that it replaces: so the port is never free in between.
        let master = Command::new(PROGRAM)
            .arg("-c")
            .arg(&file)
            .arg("-p")
            .arg(folder.path())
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .env("NGINX", "0;")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{PROGRAM}: {error}"));
        let mut nginx = Self { address, master, folder };
        nginx.worker_but(None);
        nginx
    }

    /// Kills the worker, with every connection that it has, and waits for the next one.
    pub fn kill_worker(&mut self) {
        let worker = self.worker_but(None);
        kill_process(worker, Signal::KILL).expect("a worker that was there a moment ago is there, or a zombie of its master's");
        self.worker_but(Some(worker));
    }

    /// The worker, which is another than this one.
    fn worker_but(&mut self, last: Option<Pid>) -> Pid {
        let deadline = Instant::now() + PATIENCE;
        let children = format!("/proc/{0}/task/{0}/children", self.master.id());
        loop {
            let ids = fs::read_to_string(&children).unwrap_or_default();
            let mut ids = ids.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().expect("a process id")));
            if let Some(worker) = ids.find(|&id| Some(id) != last) {
                return worker;
            }
            let ended = self.master.try_wait().expect("a child can be waited for");
            assert!(ended.is_none() && Instant::now() < deadline, "no worker: {ended:?}\n{}", self.log());
            thread::sleep(LOOK);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("error.log")).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // A fast end takes the worker along.
        let _ = kill_process(Pid::from_child(&self.master), Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.master.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        // It has ended; where it has not, it is ended.
        let _ = self.master.kill();
        let _ = self.master.wait();
        if thread::panicking() {
            eprintln!("--- nginx's log\n{}---", self.log());
        }
    }
}

/// The whole file, for this address.
fn configuration(address: SocketAddr, server: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes 1;
pid {folder}/pid;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream rejoin {{
        server {server};
        keepalive 8;
    }}
    server {{
        listen {address};
        location /mcp {{
            proxy_pass http://rejoin;
            {SETTINGS}
        }}
    }}
}}
"
    )
}
