//! An rmcp server, on rmcp's own transport or on rejoin; all that differs is the line that serves it.
//!
//! `cargo run -p rejoin-rmcp --example moved` serves it on rejoin, `… --example moved -- --on-axum` as before.

use std::net::SocketAddr;
use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ProgressNotificationParam, ServerCapabilities, ServerConfig};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};

/// Counts down, and does not mind whether anybody is connected meanwhile.
struct Countdown;

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct From {
    seconds: u32,
}

#[tool_router]
impl Countdown {
    #[tool(description = "Counts down to zero, a second each.")]
    async fn count_down(
        &self,
        Parameters(From { seconds }): Parameters<From>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        for gone in 1..=seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if let Some(token) = context.meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, gone.into()).with_total(seconds.into());
                context.peer.notify_progress(progress).await.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
            }
        }
        Ok("lift-off".to_owned())
    }
}

#[tool_handler]
impl ServerHandler for Countdown {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8000);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().any(|argument| argument == "--on-axum") {
        let listener = tokio::net::TcpListener::bind(ADDRESS).await?;
        let service = StreamableHttpService::new(|| Ok(Countdown), LocalSessionManager::default().into(), Default::default());
        println!("on axum: http://{ADDRESS}/mcp");
        return Ok(axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?);
    }
    let server = rejoin_rmcp::serve(rejoin::Server::builder().listen(ADDRESS), || Ok(Countdown))?;
    println!("on rejoin: http://{}/mcp", server.local_addr());
    tokio::signal::ctrl_c().await?;
    // Calls have so long to end; their clients then find the answers until they have read them.
    server.shutdown(Duration::from_secs(10));
    server.ended().await;
    Ok(())
}
