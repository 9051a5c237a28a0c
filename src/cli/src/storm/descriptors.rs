//! Descriptors enough for every connection, or a word on what to raise.
//!
//! Never opens anything.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::script::{How, Kind, Script};

/// Descriptors beside the connections: drivers, standard streams, files that are written at the end.
const OTHERS: u64 = 64;

/// How many descriptors a script may need at once.
pub(super) fn needed(script: &Script) -> u64 {
    let sessions = f64::from(script.sessions);
    let silent = script.phases.iter().map(|phase| match &phase.kind {
        Kind::Cut(cut) | Kind::Forge { cut, .. } if matches!(cut.how, How::Silence | How::Mixed) => {
            // Of mixed cuts a third is silent; each stays until its session is back.
            let part = if cut.how == How::Mixed { 0.5 } else { 1.0 };
            sessions * cut.share.get() * part
        }
        _ => 0.0,
    });
    // Saturates, and is bounded by the sessions twice over.
    let silent = silent.fold(0.0, f64::max).ceil() as u64;
    u64::from(script.sessions) + silent + OTHERS
}

/// Raises the soft limit as far as that takes; says what to do where it does not suffice.
pub(super) fn provide(needed: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|most| most < needed) {
        let most = limit.maximum.unwrap_or_default();
        return Err(format!(
            "the storm needs {needed} descriptors, and this process may have {most}: raise the hard limit (ulimit -Hn {needed} as root, \
             LimitNOFILE= of a service, nofile in limits.conf), or ask for fewer with --sessions"
        ));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum }).map_err(|error| {
        format!("the storm needs {needed} descriptors; ulimit -n {needed} would allow them, raising it here failed: {error}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(phase: &str) -> Script {
        let text = format!("summary = \"s\"\n[population]\nsessions = 1000\n[[phase]]\nkind = \"ramp\"\nfor = \"1s\"\n{phase}");
        Script::parse("x.toml", &text).expect("a script")
    }

    #[test]
    fn what_is_silently_cut_needs_a_second_descriptor() {
        let cut = |how: &str| format!("[[phase]]\nkind = \"cut\"\nfor = \"1s\"\nshare = 0.5\nhow = \"{how}\"\n");
        assert_eq!(needed(&script("")), 1_000 + OTHERS);
        assert_eq!(needed(&script(&cut("rst"))), 1_000 + OTHERS);
        assert_eq!(needed(&script(&cut("silence"))), 1_500 + OTHERS);
    }

    #[test]
    fn more_than_the_hard_limit_is_refused_with_the_number() {
        assert_eq!(provide(1), Ok(()));
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let why = provide(u64::MAX).expect_err("no such limit");
            assert!(why.contains(&u64::MAX.to_string()) && why.contains("--sessions"), "{why}");
        }
    }
}
