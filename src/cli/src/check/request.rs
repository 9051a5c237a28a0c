//! Requests as cases write them, field by field.
//!
//! Never adds what was not asked for, and never keeps back what is wrong: a case about refusals needs both.

/// A request, to be sent as it is written here.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: &'static str,
    path: String,
    fields: Vec<(String, String)>,
    /// Fields that the user gave, which no transcript shows.
    given: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request for this path of this host, with the fields that the user gave.
    pub(crate) fn new(method: &'static str, path: &str, host: &str, given: &[(String, String)]) -> Self {
        let fields = vec![("Host".to_owned(), host.to_owned())];
        Self { method, path: path.to_owned(), fields, given: given.to_vec(), body: Vec::new() }
    }

    /// The same with one field more.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same without any such field.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        self.given.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        self
    }

    /// The same with this field in place of any of its name.
    pub(crate) fn set(self, name: &str, value: &str) -> Self {
        self.without(name).with(name, value)
    }

    /// The same with this secret in place of the one that the user gave.
    pub(crate) fn authorized(mut self, token: &str) -> Self {
        self = self.without("Authorization");
        self.given.push(("Authorization".to_owned(), format!("Bearer {token}")));
        self
    }

    /// The same with this body and its length.
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len().to_string();
        self.set("Content-Length", &length)
    }

    /// Its bytes on the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head(|value| value.to_owned()).into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// The same as a transcript shows it.
    pub(crate) fn shown(&self) -> String {
        format!("{}{}", self.head(|_| "(yours, not shown)".to_owned()), String::from_utf8_lossy(&self.body))
    }

    fn head(&self, given: impl Fn(&str) -> String) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        for (name, value) in &self.given {
            head.push_str(&format!("{name}: {}\r\n", given(value)));
        }
        head.push_str("\r\n");
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_as_it_is_written_and_shown_without_secrets() {
        let given = [("Authorization".to_owned(), "Bearer secret".to_owned())];
        let request = Request::new("GET", "/mcp", "h:1", &given).with("Last-Event-ID", "a").with("Last-Event-ID", "b");
        let text = String::from_utf8(request.bytes()).expect("text");
        assert_eq!(
            text,
            "GET /mcp HTTP/1.1\r\nHost: h:1\r\nLast-Event-ID: a\r\nLast-Event-ID: b\r\nAuthorization: Bearer secret\r\n\r\n"
        );
        assert!(!request.shown().contains("secret") && request.shown().contains("Last-Event-ID: b"));
        let other = String::from_utf8(request.authorized("other").without("Host").bytes()).expect("text");
        assert!(other.contains("Bearer other") && !other.contains("secret") && !other.contains("Host"));
    }
}
