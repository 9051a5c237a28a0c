//! Watches that every shard keeps turning, and says so in the log when one does not.
//!
//! monoio ignores errors of its park, and a handler may block its shard: either stops a shard's sessions without a word. Never ends
//! or restarts a shard.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::handle::Running;
use crate::mail::Remote;

/// How often a shard is knocked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Knocks without an answer after which it is said.
const LATE: u32 = 5;

/// What there is to say of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Stuck,
    TurnsAgain,
}

/// What was last said of a shard.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    stuck: bool,
}

impl Watched {
    /// `unanswered`: knocks since the shard last answered one.
    fn look(&mut self, unanswered: u32) -> Option<News> {
        let stuck = unanswered >= LATE;
        let news = match (self.stuck, stuck) {
            (false, true) => Some(News::Stuck),
            (true, false) => Some(News::TurnsAgain),
            _ => None,
        };
        self.stuck = stuck;
        news
    }
}

/// Watches a server's shards, on a thread that ends with the last of them.
pub(crate) fn start(remotes: Arc<[Arc<Remote>]>, running: Arc<Running>) -> io::Result<()> {
    let watch = move || {
        let mut watched = vec![Watched::default(); remotes.len()];
        while !running.ended_within(PERIOD) {
            for (shard, (watched, remote)) in watched.iter_mut().zip(&*remotes).enumerate() {
                match watched.look(remote.knock()) {
                    Some(News::Stuck) => {
                        tracing::error!(
                            shard,
                            "a shard has not turned for {LATE} s: a handler blocks it, or its driver is stuck"
                        );
                    }
                    Some(News::TurnsAgain) => tracing::info!(shard, "the shard turns again"),
                    None => {}
                }
            }
        }
    };
    thread::Builder::new().name("rejoin-watch".into()).spawn(watch).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_shard_is_said_once_and_so_is_its_recovery() {
        let mut watched = Watched::default();
        let said: Vec<_> = [1, 1, 2, 4, 5, 6, 60, 1, 1].into_iter().filter_map(|unanswered| watched.look(unanswered)).collect();
        assert_eq!(said, [News::Stuck, News::TurnsAgain]);
    }
}
