//! The boundary's POST table over sockets, and what goes with it: batches, answers as JSON or as a stream, DELETE and the other methods.

mod answers;
mod batches;
mod calls;
mod initialize;
mod methods;
mod refusals;
mod reposts;
