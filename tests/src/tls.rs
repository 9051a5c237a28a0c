//! TLS in front of a server, as a load balancer ends it: its own authority, a thread a connection, and bytes passed on as they are.
//!
//! Never reads a request.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How long one side is waited for before the other has its turn.
const TURN: Duration = Duration::from_millis(2);

/// A running front.
#[derive(Debug)]
pub struct TlsFront {
    /// Where it listens.
    pub address: SocketAddr,
    /// The authority of its certificate, as PEM.
    pub authority: String,
}

impl TlsFront {
    /// Starts one, on a thread that lives as long as the process.
    pub fn start(behind: SocketAddr) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("its own key");
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
                thread::spawn(move || pass_on(StreamOwned::new(connection, socket), behind));
            }
        });
        Self { address, authority: made.cert.pem() }
    }
}

/// Passes bytes on until one side ends.
fn pass_on(mut client: StreamOwned<ServerConnection, TcpStream>, behind: SocketAddr) -> Option<()> {
    let mut server = TcpStream::connect(behind).ok()?;
    server.set_read_timeout(Some(TURN)).ok()?;
    client.sock.set_read_timeout(Some(TURN)).ok()?;
    let mut buffer = [0; 16 << 10];
    loop {
        if let Some(count) = read(&mut client, &mut buffer)? {
            server.write_all(&buffer[..count]).ok()?;
        }
        match read(&mut server, &mut buffer) {
            Some(Some(count)) => client.write_all(&buffer[..count]).and_then(|()| client.flush()).ok()?,
            Some(None) => {}
            None => {
                client.conn.send_close_notify();
                client.flush().ok()?;
                return client.sock.shutdown(Shutdown::Both).ok();
            }
        }
    }
}

/// What came in this turn, if anything; `None` at the end.
fn read(from: &mut impl Read, buffer: &mut [u8]) -> Option<Option<usize>> {
    match from.read(buffer) {
        Ok(0) => None,
        Ok(count) => Some(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Some(None),
        Err(_) => None,
    }
}
