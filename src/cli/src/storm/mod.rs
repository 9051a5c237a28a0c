//! `rejoin storm`: reconnect storms by script, and what came of them.
//!
//! Never serves anything.

mod measure;
