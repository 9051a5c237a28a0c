//! The options of `rejoin serve`, and what they set.
//!
//! Never starts anything.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use rejoin::{Builder, Driver, Finished, Limits, ResponsePolicy, Server};

use crate::gateway::Settings;

/// `rejoin serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address to listen on; port 0 finds a free one.
    #[arg(long, default_value = "127.0.0.1:8931")]
    listen: SocketAddr,
    /// Path of the endpoint.
    #[arg(long, default_value = "/mcp")]
    path: String,
    /// Threads, each with its own event loop and sessions [default: one a core].
    #[arg(long)]
    shards: Option<usize>,
    /// Idle time after which a session expires.
    #[arg(long, default_value = "30m", value_parser = positive)]
    session_ttl: Duration,
    /// Memory for the event log, of the whole process.
    #[arg(long, default_value = "64MiB", value_parser = size)]
    log_memory: usize,
    /// What a cursor at the end of a finished stream is answered.
    #[arg(long, default_value = "204")]
    finished: AtTheEnd,
    /// Events that a stream holds for replay.
    #[arg(long, default_value_t = Limits::default().stream_events, value_parser = clap::value_parser!(u64).range(1..))]
    stream_events: u64,
    /// Age at which an event is no longer held.
    #[arg(long, default_value = "5m", value_parser = positive)]
    event_ttl: Duration,
    /// Age at which a result is no longer held.
    #[arg(long, default_value = "30m", value_parser = positive)]
    result_ttl: Duration,
    /// How long clients are told to wait before they come back (spread by ±20 %).
    #[arg(long, default_value = "3s", value_parser = positive)]
    retry: Duration,
    /// Silence on a stream after which a comment is sent.
    #[arg(long, default_value = "15s", value_parser = positive)]
    keep_alive: Duration,
    /// Sessions alive at once, of the whole process.
    #[arg(long, default_value_t = Limits::default().sessions, value_parser = clap::value_parser!(u32).range(1..))]
    max_sessions: u32,
    /// Connections open at once, of the whole process.
    #[arg(long, default_value_t = Limits::default().connections, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Largest request body.
    #[arg(long, default_value = "4MiB", value_parser = size)]
    max_body: usize,
    /// An origin that browsers may call from, beside loopback; `*` for any. May be repeated.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// A host name that requests may be for, beside loopback names and the bound address; `*` for any. May be repeated.
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Form of a call's answer: JSON where it is ready at once, always a stream, or always JSON.
    #[arg(long, default_value = "auto")]
    response: Response,
    /// How long streams and calls may take to end on SIGTERM or SIGINT.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) drain: Duration,
    /// I/O driver; auto takes io_uring where it works.
    #[arg(long, default_value = "auto")]
    driver: DriverName,
    /// Who may call: a file of bearer tokens, a line `principal token` each; SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Let anyone call who can reach the address, although others than this machine can.
    #[arg(long, conflicts_with = "tokens")]
    allow_anonymous: bool,
    /// Processes of COMMAND at once; one more `initialize` is refused with 503.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_children: u32,
    /// How long a process of COMMAND may take to answer `initialize`.
    #[arg(long, default_value = "30s", value_parser = positive)]
    child_start_timeout: Duration,
    /// Address of the admin listener: /metrics, /healthz, /readyz, /debug/shards; port 0 finds a free one, and the log says which.
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
    /// An MCP server that speaks stdio, started once for each session, instead of the embedded server.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AtTheEnd {
    /// 204 No Content: nothing more will come.
    #[value(name = "204")]
    NoContent,
    /// 405 Method Not Allowed, for the strict.
    #[value(name = "405")]
    MethodNotAllowed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Response {
    Auto,
    Sse,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DriverName {
    Auto,
    Uring,
    Epoll,
}

/// A duration that is not zero: a bound of nothing would refuse everything.
fn positive(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than zero".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

/// A size that is not zero.
fn size(text: &str) -> Result<usize, String> {
    let size: ByteSize = text.parse()?;
    match usize::try_from(size.as_u64()) {
        Ok(0) => Err("must be larger than zero".into()),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err("is more than this machine can address".into()),
    }
}

impl Serve {
    /// The bounds.
    fn limits(&self) -> Limits {
        Limits {
            session_ttl: self.session_ttl,
            log_bytes: self.log_memory,
            stream_events: self.stream_events,
            event_ttl: self.event_ttl,
            result_ttl: self.result_ttl,
            retry: self.retry,
            keep_alive: self.keep_alive,
            sessions: self.max_sessions,
            connections: self.max_connections,
            body_bytes: self.max_body,
            ..Limits::default()
        }
    }

    /// How the command is run, where there is one.
    pub(crate) fn gateway(&self) -> Option<Settings> {
        (!self.command.is_empty()).then(|| Settings {
            command: self.command.clone(),
            max_children: self.max_children,
            start_timeout: self.child_start_timeout,
            limits: self.limits(),
        })
    }

    /// What is wrong with the options together.
    pub(crate) fn check(&self) -> Result<(), String> {
        let reachable = !self.listen.ip().to_canonical().is_loopback();
        if reachable && self.tokens.is_none() && !self.allow_anonymous {
            let listen = self.listen;
            return Err(format!(
                "--listen {listen} can be reached from other machines, and anyone could call: give --tokens FILE or --allow-anonymous"
            ));
        }
        Ok(())
    }

    /// A server set up as the options say.
    pub(crate) fn builder(self) -> Builder {
        let limits = self.limits();
        let builder = Server::builder()
            .listen(self.listen)
            .path(self.path)
            .limits(limits)
            .names(self.allow_host, self.allow_origin)
            .finished(match self.finished {
                AtTheEnd::NoContent => Finished::NoContent,
                AtTheEnd::MethodNotAllowed => Finished::MethodNotAllowed,
            })
            .response(match self.response {
                Response::Auto => ResponsePolicy::Auto,
                Response::Sse => ResponsePolicy::Sse,
                Response::Json => ResponsePolicy::Json,
            })
            .driver(match self.driver {
                DriverName::Auto => Driver::Auto,
                DriverName::Uring => Driver::Uring,
                DriverName::Epoll => Driver::Epoll,
            });
        match self.shards {
            Some(shards) => builder.shards(shards),
            None => builder,
        }
    }

    /// The path of the endpoint.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        serve: Serve,
    }

    fn parse(arguments: &[&str]) -> Result<Serve, String> {
        let line = std::iter::once("serve").chain(arguments.iter().copied());
        Line::try_parse_from(line).map(|line| line.serve).map_err(|error| error.to_string())
    }

    #[test]
    fn durations_and_sizes_read_as_people_write_them() {
        let serve = parse(&["--session-ttl", "90m", "--retry", "200ms", "--log-memory", "32MiB"]).expect("valid");
        assert_eq!(serve.session_ttl, Duration::from_secs(5400));
        assert_eq!(serve.retry, Duration::from_millis(200));
        assert_eq!(serve.log_memory, 32 << 20);
    }

    #[test]
    fn the_defaults_on_the_command_line_are_the_limits_own() {
        let serve = parse(&[]).expect("valid");
        let limits = Limits::default();
        assert_eq!(serve.session_ttl, limits.session_ttl);
        assert_eq!((serve.event_ttl, serve.result_ttl), (limits.event_ttl, limits.result_ttl));
        assert_eq!((serve.retry, serve.keep_alive), (limits.retry, limits.keep_alive));
        assert_eq!((serve.log_memory, serve.max_body), (limits.log_bytes, limits.body_bytes));
    }

    #[test]
    fn nonsense_is_refused_by_its_flag() {
        for (flag, value) in [
            ("--listen", "nowhere"),
            ("--session-ttl", "soon"),
            ("--retry", "0s"),
            ("--log-memory", "0"),
            ("--max-body", "lots"),
            ("--finished", "200"),
            ("--max-sessions", "0"),
            ("--driver", "kqueue"),
        ] {
            let error = parse(&[flag, value]).expect_err("refused");
            assert!(error.contains(flag), "{error}");
        }
    }
}
