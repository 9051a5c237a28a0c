//! rejoin's pure kernel: every answer that a server gives when an MCP client comes back, as a function of its inputs.
//!
//! No I/O, no clock, no randomness, no threads: bytes, instants and random numbers come in as arguments, and what should happen goes
//! out as values. The modules stand in layers, each importing only from lower ones; `ARCHITECTURE.md` is the map.

#![forbid(unsafe_code)]

pub mod ids;
pub mod incarnations;
pub mod limits;
pub mod refusal;
pub mod time;
pub mod wheel;
