//! Public stdio servers put online by `rejoin serve -- COMMAND`, through the unmodified SDK clients: what works on a pipe works here, and
//! a cut in the middle of a call loses and repeats nothing.
//!
//! `scripts/test` installs the servers (`servers/node`, `servers/python`) and the clients; the versions are those of their lock files.

mod crossing;
mod cuts;
mod features;
mod lives;
mod public;
