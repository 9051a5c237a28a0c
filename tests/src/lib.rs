//! What the tests see of a server: sockets, bytes and a process, and nothing of its insides.
//!
//! A small blocking HTTP and SSE client that hides no byte, a guard for the `rejoin` process, a proxy that cuts connections where it is
//! told to, TLS in front of a server, golden transcripts, and a simulation of the kernel. Never shares code with what it tests: its parsers are its own.

#![forbid(unsafe_code)]

pub mod boundary_server;
pub mod check;
pub mod embedded;
pub mod fakes;
pub mod golden;
pub mod http;
pub mod matrix;
pub mod nginx;
pub mod proxy;
pub mod request;
pub mod sdk;
pub mod server;
pub mod session;
pub mod sim;
pub mod sse;
pub mod stateless;
pub mod tls;
pub mod wire;
