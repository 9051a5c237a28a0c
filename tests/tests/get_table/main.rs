//! The boundary's GET table over sockets, row by row, and what is said of the streams that it opens.

mod refusals;
mod resync;
mod streams;
mod takeover;
mod verdicts;
