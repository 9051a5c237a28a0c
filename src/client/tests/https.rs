//! `https`, on both runtimes: a server whose certificate is trusted is spoken to, and one whose is not gets no request.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rejoin_client::{ConnectError, Loss, Options, Outcome, StartError};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A server that answers one request a connection.
struct Server {
    url: String,
    certificate: rustls::pki_types::CertificateDer<'static>,
    requests: Arc<AtomicUsize>,
}

fn answer(request: &str) -> String {
    let json = |body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    if request.contains(r#""method":"initialize""#) {
        json(r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#)
    } else if request.contains("tools/call") {
        // As long as the connection: only TLS's own goodbye tells its end from a cut.
        let result = "x".repeat(100_000);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{result}"}}"#);
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{body}")
    } else {
        "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_owned()
    }
}

impl Server {
    fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("its own key");
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://localhost:{}/mcp", listener.local_addr().expect("bound").port());
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let connection = rustls::ServerConnection::new(Arc::clone(&config)).expect("a connection");
                let mut stream = rustls::StreamOwned::new(connection, socket);
                let (mut request, mut buffer) = (String::new(), [0; 4096]);
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    request += &String::from_utf8_lossy(&buffer[..read]);
                    let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
                    let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
                    if body.len() < length.unwrap_or(0) {
                        continue;
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                    // The client may have closed it meanwhile.
                    let _ = stream.write_all(answer(&request).as_bytes());
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                    break;
                }
            }
        });
        Self { url, certificate, requests }
    }

    fn trusted(&self) -> Options {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a certificate");
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Options { tls: Some(Arc::new(config)), listen: false, ..Options::default() }
    }
}

fn is_long(outcome: &Outcome) -> bool {
    outcome.result().is_some_and(|result| result.len() == 100_002)
}

#[test]
fn on_monoio_a_trusted_server_is_spoken_to_and_another_is_not() {
    let server = Server::start();
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build().expect("a runtime");
    runtime.block_on(async {
        let (client, _events) = rejoin_client::monoio::connect(&server.url, server.trusted()).await.expect("a session");
        assert!(is_long(&client.call("tools/call", serde_json::json!({})).await));
        let asked = server.requests.load(Ordering::Relaxed);
        let refused = rejoin_client::monoio::connect(&server.url, Options::default()).await;
        assert!(matches!(refused, Err(ConnectError::Start(StartError::Lost(Loss::Unreachable)))));
        assert_eq!(server.requests.load(Ordering::Relaxed), asked);
    });
}

#[cfg(feature = "tokio")]
#[test]
fn on_tokio_a_trusted_server_is_spoken_to_and_another_is_not() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, _events) = rejoin_client::tokio::connect(&server.url, server.trusted()).await.expect("a session");
        assert!(is_long(&client.call("tools/call", serde_json::json!({})).await));
        let asked = server.requests.load(Ordering::Relaxed);
        let refused = rejoin_client::tokio::connect(&server.url, Options::default()).await;
        assert!(matches!(refused, Err(ConnectError::Start(StartError::Lost(Loss::Unreachable)))));
        assert_eq!(server.requests.load(Ordering::Relaxed), asked);
    });
}
