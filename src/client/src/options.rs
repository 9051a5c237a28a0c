//! What a caller says of a session before it begins, and what its URL means.
//!
//! Never resolves a name and never opens a connection.

use std::fmt;
use std::sync::Arc;

use rejoin_proto::client::{BadConfig, Config};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

/// How a session is to be: start from [`Options::default`] and change what differs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Further fields of every request, such as `Authorization`.
    pub fields: Vec<(String, String)>,
    /// `clientInfo`: a JSON object with `name` and `version`.
    pub client_info: Option<String>,
    /// `capabilities`: a JSON object.
    pub capabilities: String,
    /// Whether to hear what the server says outside of calls.
    pub listen: bool,
    /// Notices that wait for [`Events`](crate::Events) to be read. More: the less important ones are left out, and
    /// [`Notice::Missed`](crate::Notice::Missed) says how many. Reason: a caller that does not read must not hold memory, or its own
    /// calls.
    pub notices: usize,
    /// The machine's bounds.
    pub limits: rejoin_proto::client::Limits,
    /// How `https` is spoken; `None` trusts Mozilla's authorities.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            client_info: None,
            capabilities: "{}".to_owned(),
            listen: true,
            notices: 1_024,
            limits: rejoin_proto::client::Limits::default(),
            tls: None,
        }
    }
}

/// Why an endpoint or its options cannot be used.
#[derive(Debug)]
pub enum BadEndpoint {
    /// It is no `http` or `https` URL with a host.
    Url(String),
    /// A request made of the options would not be what it seems.
    Config(BadConfig),
    /// What is to be trusted is no PEM with certificates; says why.
    Authorities(String),
    /// rustls does not take what it was given.
    Tls(rustls::Error),
}

impl fmt::Display for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(f, "{url:?} is no http or https URL"),
            Self::Config(bad) => write!(f, "the options cannot be sent: {bad:?}"),
            Self::Authorities(why) => write!(f, "no certificates to trust: {why}"),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BadEndpoint {}

/// Where to connect to, and whether by TLS.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// A name or an address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    pub(crate) tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

/// Reads a URL: where the server is, and what a machine must know of it. For those who move the bytes themselves.
pub fn endpoint(url: &str, options: Options) -> Result<(Endpoint, Config), BadEndpoint> {
    let bad_url = || BadEndpoint::Url(url.to_owned());
    let uri: http::Uri = url.parse().map_err(|_| bad_url())?;
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(bad_url()),
    };
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad_url)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = match authority.port_u16() {
        Some(port) => port,
        None if authority.as_str() == authority.host() => {
            if secure {
                443
            } else {
                80
            }
        }
        // What stands there is no port.
        None => return Err(bad_url()),
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut config = Config::new(authority.as_str(), path);
    config.fields = options.fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    if let Some(info) = options.client_info {
        config.client_info = info.into();
    }
    config.capabilities = options.capabilities.into();
    config.listen = options.listen;
    config.limits = options.limits;
    config.check().map_err(BadEndpoint::Config)?;
    let tls = if secure {
        let name = ServerName::try_from(host.clone()).map_err(|_| bad_url())?;
        let config = match options.tls {
            Some(config) => config,
            None => mozillas()?,
        };
        Some((config, name))
    } else {
        None
    };
    Ok((Endpoint { host, port, tls }, config))
}

fn mozillas() -> Result<Arc<rustls::ClientConfig>, BadEndpoint> {
    trusting_roots(rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() })
}

/// For [`Options::tls`]: trusts the authorities of this PEM text, and no others.
pub fn trusting(pem: &[u8]) -> Result<Arc<rustls::ClientConfig>, BadEndpoint> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| BadEndpoint::Authorities(error.to_string()))?;
        roots.add(certificate).map_err(BadEndpoint::Tls)?;
    }
    if roots.is_empty() {
        return Err(BadEndpoint::Authorities("there is no certificate in it".to_owned()));
    }
    trusting_roots(roots)
}

fn trusting_roots(roots: rustls::RootCertStore) -> Result<Arc<rustls::ClientConfig>, BadEndpoint> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(Arc::new(builder.map_err(BadEndpoint::Tls)?.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_what_to_ask_for() {
        let read = |url| {
            endpoint(url, Options::default()).map(|(target, config)| {
                (target.host, target.port, target.tls.is_some(), config.authority.to_string(), config.path.to_string())
            })
        };
        let expected =
            |host: &str, port, tls, authority: &str, path: &str| (host.into(), port, tls, authority.into(), path.into());
        assert_eq!(
            read("http://localhost:8080/mcp?a=b").unwrap(),
            expected("localhost", 8080, false, "localhost:8080", "/mcp?a=b")
        );
        assert_eq!(read("http://example.org").unwrap(), expected("example.org", 80, false, "example.org", "/"));
        assert_eq!(read("https://[::1]/x").unwrap(), expected("::1", 443, true, "[::1]", "/x"));
        for url in [
            "",
            "/mcp",
            "ftp://a/",
            "http:///mcp",
            "localhost:1",
            "http://user:pw@host/",
            "http://a b/",
            "http://a:b/",
            "http://a:/",
        ] {
            assert!(matches!(read(url), Err(BadEndpoint::Url(_))), "{url:?}");
        }
        let options = Options { fields: vec![("A".into(), "b\r\nC: d".into())], ..Options::default() };
        assert!(matches!(endpoint("http://a/", options), Err(BadEndpoint::Config(BadConfig::Field))));
    }

    #[test]
    fn nothing_is_trusted_that_is_no_certificate() {
        let framed = |what: &str| format!("-----BEGIN {what}-----\nAAAA\n-----END {what}-----\n");
        assert!(matches!(trusting(framed("CERTIFICATE").as_bytes()), Err(BadEndpoint::Tls(_))));
        for pem in ["", "rubbish", &framed("PRIVATE KEY"), "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(trusting(pem.as_bytes()), Err(BadEndpoint::Authorities(_))), "{pem}");
        }
    }
}
