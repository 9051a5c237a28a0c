//! `rejoin serve`: starts the server, says where it listens, and ends it on a signal.
//!
//! Never decides what the server answers.

use std::error::Error;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rejoin::{Builder, ServerHandle, StartError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;

use crate::embedded::Embedded;
use crate::gateway::{Gateway, Plant, Running};
use crate::options::Serve;
use crate::tokens::Tokens;
use crate::tools::Executions;

/// Runs until a signal has ended the server.
pub(crate) fn run(options: Serve) -> Result<(), Box<dyn Error>> {
    options.check()?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for people: in a file they stand in the way of whoever searches it.
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(stderr().is_terminal()).with_writer(stderr).init();
    let tokens = options.tokens.as_deref().map(Tokens::read).transpose()?;
    // Before the server starts: a signal that comes at once must not kill it.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    if tokens.is_some() {
        signals.add_signal(SIGHUP)?;
    }
    let (path, drain, admin) = (options.path().to_string(), options.drain, options.admin);
    let running = options.gateway().map(Plant::start).transpose()?;
    let builder = match tokens.clone() {
        Some(tokens) => options.builder().authorize(tokens),
        None => options.builder(),
    };
    let server = start(builder, running.as_ref())?;
    if let Some(address) = admin {
        let plant = running.as_ref().map(|running| Arc::clone(running.plant()));
        let started = crate::admin::start(address, server.clone(), plant);
        started.map_err(|error| format!("--admin {address}: {error}"))?;
    }
    writeln!(stdout(), "rejoin listening on http://{}{path}", server.local_addr())?;
    stdout().flush()?;
    let (ending, plant) = (server.clone(), running.as_ref().map(|running| Arc::clone(running.plant())));
    thread::Builder::new().name("signals".into()).spawn(move || {
        obey(&mut signals, &ending, drain, tokens.as_ref(), plant.as_deref());
    })?;
    server.wait();
    if let Some(running) = running {
        running.end();
    }
    tracing::info!("ended");
    Ok(())
}

/// Starts the server with the command's processes as its handlers, or with the embedded ones.
fn start(builder: Builder, running: Option<&Running>) -> Result<ServerHandle, StartError> {
    if let Some(running) = running {
        let plant = Arc::clone(running.plant());
        return builder.serve(move || Gateway::new(Arc::clone(&plant)));
    }
    let executions = Arc::new(Executions::default());
    builder.serve(move || Embedded::new(Arc::clone(&executions)))
}

/// Does what signals say, for as long as the process lives.
fn obey(signals: &mut Signals, server: &ServerHandle, drain: Duration, tokens: Option<&Tokens>, plant: Option<&Plant>) {
    let mut draining = false;
    for signal in signals.forever() {
        match signal {
            SIGHUP => match tokens.map(Tokens::reload) {
                Some(Ok(count)) => tracing::info!(count, "the tokens were read again"),
                Some(Err(error)) => tracing::error!(%error, "the tokens stay as they were"),
                None => {}
            },
            _ if !draining => {
                tracing::info!(signal, ?drain, "draining");
                server.shutdown(drain);
                draining = true;
            }
            _ => {
                tracing::warn!("a second signal: exiting at once");
                if let Some(plant) = plant {
                    plant.kill();
                }
                std::process::exit(1);
            }
        }
    }
}
