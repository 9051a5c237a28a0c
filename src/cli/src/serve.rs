//! `rejoin serve`: starts the server, says where it listens, and ends it on a signal.
//!
//! Never decides what the server answers.

use std::error::Error;
use std::io::{Write, stderr, stdout};
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;

use crate::embedded::Embedded;
use crate::options::Serve;
use crate::tools::Executions;

/// Runs until a signal has ended the server.
pub(crate) fn run(options: Serve) -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).init();
    // Before the server starts: a signal that comes at once must not kill it.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let (path, drain) = (options.path().to_string(), options.drain);
    let executions = Arc::new(Executions::default());
    let server = options.builder().serve(move || Embedded::new(Arc::clone(&executions)))?;
    writeln!(stdout(), "rejoin listening on http://{}{path}", server.local_addr())?;
    stdout().flush()?;
    let ending = server.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signals = signals.forever();
        if let Some(signal) = signals.next() {
            tracing::info!(signal, ?drain, "draining");
            ending.shutdown(drain);
        }
        if signals.next().is_some() {
            tracing::warn!("a second signal: exiting at once");
            std::process::exit(1);
        }
    })?;
    server.wait();
    tracing::info!("ended");
    Ok(())
}
