//! The admin listener: metrics, health and the shards' state over plain HTTP, for the operator's own network.
//!
//! One thread with a tokio runtime of its own: nothing here runs on a shard, and no number of slow clients holds anything up. Never
//! serves MCP, never changes anything, never shows a session's id, a principal or a token.

mod pages;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rejoin::ServerHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::gateway::Plant;
use pages::{Page, Pages};

/// Connections at once. One more takes the place of the oldest, so that those who linger cannot lock a scraper out.
const CONNECTIONS: usize = 32;
/// From a connection's beginning to the end of its request's head. Longer: it is closed.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// From a connection's beginning to its end; each answers one request. Longer: it is closed. Reason: a client may read slowly, too.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a request's head. More: 431.
const HEAD_BYTES: usize = 16 << 10;
/// Pages made at once; the rest wait. Reason: each may wait for a stuck shard on a thread of its own.
const PAGES_AT_ONCE: usize = 4;
/// The pause after an accept that failed: a process without descriptors must not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the listener, whose thread lives as long as the process. Says in the log where it listens.
pub(crate) fn start(address: SocketAddr, server: ServerHandle, plant: Option<Arc<Plant>>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(PAGES_AT_ONCE)
        .thread_name("admin-page")
        .build()?;
    let listener = runtime.block_on(TcpListener::bind(address))?;
    let bound = listener.local_addr()?;
    let admin = Arc::new(Admin {
        pages: Pages::new(server, plant),
        loopback: bound.ip().to_canonical().is_loopback(),
        making: Arc::new(Semaphore::new(PAGES_AT_ONCE)),
    });
    tracing::info!(address = %bound, "admin listening");
    if !admin.loopback {
        tracing::warn!(address = %bound, "other machines can reach the admin listener, and it asks nobody who they are");
    }
    thread::Builder::new().name("admin".into()).spawn(move || runtime.block_on(accept(listener, admin))).map(drop)
}

/// What every connection shares.
struct Admin {
    pages: Pages,
    loopback: bool,
    making: Arc<Semaphore>,
}

async fn accept(listener: TcpListener, admin: Arc<Admin>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "the admin listener cannot accept");
                sleep(PAUSE).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(serve(stream, Arc::clone(&admin))).abort_handle());
    }
}

/// One connection, one request.
async fn serve(stream: TcpStream, admin: Arc<Admin>) {
    let service = service_fn(move |request| answer(Arc::clone(&admin), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Whoever breaks off, or is too slow, gets no answer.
    let _ = timeout(CONNECTION_WITHIN, connection).await;
}

async fn answer(admin: Arc<Admin>, request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    if admin.loopback && !names_no_domain(request.headers().get(HOST)) {
        let why = "An address of this machine only answers to addresses and to localhost\n";
        return Ok(response(Page::text(StatusCode::FORBIDDEN, why.into())));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = response(Page::text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n".into()));
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    let path = request.uri().path().to_owned();
    let Ok(permit) = Arc::clone(&admin.making).acquire_owned().await else {
        return Ok(response(Page::text(StatusCode::SERVICE_UNAVAILABLE, "ending\n".into())));
    };
    let made = tokio::task::spawn_blocking(move || {
        let page = admin.pages.page(&path);
        drop(permit);
        page
    });
    let failed = |_| Page::text(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made\n".into());
    Ok(response(made.await.unwrap_or_else(failed)))
}

/// Whether a `Host` is an address or `localhost`, or absent: a page of another site that had its name resolved to this machine would
/// send that name.
fn names_no_domain(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host else { return true };
    let Some(authority) = host.to_str().ok().and_then(|host| host.parse::<hyper::http::uri::Authority>().ok()) else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// A page as a response. (hyper leaves the body of an answer to HEAD out, and its length in.)
fn response(page: Page) -> Response<String> {
    let mut response = Response::new(page.body);
    *response.status_mut() = page.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_no_domain() {
        let check = |host: &str| names_no_domain(HeaderValue::from_str(host).ok().as_ref());
        for host in ["localhost", "LocalHost:9", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "10.0.0.7:1"] {
            assert!(check(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "", "a b", "127.0.0.1@evil.example"] {
            assert!(!check(host), "{host}");
        }
        assert!(names_no_domain(None));
    }
}
