//! What the shards of one server share: how often calls began, and the one resource that changes.
//!
//! Never held while anything is awaited: a lock here is held for a few steps of memory only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin::{Call, Session, SessionId};
use serde_json::Value;

use crate::rounds::Seal;
use crate::stateless::Filter;

/// Keys counted at once; for one more the oldest is forgotten. Reason: clients choose them, and a storm chooses a new one for each call.
const KEYS_MAX: usize = 65_536;
/// Longest key, in bytes. Reason: as many of them as are counted are kept.
pub(crate) const KEY_BYTES_MAX: usize = 256;

/// What all shards of a server share; each has a clone.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Parts>);

#[derive(Debug, Default)]
struct Parts {
    executions: Mutex<Executions>,
    watched: Mutex<Watched>,
    listening: Mutex<Listening>,
    seal: Seal,
}

/// Streams of changes, by the session that each has to itself; at most as many as the server holds open (`limits.exchanges`).
#[derive(Debug, Default)]
struct Listening {
    tool_changes: u64,
    prompt_changes: u64,
    by: HashMap<SessionId, (Call, Filter)>,
}

/// How often a call with each key began in this process: a second execution shows itself.
#[derive(Debug, Default)]
struct Executions {
    of: HashMap<Arc<str>, u64>,
    /// The keys, the oldest first.
    order: VecDeque<Arc<str>>,
}

/// The resource that changes, and who wants to be told; at most one entry for each session of the server.
#[derive(Debug, Default)]
struct Watched {
    changes: u64,
    by: HashMap<SessionId, Session>,
}

/// A panic while one was locked cannot have left it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Counts one more beginning under `key`, and says how many there were; `None` where the key is too long.
    pub(crate) fn begin(&self, key: &str) -> Option<u64> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let mut counts = lock(&self.0.executions);
        if let Some(count) = counts.of.get_mut(key) {
            *count += 1;
            return Some(*count);
        }
        if counts.order.len() == KEYS_MAX
            && let Some(oldest) = counts.order.pop_front()
        {
            counts.of.remove(&oldest);
        }
        let key: Arc<str> = key.into();
        counts.order.push_back(Arc::clone(&key));
        counts.of.insert(key, 1);
        Some(1)
    }

    /// The key of what goes through clients.
    pub(crate) fn seal(&self) -> &Seal {
        &self.0.seal
    }

    /// A stream of changes has begun. One that was cancelled meanwhile has ended already.
    pub(crate) fn listen(&self, call: &Call, filter: Filter) {
        if call.is_cancelled().is_none() {
            lock(&self.0.listening).by.insert(call.session().id(), (call.clone(), filter));
        }
    }

    pub(crate) fn end_listening(&self, call: &Call) {
        // Dropped after the lock: the last clone of a call may have something to say.
        let ended = lock(&self.0.listening).by.remove(&call.session().id());
        drop(ended);
    }

    /// Whether the list of tools has changed an odd number of times.
    pub(crate) fn tools_changed(&self) -> bool {
        lock(&self.0.listening).tool_changes % 2 == 1
    }

    /// Whether the list of prompts has.
    pub(crate) fn prompts_changed(&self) -> bool {
        lock(&self.0.listening).prompt_changes % 2 == 1
    }

    /// Changes the list of tools, and tells who listens; says how many.
    pub(crate) async fn change_tools(&self) -> usize {
        lock(&self.0.listening).tool_changes += 1;
        self.tell("notifications/tools/list_changed", &Value::Null, |filter| filter.tools_list_changed).await
    }

    /// Changes the list of prompts, and tells who listens; says how many.
    pub(crate) async fn change_prompts(&self) -> usize {
        lock(&self.0.listening).prompt_changes += 1;
        self.tell("notifications/prompts/list_changed", &Value::Null, |filter| filter.prompts_list_changed).await
    }

    /// Tells those streams whose filter wants it; says how many. MCP 2026-07-28, subscriptions, "Opening a Stream": "The server MUST NOT send
    /// notification types the client has not explicitly requested."
    pub(crate) async fn tell(&self, method: &str, params: &Value, wanted: impl Fn(&Filter) -> bool) -> usize {
        let calls: Vec<Call> = {
            let listening = lock(&self.0.listening);
            listening.by.values().filter(|(_, filter)| wanted(filter)).map(|(call, _)| call.clone()).collect()
        };
        let mut told = 0;
        for call in calls {
            match call.notify(method, params).await {
                Ok(_) => told += 1,
                // A change that cannot be told must not be kept from the client: its stream ends, and it listens anew.
                Err(_) => self.end_listening(&call),
            }
        }
        told
    }

    /// How often the watched resource has changed.
    pub(crate) fn changes(&self) -> u64 {
        lock(&self.0.watched).changes
    }

    /// Changes it; says how often it has changed now, and who is to be told.
    pub(crate) fn change(&self) -> (u64, Vec<Session>) {
        let mut watched = lock(&self.0.watched);
        watched.changes += 1;
        (watched.changes, watched.by.values().cloned().collect())
    }

    pub(crate) fn watch(&self, session: &Session) {
        lock(&self.0.watched).by.insert(session.id(), session.clone());
    }

    pub(crate) fn unwatch(&self, session: SessionId) {
        lock(&self.0.watched).by.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_counted_until_too_many_newer_ones_came() {
        let shared = Shared::default();
        let begin = |key: &str| shared.begin(key).expect("a short key");
        assert_eq!([begin("first"), begin("first"), begin("second")], [1, 2, 1]);
        for other in 2..KEYS_MAX {
            begin(&other.to_string());
        }
        assert_eq!(begin("first"), 3, "as many as are counted at once");
        begin("one more");
        assert_eq!([begin("second"), begin("first")], [2, 1], "the oldest is forgotten");
    }

    #[test]
    fn a_key_has_a_longest_length() {
        let shared = Shared::default();
        assert_eq!(shared.begin(&"k".repeat(KEY_BYTES_MAX)), Some(1));
        assert_eq!(shared.begin(&"k".repeat(KEY_BYTES_MAX + 1)), None);
    }
}
