//! The same server on either transport.

use std::net::SocketAddr;
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::runtime::Runtime;

use crate::tools::{Counted, Everyone};

/// Whose transport serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// rmcp's `StreamableHttpService` on axum.
    Rmcp,
    /// Ours, on two shards.
    Rejoin,
    /// Ours, on one.
    OneShard,
}

/// A running server; it ends with the value.
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What its sessions share.
    pub(crate) everyone: Everyone,
    /// Ours, where it is.
    pub(crate) handle: Option<rejoin::ServerHandle>,
    _runtime: Runtime,
}

impl Server {
    /// Starts a server on one side or the other.
    pub(crate) fn start(side: Side) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let everyone = Everyone::default();
        let factory = {
            let everyone = everyone.clone();
            move || Ok(Counted::new(&everyone))
        };
        let entered = runtime.enter();
        let (address, handle) = match side {
            Side::Rmcp => (on_rmcp(&runtime, factory), None),
            Side::Rejoin | Side::OneShard => {
                let shards = if side == Side::Rejoin { 2 } else { 1 };
                let handle = rejoin_rmcp::serve(rejoin::Server::builder().shards(shards), factory).expect("a server");
                (handle.local_addr(), Some(handle))
            }
        };
        drop(entered);
        Self { address, everyone, handle, _runtime: runtime }
    }

    /// Ours.
    pub(crate) fn ours() -> Self {
        Self::start(Side::Rejoin)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            handle.shutdown(Duration::ZERO);
            handle.wait();
        }
    }
}

fn on_rmcp(runtime: &Runtime, factory: impl Fn() -> std::io::Result<Counted> + Send + Sync + 'static) -> SocketAddr {
    let manager = std::sync::Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(factory, manager, StreamableHttpServerConfig::default());
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    runtime.spawn(async move { axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await });
    address
}

/// Makes each named function, which takes a [`Side`], a test on each.
macro_rules! on_both_sides {
    ($($test:ident),+ $(,)?) => { $(
        mod $test {
            #[test]
            fn on_rmcp() {
                super::$test(crate::sides::Side::Rmcp);
            }

            #[test]
            fn on_rejoin() {
                super::$test(crate::sides::Side::Rejoin);
            }

            #[test]
            fn on_rejoin_with_one_shard() {
                super::$test(crate::sides::Side::OneShard);
            }
        }
    )+ };
}
pub(crate) use on_both_sides;
