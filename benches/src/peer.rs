//! The peers that rejoin is measured beside, each as small as its own documentation would write it.
//!
//! `peer axum` answers `/fixed/N` with N bytes, `/sse/N` with N events of 200 bytes, `/idle` with a stream that stays silent and
//! `/tick` with an event a second; `peer rmcp [N]` is an MCP server (that holds N messages of a stream) with the tools `echo`, `ticker` and `paused` on axum; `peer blocking` writes as many bytes as
//! the path says, a thread a connection; `peer bare N` answers everything with N bytes, and does nothing but the system calls. Each
//! prints the address that it listens on.

mod bare;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ProgressNotificationParam, ServerCapabilities, ServerConfig};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use tokio_stream::wrappers::IntervalStream;
use tokio_stream::{Stream, StreamExt};

/// Data of an event whose frame has 200 bytes with an id of one to six digits.
const DATA: usize = 182;
/// Bytes of one write of the blocking peer.
const WRITE: usize = 256 << 10;

/// How long a `paused` call takes after its progress: longer than a run.
const PAUSE: Duration = Duration::from_secs(600);

fn main() -> std::io::Result<()> {
    let kind = std::env::args().nth(1).unwrap_or_default();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on http://{}", listener.local_addr()?);
    match kind.as_str() {
        "axum" => serve(
            listener,
            Router::new()
                .route("/fixed/{bytes}", get(fixed))
                .route("/sse/{events}", get(sse))
                .route("/idle", get(idle))
                .route("/tick", get(tick)),
        ),
        "rmcp" => serve(listener, Router::new().nest_service("/mcp", service(number()))),
        "blocking" => blocking(&listener),
        "bare" => {
            bare::serve(&listener, &vec![b'x'; number().ok_or_else(|| std::io::Error::other("bare wants a number of bytes"))?])
        }
        other => Err(std::io::Error::other(format!("no peer is called {other:?}: axum, rmcp, blocking or bare"))),
    }
}

/// The number that a peer was told.
fn number() -> Option<usize> {
    std::env::args().nth(2).and_then(|number| number.parse().ok())
}

/// As many runtime threads as processors that we may run on.
fn serve(listener: TcpListener, router: Router) -> std::io::Result<()> {
    let threads = std::thread::available_parallelism()?.get();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    listener.set_nonblocking(true)?;
    runtime.block_on(async {
        // Without it each answer on a kept connection waits for the acknowledgement of the one before.
        let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|socket| drop(socket.set_nodelay(true)));
        axum::serve(listener, router).await
    })
}

async fn fixed(Path(bytes): Path<usize>) -> Response {
    ([(CONTENT_TYPE, "text/event-stream")], Body::from(vec![b'x'; bytes])).into_response()
}

async fn sse(Path(events): Path<u64>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let data = "x".repeat(DATA);
    let events = (1..=events).map(move |id| Ok(Event::default().id(id.to_string()).data(&data)));
    Sse::new(tokio_stream::iter(events))
}

async fn idle() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(tokio_stream::pending()).keep_alive(KeepAlive::default())
}

async fn tick() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let ticks = IntervalStream::new(tokio::time::interval(Duration::from_secs(1)));
    let data = "x".repeat(DATA);
    let mut id = 0_u64;
    Sse::new(ticks.map(move |_| {
        id += 1;
        Ok(Event::default().id(id.to_string()).data(&data))
    }))
}

/// An MCP server with a few tools.
#[derive(Clone, Debug, Default)]
struct Tools {
    /// How often each key was called.
    executions: Arc<Mutex<HashMap<String, u32>>>,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

/// What the storm's `ticker` is asked.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Ticks {
    count: u32,
    interval_ms: u64,
    #[serde(default)]
    payload_bytes: usize,
    key: String,
}

#[tool_router]
impl Tools {
    #[tool(description = "Gives the text back.")]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }

    #[tool(description = "Numbered progress at once, and a result much later.")]
    async fn paused(&self, Parameters(asked): Parameters<Ticks>, context: RequestContext<RoleServer>) -> String {
        say(&asked, &context).await;
        tokio::time::sleep(PAUSE).await;
        String::new()
    }

    #[tool(description = "Numbered progress, then how often it ran.")]
    async fn ticker(&self, Parameters(asked): Parameters<Ticks>, context: RequestContext<RoleServer>) -> String {
        let executions = {
            let mut executions = self.executions.lock().unwrap_or_else(PoisonError::into_inner);
            let executions = executions.entry(asked.key.clone()).or_default();
            *executions += 1;
            *executions
        };
        say(&asked, &context).await;
        serde_json::json!({ "ticks": asked.count, "key": asked.key, "executions": executions }).to_string()
    }
}

/// The progress that was asked for.
async fn say(asked: &Ticks, context: &RequestContext<RoleServer>) {
    for tick in 1..=asked.count {
        tokio::time::sleep(Duration::from_millis(asked.interval_ms)).await;
        if let Some(token) = context.meta.get_progress_token() {
            let progress = ProgressNotificationParam::new(token, f64::from(tick))
                .with_total(f64::from(asked.count))
                .with_message("x".repeat(asked.payload_bytes));
            // Nobody listens just now: the transport keeps it.
            let _ = context.peer.notify_progress(progress).await;
        }
    }
}

#[tool_handler]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// Which holds so many messages of a stream, or as many as it does by itself.
fn service(held: Option<usize>) -> StreamableHttpService<Tools, LocalSessionManager> {
    let tools = Tools::default();
    let mut sessions = LocalSessionManager::default();
    if let Some(held) = held {
        sessions.session_config.channel_capacity = held;
    }
    StreamableHttpService::new(move || Ok(tools.clone()), sessions.into(), StreamableHttpServerConfig::default())
}

/// The physical limit: bytes that are there already, written as fast as the socket takes them.
fn blocking(listener: &TcpListener) -> std::io::Result<()> {
    let bytes: &'static [u8] = vec![b'x'; WRITE].leak();
    for socket in listener.incoming() {
        let socket = socket?;
        std::thread::spawn(move || write(socket, bytes));
    }
    Ok(())
}

fn write(mut socket: TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut head = [0; 4096];
    let length = socket.read(&mut head)?;
    let path = String::from_utf8_lossy(&head[..length]);
    let mut left: usize = path.split(' ').nth(1).and_then(|path| path[1..].parse().ok()).unwrap_or_default();
    write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: {left}\r\nConnection: close\r\n\r\n")?;
    while left > 0 {
        let part = left.min(bytes.len());
        socket.write_all(&bytes[..part])?;
        left -= part;
    }
    Ok(())
}
