//! `rejoin serve`: starts the server, says where it listens, and ends it on a signal.
//!
//! Never decides what the server answers.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rejoin::{Builder, ServerHandle, StartError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::embedded::Embedded;
use crate::gateway::{Gateway, Plant, Running};
use crate::notify;
use crate::options::Serve;
use crate::tokens::Tokens;
use crate::tools::Executions;
use crate::{key, logging};

/// Runs until a signal has ended the server. The options make sense together; the warnings are told by the log.
pub(crate) fn run(options: Serve, warnings: &[String]) -> Result<(), Box<dyn Error>> {
    logging::start(options.log_format)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let tokens = options.tokens.as_deref().map(Tokens::read).transpose()?;
    // Before the server starts: a signal that comes at once must not kill it.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    if tokens.is_some() || notify::is_expected() {
        signals.add_signal(SIGHUP)?;
    }
    let (path, drain, admin) = (options.path().to_string(), options.drain, options.admin);
    let running = options.gateway().map(Plant::start).transpose()?;
    let key = options.key_file.as_deref().map(key::read_or_make).transpose()?;
    let mut builder = options.builder();
    if let Some(tokens) = tokens.clone() {
        builder = builder.authorize(tokens);
    }
    if let Some(key) = key {
        builder = builder.key(key);
    }
    let server = start(builder, running.as_ref())?;
    if let Some(address) = admin {
        let plant = running.as_ref().map(|running| Arc::clone(running.plant()));
        let started = crate::admin::start(address, server.clone(), plant);
        started.map_err(|error| format!("--admin {address}: {error}"))?;
    }
    let url = format!("http://{}{path}", server.local_addr());
    writeln!(stdout(), "rejoin listening on {url}")?;
    stdout().flush()?;
    notify::ready(&url);
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
            SIGHUP => {
                notify::reloading();
                match tokens.map(Tokens::reload) {
                    Some(Ok(count)) => tracing::info!(count, "the tokens were read again"),
                    Some(Err(error)) => tracing::error!(%error, "the tokens stay as they were"),
                    None => {}
                }
                notify::reloaded();
            }
            _ if !draining => {
                tracing::info!(signal, ?drain, "draining");
                notify::stopping();
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
