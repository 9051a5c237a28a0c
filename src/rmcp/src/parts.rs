//! A request's head as rmcp's handlers look for it: `http::request::Parts`.
//!
//! Never fails: what the `http` crate does not take (rejoin admits nothing that is not a field) is left out.

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Version};
use rejoin::Session;

/// The head that a handle came with, and in its extensions the handle and whose it is. `None` where the server keeps no heads.
pub(crate) fn of(session: &Session) -> Option<Parts> {
    let head = session.head()?;
    let mut request = Request::new(());
    // Messages of a client come by POST alone.
    *request.method_mut() = Method::POST;
    *request.uri_mut() = head.target().parse().unwrap_or_default();
    *request.version_mut() = match head.version() {
        rejoin::HttpVersion::Http10 => Version::HTTP_10,
        rejoin::HttpVersion::Http11 => Version::HTTP_11,
    };
    for (name, value) in head.fields() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            request.headers_mut().append(name, value);
        }
    }
    request.extensions_mut().insert(session.clone());
    request.extensions_mut().insert(session.principal().clone());
    Some(request.into_parts().0)
}
