//! What the kernel may ask while it handles an input: who a head's principal is, and what other shards publish.
//!
//! Never waits, never locks, and never lets an authoriser's panic through to the kernel.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rejoin_proto::http::Head;
use rejoin_proto::ids::{Principal, SessionId, ShardIndex};
use rejoin_proto::incarnations::{Liveness, Tables};
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
    pub(crate) tables: Tables,
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
        self.tables.look_up(session, principal_tag)
    }

    fn place(&self) -> ShardIndex {
        self.tables.least_loaded(self.shard)
    }
}
