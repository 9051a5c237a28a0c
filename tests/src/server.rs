//! The `rejoin serve` process under test: started on a free port, stopped by its own process id.
//!
//! Never leaves a process behind, whatever happened to the test.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::matrix::Flavour;
use crate::wire::{Connection, PATIENCE};

/// The binary under test: `REJOIN_BIN`, or the workspace's own, built first.
pub fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("REJOIN_BIN") {
            return path.into();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo).args(["build", "--quiet", "--package", "rejoin-cli"]).status().expect("cargo runs");
        assert!(built.success(), "rejoin-cli does not build");
        // Tests lie in `target/debug/deps`, the binary one folder above.
        let test = std::env::current_exe().expect("a test knows its own path");
        test.ancestors().nth(2).expect("tests lie two folders deep").join("rejoin")
    })
}

/// The command with these arguments, and without the `REJOIN_` variables of ours: it would take them for its configuration.
pub fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"REJOIN_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

/// The command for a server on a free port, before its last options.
pub fn command(options: &[&str]) -> Command {
    let mut command = bare(&["serve"]);
    if !options.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.args(options);
    command
}

/// The command for a server of this flavour. Its own options come first: after a `--` they would be a child's.
fn flavoured(flavour: Flavour, options: &[&str]) -> Command {
    let shards = flavour.shards.to_string();
    let own = ["--driver", flavour.driver, "--shards", &shards];
    command(&[&own, options].concat())
}

/// A running server.
#[derive(Debug)]
pub struct Rejoin {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Rejoin {
    /// Starts a server of this flavour with these options, and waits until it listens.
    pub fn start(flavour: Flavour, options: &[&str]) -> Self {
        Self::run(&mut flavoured(flavour, options))
    }

    /// The same with these variables in its environment.
    pub fn start_with_environment(flavour: Flavour, environment: &[(&str, &str)], options: &[&str]) -> Self {
        Self::run(flavoured(flavour, options).envs(environment.iter().copied()))
    }

    /// Starts the server that this command is.
    pub fn start_by(command: &mut Command) -> Self {
        Self::run(command)
    }

    /// The same with so many descriptors at most.
    pub fn start_with_descriptors(flavour: Flavour, descriptors: u32, options: &[&str]) -> Self {
        let server = flavoured(flavour, options);
        let mut shell = Command::new("sh");
        // `exec` keeps the process id, by which the server is stopped.
        shell.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]).arg(server.get_program());
        for (name, _) in server.get_envs() {
            shell.env_remove(name);
        }
        Self::run(shell.args(server.get_args()))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().expect("piped");
        let stderr = child.stderr.take().expect("piped");
        let log = Arc::new(Mutex::new(String::new()));
        let reader = thread::spawn({
            let log = Arc::clone(&log);
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut log = log.lock().expect("no reader panics");
                    log.push_str(&line);
                    log.push('\n');
                }
            }
        });
        let mut server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), log, reader: Some(reader) };
        server.address = server.ready(stdout);
        server
    }

    /// Reads the one line that says where the server listens.
    fn ready(&mut self, stdout: impl Read + Send + 'static) -> SocketAddr {
        let (says, said) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            // The test may have given up already.
            let _ = says.send(read.map(|_| line));
        });
        let line = match said.recv_timeout(PATIENCE) {
            Ok(Ok(line)) => line,
            other => panic!("the server did not say where it listens: {other:?}"),
        };
        let url = line.strip_prefix("rejoin listening on http://").and_then(|url| url.split('/').next());
        url.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("the server said {line:?}"))
    }

    /// Where its admin listener is, as its log says.
    pub fn admin(&self) -> SocketAddr {
        const SAID: &str = "admin listening address=";
        assert!(self.logs(SAID), "no admin listener in {}", self.log());
        let log = self.log();
        let address = log.split(SAID).nth(1).and_then(|rest| rest.split_whitespace().next());
        address.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("no address in {log}"))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("no reader panics").clone()
    }

    /// Whether it logs this word, soon: what it has written takes its time to be read.
    pub fn logs(&self, word: &str) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(word) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Sends a signal to it, and to nothing else.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child that was not waited for can be signalled");
    }

    /// More connections than it accepts within a few milliseconds: they gather in the kernel's queue while it stands still.
    pub fn herd(&self) -> Vec<Connection> {
        self.signal(Signal::STOP);
        let herd = (0..600).filter_map(|_| Connection::try_open(self.address).ok()).collect();
        self.signal(Signal::CONT);
        herd
    }

    /// Asks it to end, as an operator does.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Its exit, if it comes in time.
    pub fn exit_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.exit_within(Duration::ZERO).is_none()
    }

    /// Processor time that it has used, from `/proc`.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("the process lives");
        // The fields follow the name in parentheses, which may hold anything; utime and stime are the 12th and 13th of them.
        let fields: Vec<&str> = stat.rsplit(')').next().expect("a name in parentheses").split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
        let ticks_a_second = rustix::param::clock_ticks_per_second();
        Duration::from_millis(ticks * 1_000 / ticks_a_second)
    }

    /// Its children, zombies included.
    pub fn children(&self) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the process lives");
        let listed = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let all: String = tasks.flatten().map(listed).collect();
        all.split_whitespace().map(|id| id.parse().expect("a process id")).collect()
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("the process lives").count()
    }

    /// Resident memory in KiB, from `/proc`.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a resident size");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

impl Rejoin {
    /// Ends the processes of a gateway that is about to be killed: not each of them ends with its input.
    fn end_children(&mut self) {
        if !self.runs() {
            return;
        }
        // Stopped, it starts no other and reaps none: until it is killed, a number is that child's and its group's.
        self.signal(Signal::STOP);
        for child in self.children() {
            // One that has exited may have left nothing in its group.
            let _ = kill_process_group(Pid::from_raw(child.cast_signed()).expect("a process id"), Signal::KILL);
        }
    }
}

impl Drop for Rejoin {
    fn drop(&mut self) {
        self.end_children();
        // It may have exited already; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        if thread::panicking() {
            eprintln!("--- the server's log\n{}---", self.log());
        }
    }
}
