//! Server-sent events: frames for the wire, and a wire's bytes back into events. The format is the HTML standard's, section 9.2.
//!
//! Never knows what an id, an event name or data mean, never stores an event, and never touches HTTP's framing around the stream.

mod decode;
mod encode;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use decode::{Block, Decoder, Event, Item, TooLong};
pub use encode::{COMMENT, FieldValue, Frame};
