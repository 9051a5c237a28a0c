//! `rejoin storm`: a scripted reconnect storm against any Streamable HTTP server, that knows what must come back.
//!
//! Never touches a server that is not on this machine unless it is told that the target is its user's own.

mod library;
mod measure;
mod script;
mod timeline;
mod truth;
mod units;
mod wire;
