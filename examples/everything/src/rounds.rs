//! Input that a request without a session needs from its client: asked for by a result, given by the same request sent again.
//!
//! Never remembers a round here: what one must know of the one before goes through the client, sealed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rejoin::{Call, Reply, RpcError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

/// How long a state may be presented. Reason: people answer forms in minutes, and whoever finds one later should not use it.
const STATE_TTL: Duration = Duration::from_secs(10 * 60);
/// Longest state, in bytes. Reason: ours are shorter, and each is hashed.
const STATE_MAX: usize = 4 << 10;

/// The key of this process's states.
#[derive(Clone)]
pub(crate) struct Seal([u8; 16]);

impl Default for Seal {
    fn default() -> Self {
        let mut key = [0; 16];
        getrandom::fill(&mut key).expect("the system has random numbers");
        Self(key)
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(..)")
    }
}

/// What one round tells the next. MCP 2026-07-28, MRTR, "Server Requirements": servers "SHOULD include the following inside the
/// integrity-protected `requestState` payload and verify each on receipt: the authenticated principal […]; a short expiry […]; an
/// identifier for the originating request".
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    principal: String,
    of: String,
    until: u64,
    said: Value,
}

impl Seal {
    fn tag(&self, payload: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(payload);
        hasher.finish128().as_bytes()
    }

    /// A state that says `said` to the next round of a request called `of`.
    pub(crate) fn seal(&self, call: &Call, of: &str, said: &Value) -> String {
        self.close(&State {
            principal: call.session().principal().as_str().into(),
            of: of.into(),
            until: now() + STATE_TTL.as_secs(),
            said: said.clone(),
        })
    }

    fn close(&self, state: &State) -> String {
        let payload = json!(state).to_string();
        let sealed = [&self.tag(payload.as_bytes())[..], payload.as_bytes()].concat();
        URL_SAFE_NO_PAD.encode(sealed)
    }

    /// What a state says. The same, item 4: servers "MUST reject state that fails verification".
    pub(crate) fn open(&self, call: &Call, of: &str, sealed: &str) -> Result<Value, RpcError> {
        let state = self
            .unseal(sealed)
            .filter(|state| state.principal == call.session().principal().as_str() && state.of == of && state.until >= now());
        state
            .map(|state| state.said)
            .ok_or_else(|| RpcError::invalid_params("requestState is not one of this request's, or too old"))
    }

    fn unseal(&self, sealed: &str) -> Option<State> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok().filter(|_| sealed.len() <= STATE_MAX)?;
        let (tag, payload) = bytes.split_at_checked(16)?;
        // Compared without a way out half-way.
        let differing = self.tag(payload).iter().zip(tag).fold(0, |sum, (ours, theirs)| sum | (ours ^ theirs));
        (differing == 0).then(|| serde_json::from_slice(payload).ok()).flatten()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a client sent along with a request that it was asked to send again.
#[derive(Debug, Default)]
pub(crate) struct Given {
    responses: Map<String, Value>,
    pub(crate) state: Option<String>,
}

impl Given {
    /// Of a call's params. MCP 2026-07-28, MRTR, "Error Handling": "Servers SHOULD validate that the data provided by the client is a valid
    /// `InputResponses` object […]. Protocol errors […] SHOULD return a JSON-RPC error response".
    pub(crate) fn of(call: &Call) -> Result<Self, RpcError> {
        let params: Map<String, Value> = call.params()?;
        let responses = match params.get("inputResponses") {
            None => Map::new(),
            Some(Value::Object(responses)) => responses.clone(),
            Some(_) => return Err(RpcError::invalid_params("inputResponses must be an object")),
        };
        if let Some((key, _)) = responses.iter().find(|(_, response)| !response.is_object()) {
            return Err(RpcError::invalid_params(format_args!("inputResponses.{key} must be an object")));
        }
        let state = match params.get("requestState") {
            None => None,
            Some(Value::String(state)) => Some(state.clone()),
            Some(_) => return Err(RpcError::invalid_params("requestState must be a string")),
        };
        Ok(Self { responses, state })
    }

    /// The client's answer under this key.
    pub(crate) fn response(&self, key: &str) -> Option<&Value> {
        self.responses.get(key)
    }
}

/// The result that asks for input.
pub(crate) fn required(requests: &[(&str, Value)], state: Option<String>) -> Reply {
    let requests: Map<String, Value> = requests.iter().map(|(key, request)| ((*key).to_owned(), request.clone())).collect();
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    result.into()
}

/// A form with one text in it.
pub(crate) fn form(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
    json!({ "method": "elicitation/create", "params": { "mode": "form", "message": message, "requestedSchema": schema } })
}

/// What the user wrote into a form's field; `None` where the form was not accepted with it.
pub(crate) fn written<'a>(response: &'a Value, field: &str) -> Option<&'a Value> {
    (response["action"] == "accept").then(|| response["content"].get(field)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_opened_by_the_key_that_sealed_it_and_unchanged() {
        let (seal, state) = (Seal([7; 16]), State { principal: "p".into(), of: "t".into(), until: 9, said: json!(["Alice", 1]) });
        let sealed = seal.close(&state);
        assert_eq!(seal.unseal(&sealed), Some(state));
        assert_eq!(Seal([8; 16]).unseal(&sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(seal.unseal(&String::from_utf8(changed).expect("ASCII")), None, "changed at {at}");
        }
        for wrong in ["", "x", "-TAMPERED", &format!("{sealed}-TAMPERED"), &"A".repeat(STATE_MAX + 1)] {
            assert_eq!(seal.unseal(wrong), None, "{wrong:.20}");
        }
    }
}
