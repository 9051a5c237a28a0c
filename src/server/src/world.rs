//! What the kernel may ask while it handles an input: who a head's principal is, and what other shards publish.
//!
//! Never waits, never locks, and never lets an authoriser's panic through to the kernel.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rejoin_proto::http::Head;
use rejoin_proto::ids::{Boot, Principal, SessionId, ShardIndex};
use rejoin_proto::incarnations::{Liveness, Table};
use rejoin_proto::refusal::Ended;
use rejoin_proto::shard::io::{self, Unauthorized};

use crate::task;

/// Says who sent a request.
///
/// Called on a shard for every request, before anything of it is looked at: it must not wait. Sessions belong to the principal that
/// it names, so it names the same caller the same way whatever token the caller shows.
pub trait Authorize: Send + Sync + 'static {
    /// The caller's principal, or a 401 with its challenge.
    fn authorize(&self, head: &Head) -> Result<Principal, Unauthorized>;
}

impl<F> Authorize for F
where
    F: Fn(&Head) -> Result<Principal, Unauthorized> + Send + Sync + 'static,
{
    fn authorize(&self, head: &Head) -> Result<Principal, Unauthorized> {
        self(head)
    }
}

/// Everyone is one caller, whose name is empty: what a session id alone protects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anonymous;

impl Authorize for Anonymous {
    fn authorize(&self, _: &Head) -> Result<Principal, Unauthorized> {
        Ok(Principal::new(""))
    }
}

/// One shard's view of the others.
pub(crate) struct World {
    pub(crate) shard: ShardIndex,
    pub(crate) boot: Boot,
    pub(crate) tables: Arc<[Arc<Table>]>,
    pub(crate) authorize: Arc<dyn Authorize>,
}

impl io::World for World {
    fn principal(&self, head: &Head) -> Result<Principal, Unauthorized> {
        catch_unwind(AssertUnwindSafe(|| self.authorize.authorize(head))).unwrap_or_else(|panic| {
            tracing::error!(panic = task::message(&*panic), "the authoriser panicked: request refused");
            Err(Unauthorized { challenge: "Bearer".into() })
        })
    }

    fn liveness(&self, session: &SessionId, principal_tag: u64) -> Liveness {
        match self.tables.get(usize::from(session.shard().0)) {
            Some(table) => table.look_up(session, principal_tag),
            // An id under the same key, of a process that had more shards.
            None if session.boot() != self.boot => Liveness::Ended(Ended::Restarted),
            None => Liveness::Ended(Ended::Unknown),
        }
    }

    /// The shard with the fewest live sessions; this one where it is among them, which saves a handoff.
    fn place(&self) -> ShardIndex {
        let live = |shard: ShardIndex| self.tables.get(usize::from(shard.0)).map_or(u32::MAX, |table| table.live());
        let all = (0..=u8::MAX).map(ShardIndex).take(self.tables.len());
        let least = all.min_by_key(|&shard| (live(shard), shard != self.shard));
        least.unwrap_or(self.shard)
    }
}
