//! The server under test: its address, and what every request to it carries.
//!
//! Refuses a machine that is not this one, unless it is told that it is the user's own: a storm or a check is an attack on anybody else.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rejoin_client::{Endpoint, Options, endpoint};
use rejoin_proto::client::{Config, Limits, Returns};
use serde_json::{Map, Value};

/// A target.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its URL as it was given.
    pub(crate) url: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// How its connections begin.
    pub(crate) endpoint: Endpoint,
    /// What every session's machine is told.
    pub(crate) config: Arc<Config>,
}

/// What a target is, beside its URL.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// The command that is about to do something to it: `storm`, `check`.
    pub(crate) command: &'static str,
    /// Fields of every request.
    pub(crate) fields: Vec<(String, String)>,
    /// The only authorities that are trusted, as PEM.
    pub(crate) authorities: Option<Vec<u8>>,
    /// It is the user's own.
    pub(crate) owned: bool,
}

impl Target {
    /// Reads a URL, finds its address, and asks whether it may be stormed.
    pub(crate) fn new(url: &str, terms: &Terms) -> Result<Self, String> {
        let tls = terms.authorities.as_deref().map(rejoin_client::trusting).transpose().map_err(|bad| bad.to_string())?;
        let name = format!("rejoin-{}", terms.command);
        let info = format!(r#"{{"name":"{name}","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
        let mut fields = vec![("User-Agent".to_owned(), name)];
        fields.extend(terms.fields.iter().cloned());
        let options =
            Options { fields, client_info: Some(info), listen: false, limits: without_clocks(), tls, ..Options::default() };
        let (endpoint, mut config) = endpoint(url, options).map_err(|bad| bad.to_string())?;
        config.returns = Returns::ByCaller;
        // The observer sees them.
        config.notifications = false;
        let host = endpoint.host.as_str();
        let found = (host, endpoint.port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?.collect::<Vec<_>>();
        // Where a name has several addresses, one that is here is taken.
        let here = found.iter().find(|address| address.ip().to_canonical().is_loopback());
        let Some(&address) = here.or(found.first()) else { return Err(format!("{host} has no address")) };
        if !terms.owned && !address.ip().to_canonical().is_loopback() {
            return Err(format!(
                "{host} ({}) is not this machine: a {} is an attack on anyone who did not ask for it. If the server is yours, say --i-own-this-target",
                address.ip(),
                terms.command
            ));
        }
        Ok(Self { url: url.to_owned(), address, endpoint, config: Arc::new(config) })
    }
}

/// A machine's limits for a session whose one connection nobody ends but the script, and whose patience is the storm's own.
fn without_clocks() -> Limits {
    let never = Duration::MAX;
    Limits {
        connect_timeout: never,
        answer_timeout: never,
        linger: never,
        idle: 1,
        reuse: never,
        call_max_age: never,
        silence: None,
        ..Limits::default()
    }
}

/// The fields that `--header` and `--token` ask for.
pub(crate) fn given_fields(headers: &[(String, String)], token: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let mut fields = headers.to_vec();
    if let Some(token) = token {
        fields.push(field(&format!("Authorization: Bearer {token}"))?);
    }
    Ok(fields)
}

/// Reads the file that `--ca` names.
pub(crate) fn authorities(file: Option<&Path>) -> Result<Option<Vec<u8>>, String> {
    file.map(|file| fs::read(file).map_err(|error| format!("{}: {error}", file.display()))).transpose()
}

/// Reads the object that `--args` is.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("a JSON object: {error}"))
}

/// Reads a field that is to be sent: `Name: value`, and nothing that could end its line.
pub(crate) fn field(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once(':') else { return Err("a field is Name: value".into()) };
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte)) {
        return Err(format!("{name:?} is no field's name"));
    }
    if value.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("a field's value has no control characters".into());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str, owned: bool) -> Result<Target, String> {
        Target::new(url, &Terms { command: "storm", owned, ..Terms::default() })
    }

    #[test]
    fn a_target_elsewhere_is_refused_unless_it_is_ones_own() {
        let error = target("http://192.0.2.7:80/mcp", false).expect_err("refused");
        assert!(error.contains("--i-own-this-target") && error.contains("192.0.2.7"), "{error}");
        assert!(target("http://192.0.2.7:80/mcp", true).is_ok());
        for here in ["http://127.0.0.1:1/mcp", "http://127.9.9.9/mcp", "https://[::1]:8/mcp", "http://[::ffff:127.0.0.1]:8/"] {
            assert!(target(here, false).is_ok(), "{here}");
        }
    }

    #[test]
    fn what_is_no_http_url_is_refused() {
        for wrong in [
            "ftp://127.0.0.1/mcp",
            "127.0.0.1:80",
            "http://",
            "http://u:p@127.0.0.1/",
            "http://127.0.0.1/a b",
            "http://127.0.0.1:x/",
        ] {
            assert!(target(wrong, false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_machine_is_told_what_the_user_says_and_keeps_no_time_of_its_own() {
        let fields = vec![("Authorization".to_owned(), "Bearer t".to_owned())];
        let target = Target::new("http://127.0.0.1:8931/mcp?a", &Terms { fields, ..Terms::default() }).expect("a target");
        let config = &target.config;
        assert_eq!((&*config.authority, &*config.path), ("127.0.0.1:8931", "/mcp?a"));
        assert!(config.fields.contains(&("Authorization".into(), "Bearer t".into())));
        assert!(!config.listen && config.returns == Returns::ByCaller && config.limits.reuse == Duration::MAX);
        let own = Terms { fields: vec![("Last-Event-ID".to_owned(), "x".to_owned())], ..Terms::default() };
        assert!(Target::new("http://127.0.0.1/", &own).is_err(), "a machine's own field");
        assert!(Target::new("https://127.0.0.1/", &Terms { authorities: Some(b"x".to_vec()), ..Terms::default() }).is_err());
    }

    #[test]
    fn a_field_that_would_end_its_line_is_refused() {
        assert_eq!(field("X-A:  b "), Ok(("X-A".into(), "b".into())));
        for wrong in ["no colon", ": x", "a b: c", "a: b\r\nc: d", "a: \0"] {
            assert!(field(wrong).is_err(), "{wrong:?}");
        }
    }
}
