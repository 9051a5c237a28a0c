//! The options of `rejoin serve`, and what they set.
//!
//! Never starts anything, and never knows where a value came from: that is `config`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rejoin::{Builder, Driver, Finished, Limits, ResponsePolicy, Server};

use crate::bounds::{self, MAX_CHILDREN, MAX_CONNECTIONS, MAX_IDEMPOTENCY_KEYS, MAX_SESSIONS, MAX_STREAM_EVENTS, count};
use crate::gateway;
use crate::logging::LogFormat;

/// What `rejoin serve` can be set. Each field is the one declaration of an option: of its flag, its variable and its key in the file, of
/// the values that it takes, and of its default. An option that is added here has all of them.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address to listen on; port 0 finds a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8931")]
    listen: SocketAddr,
    /// Path of the endpoint.
    #[arg(long, default_value = "/mcp", value_parser = bounds::path)]
    path: String,
    /// Threads, each with its own event loop and sessions [default: one a core].
    #[arg(long, value_name = "N", value_parser = bounds::shards)]
    shards: Option<usize>,
    /// Idle time after which a session expires.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = bounds::time)]
    session_ttl: Duration,
    /// Memory for the event log, of the whole process.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bounds::size)]
    log_memory: usize,
    /// What a cursor at the end of a finished stream is answered.
    #[arg(long, value_name = "STATUS", default_value = "204")]
    finished: AtTheEnd,
    /// Events that a stream holds for replay.
    #[arg(long, value_name = "N", default_value_t = Limits::default().stream_events, value_parser = count::<u64>(MAX_STREAM_EVENTS))]
    stream_events: u64,
    /// Age at which an event is no longer held.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = bounds::time)]
    event_ttl: Duration,
    /// Age at which a result is no longer held.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = bounds::time)]
    result_ttl: Duration,
    /// How long clients are told to wait before they come back (spread by ±20 %).
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = bounds::time)]
    retry: Duration,
    /// Silence on a stream after which a comment is sent.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = bounds::time)]
    keep_alive: Duration,
    /// Sessions alive at once, of the whole process.
    #[arg(long, value_name = "N", default_value_t = Limits::default().sessions, value_parser = count::<u32>(MAX_SESSIONS))]
    max_sessions: u32,
    /// Requests without a session (revision 2026-07-28) in flight at once, of the whole process.
    #[arg(long, value_name = "N", default_value_t = Limits::default().exchanges, value_parser = count::<u32>(MAX_SESSIONS))]
    max_exchanges: u32,
    /// Records of idempotency keys held at once, of the whole process.
    #[arg(long, value_name = "N", default_value_t = Limits::default().key_records, value_parser = count::<usize>(MAX_IDEMPOTENCY_KEYS))]
    max_idempotency_keys: usize,
    /// Memory for the answers that records of idempotency keys hold, of the whole process.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = bounds::size)]
    idempotency_memory: usize,
    /// How long a call that is done under an idempotency key is remembered.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = bounds::time)]
    idempotency_ttl: Duration,
    /// Connections open at once, of the whole process.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections, value_parser = count::<u32>(MAX_CONNECTIONS))]
    max_connections: u32,
    /// How long connections may wait to be accepted, without a break, before those behind them are turned away.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = bounds::time)]
    admission_wait: Duration,
    /// Largest request body.
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = bounds::size)]
    max_body: usize,
    /// An origin that browsers may call from, beside loopback; `*` for any. May be repeated.
    #[arg(long, value_name = "ORIGIN", value_parser = bounds::origin)]
    allow_origin: Vec<String>,
    /// A host name that requests may be for, beside loopback names and the bound address; `*` for any. May be repeated.
    #[arg(long, value_name = "HOST", value_parser = bounds::host)]
    allow_host: Vec<String>,
    /// Form of a call's answer: JSON where it is ready at once, always a stream, or always JSON.
    #[arg(long, value_name = "FORM", default_value = "auto")]
    response: Response,
    /// How long streams and calls may take to end on SIGTERM or SIGINT.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = bounds::time_or_none)]
    pub(crate) drain: Duration,
    /// I/O driver; auto takes io_uring where it works.
    #[arg(long, default_value = "auto")]
    driver: DriverName,
    /// Who may call: a file of bearer tokens, a line `principal token` each; SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Let anyone call who can reach the address, although others than this machine can.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        action = clap::ArgAction::Set
    )]
    allow_anonymous: bool,
    /// The key behind session ids and cursors, in a file that only its owner may read, made where it is missing: with it, ids of before a
    /// restart are known as such [default: a fresh key].
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Form of the log on standard error; RUST_LOG says what is in it.
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Processes of COMMAND at once; one more `initialize` is refused with 503.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = count::<u32>(MAX_CHILDREN))]
    max_children: u32,
    /// How long a process of COMMAND may take to answer `initialize`.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = bounds::time)]
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

/// Options that cannot stand together, though each is right.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Their names.
    pub(crate) between: &'static [&'static str],
    /// What is wrong, and what to do about it.
    pub(crate) why: String,
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
            exchanges: self.max_exchanges,
            key_records: self.max_idempotency_keys,
            key_bytes: self.idempotency_memory,
            key_ttl: self.idempotency_ttl,
            connections: self.max_connections,
            admission_wait: self.admission_wait,
            body_bytes: self.max_body,
            ..Limits::default()
        }
    }

    /// How the command is run, where there is one.
    pub(crate) fn gateway(&self) -> Option<gateway::Settings> {
        (!self.command.is_empty()).then(|| gateway::Settings {
            command: self.command.clone(),
            max_children: self.max_children,
            start_timeout: self.child_start_timeout,
            limits: self.limits(),
        })
    }

    /// What is wrong with the options together.
    pub(crate) fn check(&self) -> Result<(), Conflict> {
        if self.tokens.is_some() && self.allow_anonymous {
            let why = "--tokens says who may call and --allow-anonymous lets anyone: give one of them".into();
            return Err(Conflict { between: &["tokens", "allow-anonymous"], why });
        }
        let reachable = !self.listen.ip().to_canonical().is_loopback();
        if reachable && self.tokens.is_none() && !self.allow_anonymous {
            let why = format!(
                "--listen {} can be reached from other machines, and anyone could call: give --tokens FILE or --allow-anonymous",
                self.listen
            );
            return Err(Conflict { between: &["listen"], why });
        }
        if self.command.first().is_some_and(|program| program.is_empty()) {
            return Err(Conflict {
                between: &["command"],
                why: "the first word of COMMAND is its program, and it is empty".into(),
            });
        }
        if self.command.iter().any(|word| word.as_bytes().contains(&0)) {
            return Err(Conflict { between: &["command"], why: "a word of COMMAND has a NUL, at which it would end".into() });
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
        assert_eq!((serve.max_idempotency_keys, serve.idempotency_ttl), (limits.key_records, limits.key_ttl));
        assert_eq!(serve.idempotency_memory, limits.key_bytes);
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
            ("--shards", "257"),
            ("--path", "mcp"),
            ("--allow-host", "a b"),
            ("--allow-origin", "example.org"),
            ("--log-format", "xml"),
            ("--key-file", ""),
        ] {
            let error = parse(&[flag, value]).expect_err("refused");
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn options_that_make_no_sense_together_are_refused_in_one_line() {
        for (arguments, between) in [
            (&["--tokens", "t", "--allow-anonymous"][..], &["tokens", "allow-anonymous"][..]),
            (&["--listen", "0.0.0.0:80"], &["listen"]),
            (&["--listen", "[::ffff:10.0.0.1]:80", "--allow-anonymous=false"], &["listen"]),
            (&["--", "", "x"], &["command"]),
            (&["--", "x", "a\0b"], &["command"]),
        ] {
            let conflict = parse(arguments).expect("each is right").check().expect_err("together they are not");
            assert_eq!(conflict.between, between);
            assert_eq!(conflict.why.lines().count(), 1);
            for name in conflict.between {
                assert!(
                    crate::options().get_arguments().any(|option| option.get_long() == Some(name) || option.get_id() == name)
                );
            }
        }
        for arguments in [
            &["--tokens", "t", "--allow-anonymous=false"][..],
            &["--listen", "0.0.0.0:80", "--allow-anonymous"],
            &["--listen", "0.0.0.0:80", "--tokens", "t"],
            &["--listen", "[::1]:80"],
            &["--", "x", ""],
        ] {
            assert_eq!(parse(arguments).expect("right").check(), Ok(()), "{arguments:?}");
        }
    }
}
