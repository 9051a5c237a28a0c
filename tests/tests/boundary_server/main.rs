//! The small server of the boundary page: right by every row that shows on the wire, and broken in exactly the way that each fault says.
//!
//! Never asserts how a fault fails a row, only which rows it fails: whoever audits the server has to find the same ones.

mod calls;
mod command;
mod faults;
mod gates;
mod gone;
mod look;
mod streams;
