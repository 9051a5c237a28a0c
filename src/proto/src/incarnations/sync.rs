//! The table's atomics: the standard library's, or loom's under `cfg(rejoin_loom)`, which runs every interleaving of them.

#[cfg(rejoin_loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(rejoin_loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
