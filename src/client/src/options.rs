//! What a caller says of a session before it begins, and what its URL means.
//!
//! Never resolves a name and never opens a connection.

use std::fmt;
use std::sync::Arc;

use rejoin_proto::client::{BadConfig, Config};
use rustls::pki_types::ServerName;

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
    /// rustls does not take what it was given.
    Tls(rustls::Error),
}

impl fmt::Display for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(f, "{url:?} is no http or https URL"),
            Self::Config(bad) => write!(f, "the options cannot be sent: {bad:?}"),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BadEndpoint {}

/// Where to connect to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// A name or an address, without brackets.
    pub host: String,
    pub port: u16,
    pub tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

/// Reads an endpoint: where it is, and what its machine must know.
pub(crate) fn endpoint(url: &str, options: Options) -> Result<(Target, Config), BadEndpoint> {
    let bad_url = || BadEndpoint::Url(url.to_owned());
    let uri: http::Uri = url.parse().map_err(|_| bad_url())?;
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(bad_url()),
    };
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad_url)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
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
    Ok((Target { host, port, tls }, config))
}

fn mozillas() -> Result<Arc<rustls::ClientConfig>, BadEndpoint> {
    let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
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
        for url in ["", "/mcp", "ftp://a/", "http:///mcp", "localhost:1", "http://user:pw@host/", "http://a b/"] {
            assert!(matches!(read(url), Err(BadEndpoint::Url(_))), "{url:?}");
        }
        let options = Options { fields: vec![("A".into(), "b\r\nC: d".into())], ..Options::default() };
        assert!(matches!(endpoint("http://a/", options), Err(BadEndpoint::Config(BadConfig::Field))));
    }
}
