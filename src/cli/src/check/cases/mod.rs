//! The cases, in their order: what each is called, what it expects and by which row, what it needs, and what it rests on.
//!
//! Never runs one.

mod cursor;
mod http;
mod post;
mod replay;
mod restart;
mod session;
mod standalone;
mod stream;

use super::bench::Bench;
use super::wire::Trouble;

/// What a case needs of a target or its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Session ids.
    Sessions,
    /// GET answered with a stream.
    Listening,
    /// A tool that emits several events on a stream.
    Tool,
    /// Events with ids.
    Ids,
    /// A tool of which so many events can be asked, this fast.
    Adjustable,
    /// Executions that can be counted.
    Effects,
    /// `--restart-command`.
    Restart,
    /// `--expire-after`.
    Expiry,
    /// `--token`.
    Token,
    /// `--other-token`.
    OtherToken,
    /// A tool of this name.
    ToolNamed(&'static str),
    /// A target on this machine, whose name is not a virtual host's.
    Loopback,
    /// The newest revision with sessions.
    Newest,
}

impl Need {
    /// Why it is not there; `None` where it is.
    pub(crate) fn lacking(self, bench: &Bench) -> Option<String> {
        let (known, settings) = (&bench.known, &bench.settings);
        let unless = |has: bool, why: &str| (!has).then(|| why.to_owned());
        match self {
            Self::Sessions => unless(known.sessions, "the server gives no session ids"),
            Self::Listening => unless(known.listens, "the server does not answer a GET with a stream"),
            Self::Tool => known.fit.as_ref().err().cloned(),
            Self::Ids => unless(known.ids, "the server's events have no ids"),
            Self::Adjustable => match &known.fit {
                Ok(fit) => {
                    unless(fit.is_adjustable(), "the number of the tool's events cannot be asked for (\"$events\" in --args)")
                }
                Err(why) => Some(why.clone()),
            },
            Self::Effects => match &known.effects {
                super::server::Effects::Unseen(why) => Some(why.clone()),
                _ => None,
            },
            Self::Restart => unless(settings.restart.is_some(), "needs --restart-command"),
            Self::Expiry => {
                unless(settings.expire_after.is_some(), "needs --expire-after, the time after which an idle session has expired")
            }
            Self::Token => unless(settings.token, "needs --token"),
            Self::OtherToken => unless(settings.other_token.is_some(), "needs --other-token, another principal's"),
            Self::ToolNamed(name) => {
                unless(known.tools.iter().any(|tool| tool == name), &format!("needs a tool as rejoin's `{name}`"))
            }
            Self::Loopback => unless(bench.io.target.address.ip().to_canonical().is_loopback(), "needs a target on this machine"),
            Self::Newest => unless(known.revision == super::bench::NEWEST, "the server does not speak 2025-11-25"),
        }
    }
}

/// A case.
pub(crate) struct Case {
    /// What it is called, everywhere.
    pub(crate) name: &'static str,
    /// What it is about.
    pub(crate) group: &'static str,
    /// What is done and what must come.
    pub(crate) expects: &'static str,
    /// The place on the boundary page.
    pub(crate) boundary: &'static str,
    /// What it needs.
    pub(crate) needs: &'static [Need],
    /// Cases without whose success it would find the same again.
    pub(crate) rests_on: &'static [&'static str],
    /// Does it.
    pub(crate) run: fn(&Bench) -> Result<(), Trouble>,
}

/// All cases, in order.
pub(crate) fn all() -> Vec<&'static Case> {
    [cursor::CASES, session::CASES, replay::CASES, post::CASES, stream::CASES, standalone::CASES, http::CASES, restart::CASES]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_a_case_rests_on_earlier_ones() {
        let all = all();
        for (at, case) in all.iter().enumerate() {
            let before: Vec<_> = all[..at].iter().map(|case| case.name).collect();
            assert!(!before.contains(&case.name), "{} is there twice", case.name);
            assert!(
                case.rests_on.iter().all(|name| before.contains(name)),
                "{} rests on what does not come before it",
                case.name
            );
            assert!(case.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", case.name);
        }
    }
}
