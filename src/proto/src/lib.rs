//! rejoin's pure kernel: every answer that a server gives when an MCP client comes back, as a function of its inputs.
//!
//! No I/O, no clock, no randomness, no threads: bytes, instants and random numbers come in as arguments, and what should happen goes
//! out as values. The modules stand in layers, each importing only from lower ones; `ARCHITECTURE.md` is the map.
//!
//! What a client presents, and what it is answered:
//!
//! ```
//! use rejoin_proto::ids::{Boot, Cursor, Incarnation, Key, Position, SessionId, ShardIndex, SlotIndex, StreamNumber};
//! use rejoin_proto::resume::{Following, Reach, Retained, Stream, Verdict, decide};
//!
//! let key = Key::new([7; 16]);
//! let session = SessionId::mint(&key, ShardIndex(0), SlotIndex(0), Boot(1), [1; 16]);
//!
//! // The client saw event 4 of stream 2, and comes back with its id.
//! let text = Cursor::new(Incarnation::FIRST, StreamNumber(2), Position::new(4)).encode(&key, &session);
//! let cursor = Cursor::parse(text.as_str().as_bytes(), &key, &session)?;
//!
//! // Meanwhile the stream went on to event 9, and 5 to 7 were evicted.
//! let reach = Reach {
//!     last: Position::new(9),
//!     following: Some(Following { position: Position::new(8), stand_in: false }),
//!     finished: false,
//!     written: Position::START,
//! };
//! let retained = Retained { incarnation: Incarnation::FIRST, stream: Stream::Known(reach) };
//! let Verdict::Resync { gap, .. } = decide(Some(cursor), &retained) else { panic!() };
//! assert_eq!((gap.at, gap.lost), (Position::new(7), 3));
//! # Ok::<(), rejoin_proto::ids::CursorError>(())
//! ```

#![forbid(unsafe_code)]

pub mod canary;
pub mod client;
pub mod connection;
pub mod eventlog;
pub mod http;
pub mod ids;
pub mod incarnations;
pub mod keyed;
pub mod limits;
mod lists;
pub mod mcp;
pub mod refusal;
pub mod resume;
pub mod session;
pub mod shard;
pub mod sse;
pub mod time;
pub mod wheel;
