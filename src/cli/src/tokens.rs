//! Bearer tokens: who holds which, from a file that may change while the server runs.
//!
//! Never logs a token, and never compares one in a time that depends on where two differ.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rejoin::{Authorize, Head, Principal, Unauthorized};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The tokens of a file: its lines are `principal token`, blank, or begin with `#`. Clones share what was read.
#[derive(Clone)]
pub(crate) struct Tokens {
    file: Arc<Path>,
    held: Arc<RwLock<Arc<[Held]>>>,
}

/// One line.
struct Held {
    principal: Principal,
    token: Box<[u8]>,
}

/// Why a file of tokens was not taken. Names the line, never what it says.
#[derive(Debug)]
pub(crate) struct BadTokens {
    file: PathBuf,
    why: String,
}

impl fmt::Display for BadTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--tokens {}: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for BadTokens {}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens of {}", self.file.display())
    }
}

impl Tokens {
    /// Reads a file.
    pub(crate) fn read(file: &Path) -> Result<Self, BadTokens> {
        let held = read(file)?;
        Ok(Self { file: file.into(), held: Arc::new(RwLock::new(held)) })
    }

    /// Reads the file again, and returns how many tokens it has. Where it is wrong, the old ones stay.
    pub(crate) fn reload(&self) -> Result<usize, BadTokens> {
        let held = read(&self.file)?;
        let count = held.len();
        // Nothing panics while it is locked, so a poisoned lock is as good as any.
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = held;
        Ok(count)
    }

    /// Whose token this is. Every token is compared, whichever matches; only a token's length shows in the time.
    fn holder(&self, token: &[u8]) -> Option<Principal> {
        let held = Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner));
        let (mut found, mut index) = (Choice::from(0), 0_u64);
        for (at, one) in (0..).zip(&*held) {
            let same = one.token.ct_eq(token);
            index.conditional_assign(&at, same);
            found |= same;
        }
        let holder = held.get(usize::try_from(index).ok()?)?;
        bool::from(found).then(|| holder.principal.clone())
    }
}

impl Authorize for Tokens {
    /// RFC 6750, section 3: no token at all is answered with the bare challenge, a wrong one with `invalid_token`.
    fn authorize(&self, head: &Head) -> Result<Principal, Unauthorized> {
        let challenge = |challenge: &str| Unauthorized { challenge: challenge.into() };
        let field = head.single("authorization").map_err(|_| challenge(r#"Bearer error="invalid_request""#))?;
        let token = field.and_then(bearer).ok_or_else(|| challenge("Bearer"))?;
        self.holder(token).ok_or_else(|| challenge(r#"Bearer error="invalid_token""#))
    }
}

/// The token of an `Authorization` field, whose scheme is spelled in any case (RFC 9110, section 11.1).
fn bearer(field: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = field.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn read(file: &Path) -> Result<Arc<[Held]>, BadTokens> {
    let bad = |why: String| BadTokens { file: file.into(), why };
    let text = fs::read_to_string(file).map_err(|error| bad(error.to_string()))?;
    parse(&text).map_err(bad)
}

fn parse(text: &str) -> Result<Arc<[Held]>, String> {
    let mut all: Vec<Held> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(principal), Some(token), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!("line {number} is not `principal token`"));
        };
        if !is_b64token(token) {
            return Err(format!("line {number}: a token has letters, digits and -._~+/ only, then perhaps ="));
        }
        if all.iter().any(|held| *held.token == *token.as_bytes()) {
            return Err(format!("line {number}: this token is listed already"));
        }
        all.push(Held { principal: Principal::new(principal), token: token.as_bytes().into() });
    }
    if all.is_empty() {
        return Err("it has no token".into());
    }
    Ok(all.into())
}

/// RFC 6750, section 2.1: what can be sent as a bearer token.
fn is_b64token(token: &str) -> bool {
    let body = token.trim_end_matches('=');
    !body.is_empty() && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Tokens {
        Tokens { file: Path::new("tokens").into(), held: Arc::new(RwLock::new(parse(text).expect("valid"))) }
    }

    #[test]
    fn a_principal_may_have_several_tokens_and_is_the_same_under_each() {
        let tokens = tokens("# people\n\nann  one\r\nbob two=\n\tann three\n");
        let holder = |token: &str| tokens.holder(token.as_bytes()).map(|principal| principal.as_str().to_owned());
        assert_eq!(holder("one").as_deref(), Some("ann"));
        assert_eq!(holder("three").as_deref(), Some("ann"));
        assert_eq!(holder("two=").as_deref(), Some("bob"));
        for wrong in ["", "on", "onee", "One", "two", "ann", "#"] {
            assert_eq!(holder(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_and_its_token_is_not() {
        for (text, said) in [
            ("ann secret-1\nbob", "line 2 is not"),
            ("ann secret-1 more", "line 1 is not"),
            ("ann secret\"1", "line 1: a token has"),
            ("ann ==", "line 1: a token has"),
            ("ann secret-1\nbob secret-1", "line 2: this token is listed already"),
            ("# nobody\n", "no token"),
        ] {
            let error = parse(text).err().expect("refused");
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
        assert_eq!(format!("{:?}", tokens("ann secret-1")), "Tokens of tokens");
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bEARER  abc"), Some(&b"abc"[..]));
        for wrong in [&b"Basic abc"[..], b"Bearer", b"Bearerabc", b"", b"\xff"] {
            assert_eq!(bearer(wrong), None);
        }
    }
}
