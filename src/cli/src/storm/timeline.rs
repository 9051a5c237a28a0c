//! What a script means for each session: when it begins, and what befalls it when.
//!
//! A function of the script, the seed and the session's number: two runs with one seed do the same at the same instants. Never
//! knows what the server answers.

use std::time::Duration;

use fastrand::Rng;

use super::script::{Back, Call, Cut, Forgery, How, Kind, Phase, Script};
use super::units::Share;

/// Steps of the golden ratio are as even as any can be: of n sessions, a share of them is n times the share, within one or two.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Something that befalls a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trouble {
    /// When, since the run's start.
    pub(crate) at: Duration,
    /// What.
    pub(crate) what: What,
}

/// What befalls a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    /// Its connection is cut.
    Cut {
        /// How.
        how: Breaks,
        /// Not before this instant may it come back; `None`: when the server's `retry` says.
        back: Option<Duration>,
        /// The cursor that it shows before its own.
        forgery: Option<Forgery>,
    },
    /// It reads so many bytes a second until then.
    Slow {
        /// Bytes a second.
        rate: usize,
        /// When it is itself again.
        until: Duration,
    },
    /// It ends its call, closes its connection, and is quiet until then.
    Lapse {
        /// When it comes back.
        until: Duration,
    },
}

/// How one connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// By a reset.
    Rst,
    /// By an orderly end.
    Fin,
    /// Silently: it stays open, and nobody reads.
    Silence,
}

/// A session's fate, as the script has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// When it begins.
    pub(crate) begins: Duration,
    /// What befalls it, in order.
    pub(crate) troubles: Vec<Trouble>,
}

/// A phase with its place in the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    /// Its beginning, since the run's.
    pub(crate) from: Duration,
    /// Its end.
    pub(crate) to: Duration,
    /// The phase.
    pub(crate) phase: &'a Phase,
}

/// The phases with their places.
pub(crate) fn phases(script: &Script) -> impl Iterator<Item = Placed<'_>> {
    script.phases.iter().scan(Duration::ZERO, |end, phase| {
        let from = *end;
        *end += phase.length;
        Some(Placed { from, to: *end, phase })
    })
}

/// What is called at this instant.
pub(crate) fn call_at(script: &Script, at: Duration) -> &Call {
    let begun = phases(script).take_while(|placed| placed.from <= at);
    begun.filter_map(|placed| placed.phase.call.as_ref()).last().unwrap_or(&script.call)
}

/// The fate of a session; `None` where no ramp reaches it.
pub(crate) fn schedule(script: &Script, seed: u64, session: u32) -> Option<Schedule> {
    let begins = begins(script, session)?;
    let mut troubles = Vec::new();
    for (number, placed) in (0_u64..).zip(phases(script)) {
        let phase_seed = seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let offset = Rng::with_seed(phase_seed).f64();
        let takes_part = |share: Share| (f64::from(session) * GOLDEN + offset).fract() < share.get();
        let mut rng = Rng::with_seed(phase_seed.rotate_left(17) ^ u64::from(session).wrapping_mul(0xd6e8_feb8_6659_fd93));
        match &placed.phase.kind {
            Kind::Cut(cut) if takes_part(cut.share) => cuts(&placed, cut, &[], &mut rng, &mut troubles),
            Kind::Forge { cut, cursors } if takes_part(cut.share) => cuts(&placed, cut, cursors, &mut rng, &mut troubles),
            Kind::Slow { share, rate } if takes_part(*share) => {
                troubles.push(Trouble { at: placed.from, what: What::Slow { rate: *rate, until: placed.to } });
            }
            Kind::Lapse { share } if takes_part(*share) => {
                troubles.push(Trouble { at: placed.from, what: What::Lapse { until: placed.to } });
            }
            _ => {}
        }
    }
    troubles.retain(|trouble| trouble.at >= begins);
    Some(Schedule { begins, troubles })
}

/// Sessions begin in the order of their numbers, evenly over each ramp.
fn begins(script: &Script, session: u32) -> Option<Duration> {
    let all = f64::from(script.sessions);
    let mut begun = 0.0;
    for placed in phases(script) {
        let Kind::Ramp { share } = placed.phase.kind else { continue };
        let until = (share.get() * all).ceil();
        let number = f64::from(session);
        if number < until && number >= begun {
            let length = placed.to - placed.from;
            return Some(placed.from + length.mul_f64((number - begun) / (until - begun)));
        }
        begun = until.max(begun);
    }
    None
}

fn cuts(placed: &Placed<'_>, cut: &Cut, cursors: &[Forgery], rng: &mut Rng, troubles: &mut Vec<Trouble>) {
    let part = placed.phase.length / cut.times;
    for time in 0..cut.times {
        let from = placed.from + part * time;
        let room = match cut.back {
            Back::Retry => part,
            Back::Herd { away } => part.saturating_sub(away),
            Back::Jittered { away, spread } => part.saturating_sub(away + spread),
        };
        let at = if cut.at_once { from } else { from + room.mul_f64(rng.f64()) };
        let back = match cut.back {
            Back::Retry => None,
            Back::Herd { away } => Some(at + away),
            Back::Jittered { away, spread } => Some(at + away + spread.mul_f64(rng.f64())),
        };
        let how = match cut.how {
            How::Rst => Breaks::Rst,
            How::Fin => Breaks::Fin,
            How::Silence => Breaks::Silence,
            How::Mixed => [Breaks::Rst, Breaks::Fin, Breaks::Silence][rng.usize(..3)],
        };
        let forgery = rng.choice(cursors).copied();
        troubles.push(Trouble { at, what: What::Cut { how, back, forgery } });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn script(phases: &str) -> Script {
        let head = "summary = \"s\"\n[population]\nsessions = 1000\n";
        Script::parse("x.toml", &format!("{head}{phases}")).unwrap_or_else(|error| panic!("{error}"))
    }

    fn phase(kind: &str, seconds: u32, rest: &str) -> String {
        format!("[[phase]]\nkind = \"{kind}\"\nfor = \"{seconds}s\"\n{rest}\n")
    }

    #[test]
    fn a_ramp_begins_sessions_evenly_and_a_second_one_the_rest() {
        let script = script(&(phase("ramp", 10, "share = 0.4") + &phase("steady", 10, "") + &phase("ramp", 5, "share = 0.9")));
        let begins = |session| schedule(&script, 1, session).map(|schedule| schedule.begins);
        assert_eq!(begins(0), Some(Duration::ZERO));
        assert_eq!(begins(200), Some(SECOND * 5));
        assert_eq!(begins(400), Some(SECOND * 20));
        assert_eq!(begins(899).map(|at| at < SECOND * 25), Some(true));
        assert_eq!(begins(900), None);
    }

    #[test]
    fn a_share_is_met_whatever_the_seed() {
        let script = script(&(phase("ramp", 1, "") + &phase("cut", 10, "share = \"30%\"\ntimes = 2")));
        for seed in 0..20 {
            let cut = (0..1_000)
                .filter_map(|session| schedule(&script, seed, session))
                .filter(|schedule| !schedule.troubles.is_empty());
            let cut = cut.count();
            assert!((298..=302).contains(&cut), "{cut} of 1000 with seed {seed}");
        }
    }

    #[test]
    fn a_herd_is_cut_and_back_at_one_instant() {
        let rest = "times = 2\nat = \"once\"\nback = \"herd\"\naway = \"2s\"";
        let script = script(&(phase("ramp", 1, "") + &phase("cut", 10, rest)));
        for session in 0..50 {
            let troubles = schedule(&script, 7, session).expect("begins").troubles;
            let times: Vec<_> = troubles.iter().map(|trouble| trouble.at).collect();
            assert_eq!(times, [SECOND, SECOND * 6]);
            let What::Cut { how: Breaks::Rst, back, forgery: None } = troubles[1].what else { panic!("{troubles:?}") };
            assert_eq!(back, Some(SECOND * 8));
        }
    }

    #[test]
    fn spread_cuts_stay_in_their_part_and_the_sessions_are_back_in_it() {
        let rest = "times = 4\nhow = \"mixed\"\nback = \"jittered\"\naway = \"200ms\"\nspread = \"800ms\"";
        let script = script(&(phase("ramp", 1, "") + &phase("cut", 8, rest)));
        for session in 0..200 {
            let troubles = schedule(&script, 3, session).expect("begins").troubles;
            assert_eq!(troubles.len(), 4);
            for (part, trouble) in (0..).zip(&troubles) {
                let from = SECOND + SECOND * 2 * part;
                let What::Cut { back: Some(back), .. } = trouble.what else { panic!("{trouble:?}") };
                assert!(trouble.at >= from && back <= from + SECOND * 2 && back > trouble.at, "{trouble:?} in part {part}");
            }
        }
    }

    #[test]
    fn one_seed_is_one_storm_and_another_is_another() {
        let script = script(&(phase("ramp", 1, "") + &phase("cut", 8, "times = 4\nhow = \"mixed\"")));
        let storm = |seed| (0..50).map(|session| schedule(&script, seed, session)).collect::<Vec<_>>();
        assert_eq!(storm(5), storm(5));
        assert_ne!(storm(5), storm(6));
    }

    #[test]
    fn a_forged_phase_gives_each_cut_a_cursor_of_the_list() {
        let script = script(&(phase("ramp", 1, "") + &phase("forge", 8, "times = 8\ncursors = [\"stale\", \"garbage\"]")));
        let troubles: Vec<_> =
            (0..50).filter_map(|session| schedule(&script, 3, session)).flat_map(|schedule| schedule.troubles).collect();
        let count = |wanted| {
            troubles.iter().filter(|trouble| matches!(trouble.what, What::Cut { forgery, .. } if forgery == wanted)).count()
        };
        assert!(count(Some(Forgery::Stale)) > 100 && count(Some(Forgery::Garbage)) > 100);
        assert_eq!(count(None), 0);
    }

    #[test]
    fn a_phases_call_holds_from_it_on() {
        let call = "call = { ticks = 3 }";
        let script = script(&(phase("ramp", 1, "") + &phase("steady", 2, call) + &phase("steady", 2, "")));
        assert_eq!(call_at(&script, Duration::ZERO), &script.call);
        let later = script.phases[1].call.as_ref().expect("its own");
        assert_eq!(call_at(&script, SECOND), later);
        assert_eq!(call_at(&script, SECOND * 4), later);
    }
}
