//! A call with what its session and the whole server remember, and what may be said in it.
//!
//! Never decides what is said; only whether the client wants it.

use std::future::Future;
use std::time::Duration;

use rejoin::{Call, EmitError, Emitted, NotTaken, RpcError};
use serde::Serialize;

use crate::Shared;
use crate::logging::Level;
use crate::memory::Memory;

/// How often a notification that the log has no room for is tried again, and how long between. Reason: a reader who comes back makes room.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// The params of `notifications/message`, written without a tree of values: ten thousand sessions tick at once.
#[derive(Serialize)]
struct LogMessage<'a, D> {
    data: &'a D,
    level: Level,
    logger: &'a str,
}

/// A call in its surroundings.
pub(crate) struct Context<'a> {
    pub(crate) call: &'a Call,
    pub(crate) memory: &'a Memory,
    pub(crate) shared: &'a Shared,
}

impl Context<'_> {
    /// A log message on the call's stream, where the client wants such.
    pub(crate) async fn log(&self, level: Level, logger: &str, data: &impl Serialize) -> Result<(), RpcError> {
        let Some(params) = self.log_params(level, logger, data) else { return Ok(()) };
        said(|| self.call.notify("notifications/message", &params)).await
    }

    /// The same on the session's standalone stream.
    pub(crate) async fn log_aside(&self, level: Level, logger: &str, data: &impl Serialize) -> Result<(), RpcError> {
        let Some(params) = self.log_params(level, logger, data) else { return Ok(()) };
        said(|| self.call.session().notify("notifications/message", &params)).await
    }

    fn log_params<'a, D>(&self, level: Level, logger: &'a str, data: &'a D) -> Option<LogMessage<'a, D>> {
        self.memory.wants(level).then_some(LogMessage { data, level, logger })
    }
}

/// Says something once; where the log has no room for it at the moment, again a little later.
pub(crate) async fn said<F: Future<Output = Result<Emitted, EmitError>>>(say: impl Fn() -> F) -> Result<(), RpcError> {
    for _ in 0..TRIES {
        match say().await {
            Ok(_) => return Ok(()),
            Err(EmitError::NotTaken(NotTaken::LogFull)) => rejoin::sleep(BETWEEN_TRIES).await,
            Err(error) => return Err(RpcError::internal(error)),
        }
    }
    Err(RpcError::internal("the event log has had no room for too long"))
}
