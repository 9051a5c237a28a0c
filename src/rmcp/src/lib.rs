//! Any rmcp server on rejoin: its services run on tokio as ever, its wire is rejoin's shards, where clients can come back.
//!
//! A server that was served by rmcp's `StreamableHttpService` moves by one line; its handlers, tools and macros stay as they are:
//!
//! ```
//! use rmcp::ServerHandler;
//!
//! struct Quiet;
//!
//! impl ServerHandler for Quiet {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Before: axum::serve(listener, Router::new().nest_service("/mcp", StreamableHttpService::new(|| Ok(Quiet), …))).await?;
//! let server = rejoin_rmcp::serve(rejoin::Server::builder(), || Ok(Quiet))?;
//! println!("http://{}/mcp", server.local_addr());
//! # server.shutdown(std::time::Duration::ZERO);
//! # server.wait();
//! # Ok(())
//! # }
//! ```
//!
//! Each session has a service of its own, made by the factory, from `initialize` to the session's end. A client that is cut off changes
//! nothing for it: its calls go on, and the answers wait. What the service is told when the session
//!
//! - **ends** (DELETE, expiry, `close`, the server's end): its calls are cancelled (their `ct`), then its transport is at its end;
//! - **rotates**: its calls are cancelled, and it goes on;
//! - **drains**: calls have the time that [`ServerHandle::shutdown`](rejoin::ServerHandle::shutdown) gives, then the above.
//!
//! And the other way: a service that ends by itself ends its session, whose clients get 404 `closed`. A tool that panics fails its call.
//!
//! What handlers find in `extensions` is what rmcp's own transport puts there, an `http::request::Parts`; in its extensions stand the
//! [`rejoin::Session`] and the [`rejoin::Principal`]. `RequestContext::id` is rejoin's number of the call, which is unique in its session,
//! and not the client's id, which need not be. A request to the client (sampling, elicitation, roots) goes on the stream of the call
//! that asked; one from a task that was spawned, and every log message, names no call: it goes to the only call in flight, else to the
//! session's standalone stream.
//!
//! Of a request without a session (2026-07-28) all this is its own: a service from the factory, which ends with the answer, and is cancelled
//! when the client closes the stream.
//!
//! # Features
//!
//! - `service` (on): all of the above.
//! - `model` (off): rmcp's typed messages for a [`rejoin::Handler`] of one's own, with neither services nor tokio (the module `model`).
//!
//! Never decides an answer of the boundary, and never parses what it only carries. rmcp's feature `local` is not for it: services are
//! run on a multi-threaded runtime.

#![deny(unsafe_code)]

#[cfg(feature = "service")]
mod adapter;
#[cfg(feature = "service")]
mod exchange;
#[cfg(feature = "service")]
mod guard;
#[cfg(feature = "service")]
mod link;
#[cfg(any(feature = "service", feature = "model"))]
mod message;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "service")]
mod parts;
#[cfg(feature = "service")]
mod room;
#[cfg(feature = "service")]
mod transport;

#[cfg(feature = "service")]
pub use adapter::{Adapter, Services, serve};
#[cfg(feature = "service")]
pub use transport::{SendError, SessionTransport};
