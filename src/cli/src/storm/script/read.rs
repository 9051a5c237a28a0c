//! Reads a script: TOML into checked values, and whatever is wrong with it said with its file, line and column.
//!
//! A phase is read as one flat table whose keys are then held against its kind: a tagged enum would be read through a buffer that
//! forgets where things stood. Never accepts a key that would have no effect.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::{Back, Call, Cut, Forgery, How, Kind, Phase, Script, Ticker, Tool};
use crate::storm::counts::Stated;
use crate::storm::units::{Share, Size, Time};

/// Most sessions of a script. Reason: more than any one machine's ports and descriptors hold.
const SESSIONS_MAX: u32 = 1_000_000;
/// Most phases. Reason: a script is read by people.
const PHASES_MAX: usize = 100;
/// Most cuts of one session in one phase. Reason: one every few milliseconds is no reconnect any more.
const TIMES_MAX: u32 = 10_000;
/// Most ticks of one call, since a session remembers each until the call is answered.
const TICKS_MAX: u32 = 100_000;
/// Requests of a run, where the script does not say.
const REQUESTS: u64 = 10_000_000;
/// How long calls may take to end after the last phase, where the script does not say.
const SETTLE: Duration = Duration::from_secs(30);
/// How long a connected client waits for what is due, where the script does not say.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest any time in a script may be. Reason: a slip of the unit; a run is bounded.
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a script was not taken.
#[derive(Debug)]
pub(crate) struct BadScript {
    from: String,
    /// Line and column, from 1.
    place: Option<(usize, usize)>,
    why: String,
}

impl fmt::Display for BadScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((line, column)) => write!(f, "{}:{line}:{column}: {}", self.from, self.why),
            None => write!(f, "{}: {}", self.from, self.why),
        }
    }
}

impl std::error::Error for BadScript {}

impl BadScript {
    pub(super) fn unread(from: &str, error: &io::Error) -> Self {
        Self { from: from.to_owned(), place: None, why: error.to_string() }
    }
}

/// What is wrong, and where in the text.
struct Wrong {
    at: Option<Range<usize>>,
    why: String,
}

fn wrong<T>(at: Range<usize>, why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { at: Some(at), why: why.into() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawScript {
    summary: String,
    needs: Option<String>,
    population: RawPopulation,
    #[serde(default)]
    call: Option<Spanned<RawCall>>,
    phase: Spanned<Vec<Spanned<RawPhase>>>,
    settle: Option<Spanned<Time>>,
    requests: Option<Spanned<u64>>,
    #[serde(default)]
    least: Stated,
    #[serde(default)]
    most: Stated,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPopulation {
    sessions: Spanned<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    tool: Option<Spanned<String>>,
    arguments: Option<Spanned<Map<String, Value>>>,
    ticks: Option<Spanned<u32>>,
    interval: Option<Spanned<Time>>,
    payload: Option<Spanned<Size>>,
    pause: Option<Spanned<Time>>,
    patience: Option<Spanned<Time>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KindName {
    Ramp,
    Steady,
    Cut,
    Partition,
    Slow,
    Lapse,
    Forge,
    Restart,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HowName {
    Rst,
    Fin,
    Silence,
    Mixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BackName {
    Retry,
    Herd,
    Jittered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AtName {
    Once,
    Spread,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ForgeryName {
    Forged,
    Foreign,
    Garbage,
    Stale,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPhase {
    kind: Spanned<KindName>,
    name: Option<String>,
    #[serde(rename = "for")]
    length: Spanned<Time>,
    call: Option<Spanned<RawCall>>,
    share: Option<Spanned<Share>>,
    how: Option<Spanned<HowName>>,
    times: Option<Spanned<u32>>,
    at: Option<Spanned<AtName>>,
    back: Option<Spanned<BackName>>,
    away: Option<Spanned<Time>>,
    spread: Option<Spanned<Time>>,
    rate: Option<Spanned<Size>>,
    cursors: Option<Spanned<Vec<ForgeryName>>>,
}

/// Reads and checks a whole script.
pub(super) fn script(from: &str, text: &str) -> Result<Script, BadScript> {
    let raw: RawScript = toml::from_str(text).map_err(|error| bad(from, text, error.span(), error.message()))?;
    check(from, text, raw).map_err(|wrong| bad(from, text, wrong.at, &wrong.why))
}

fn bad(from: &str, text: &str, at: Option<Range<usize>>, why: &str) -> BadScript {
    let place = at.map(|span| {
        let before = &text.as_bytes()[..span.start.min(text.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let begin = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        (line, String::from_utf8_lossy(&before[begin..]).chars().count() + 1)
    });
    // Serde's messages may take several lines; an editor wants one.
    BadScript { from: from.to_owned(), place, why: why.lines().map(str::trim).collect::<Vec<_>>().join("; ") }
}

fn check(from: &str, text: &str, raw: RawScript) -> Result<Script, Wrong> {
    let sessions = between(&raw.population.sessions, 1, SESSIONS_MAX, "sessions")?;
    let call = match raw.call {
        Some(call) => self::call(&call, None)?,
        None => self::call(&Spanned::new(0..0, RawCall::default()), None)?,
    };
    let count = raw.phase.get_ref().len();
    if count == 0 || count > PHASES_MAX {
        return wrong(raw.phase.span(), format!("a script has 1 to {PHASES_MAX} phases"));
    }
    let mut phases = Vec::with_capacity(count);
    let mut ramped = false;
    let mut latest = call.clone();
    for raw in raw.phase.get_ref() {
        let phase = self::phase(raw, &latest)?;
        let ramp = matches!(phase.kind, Kind::Ramp { .. });
        if !ramp && !ramped {
            return wrong(raw.get_ref().kind.span(), "before the first ramp there is no session that anything could happen to");
        }
        ramped |= ramp;
        if let Some(call) = &phase.call {
            latest = call.clone();
        }
        phases.push(phase);
    }
    Ok(Script {
        name: Path::new(from).file_stem().map_or_else(|| from.to_owned(), |stem| stem.to_string_lossy().into_owned()),
        text: text.to_owned(),
        summary: raw.summary,
        needs: raw.needs,
        sessions,
        call,
        phases,
        settle: raw.settle.as_ref().map(|settle| length(settle, "settle")).transpose()?.unwrap_or(SETTLE),
        requests: raw
            .requests
            .as_ref()
            .map(|requests| between(requests, 1, u64::MAX, "requests"))
            .transpose()?
            .unwrap_or(REQUESTS),
        least: raw.least,
        most: raw.most,
    })
}

/// What is called; `before` is what was called until then, whose keys hold where this table has none.
fn call(raw: &Spanned<RawCall>, before: Option<&Call>) -> Result<Call, Wrong> {
    let RawCall { tool, arguments, ticks, interval, payload, pause, patience } = raw.get_ref();
    let name = tool.as_ref().map_or("ticker", |tool| tool.get_ref().as_str());
    let tool = if name == "ticker" {
        if let Some(arguments) = arguments {
            return wrong(arguments.span(), "ticker has `ticks`, `interval` and `payload` in place of `arguments`");
        }
        let before = before.and_then(|call| if let Tool::Ticker(ticker) = &call.tool { Some(*ticker) } else { None });
        let before = before.unwrap_or(Ticker { ticks: 10, interval: Duration::from_millis(500), payload: 0 });
        Tool::Ticker(Ticker {
            ticks: ticks.as_ref().map(|ticks| between(ticks, 1, TICKS_MAX, "ticks")).transpose()?.unwrap_or(before.ticks),
            interval: interval.as_ref().map(|interval| time(interval, "interval")).transpose()?.unwrap_or(before.interval),
            payload: payload.as_ref().map_or(before.payload, |payload| payload.get_ref().0),
        })
    } else {
        let only_ticker = [
            ticks.as_ref().map(|key| ("ticks", key.span())),
            interval.as_ref().map(|key| ("interval", key.span())),
            payload.as_ref().map(|key| ("payload", key.span())),
        ];
        if let Some((key, at)) = only_ticker.into_iter().flatten().next() {
            return wrong(at, format!("`{key}` is ticker's: other tools have `arguments`"));
        }
        let arguments = arguments.as_ref().map(|arguments| arguments.get_ref().clone()).unwrap_or_default();
        Tool::Other { name: name.to_owned(), arguments }
    };
    Ok(Call {
        tool,
        pause: pause
            .as_ref()
            .map(|pause| time(pause, "pause"))
            .transpose()?
            .or(before.map(|call| call.pause))
            .unwrap_or_default(),
        patience: patience
            .as_ref()
            .map(|patience| length(patience, "patience"))
            .transpose()?
            .or(before.map(|call| call.patience))
            .unwrap_or(PATIENCE),
    })
}

fn phase(raw: &Spanned<RawPhase>, before: &Call) -> Result<Phase, Wrong> {
    let fields = raw.get_ref();
    let name = *fields.kind.get_ref();
    only_what_counts(fields)?;
    let length = length(&fields.length, "for")?;
    let share = fields.share.as_ref().map_or(Share::ALL, |share| *share.get_ref());
    let kind = match name {
        KindName::Ramp => Kind::Ramp { share },
        KindName::Steady => Kind::Steady,
        KindName::Cut => Kind::Cut(cut(fields, share, length)?),
        KindName::Partition => Kind::Cut(Cut {
            share,
            how: how(fields),
            times: 1,
            at_once: true,
            back: match fields.spread.as_ref().map(|spread| time(spread, "spread")).transpose()? {
                None => Back::Herd { away: length },
                Some(spread) => Back::Jittered { away: length, spread },
            },
        }),
        KindName::Slow => {
            let Some(rate) = &fields.rate else {
                return wrong(fields.kind.span(), "slow needs `rate`, bytes a second: \"2KiB\"");
            };
            if rate.get_ref().0 == 0 {
                return wrong(rate.span(), "a rate of nothing is silence: see `cut`");
            }
            Kind::Slow { share, rate: rate.get_ref().0 }
        }
        KindName::Lapse => Kind::Lapse { share },
        KindName::Forge => Kind::Forge { cut: cut(fields, share, length)?, cursors: cursors(fields)? },
        KindName::Restart => Kind::Restart,
    };
    let call = fields.call.as_ref().map(|call| self::call(call, Some(before))).transpose()?;
    let name = fields.name.clone().unwrap_or_else(|| format!("{name:?}").to_lowercase());
    Ok(Phase { name, length, kind, call })
}

/// Refuses a key that would do nothing in a phase of this kind.
fn only_what_counts(fields: &RawPhase) -> Result<(), Wrong> {
    let kind = *fields.kind.get_ref();
    let cuts = matches!(kind, KindName::Cut | KindName::Forge);
    let partition = kind == KindName::Partition;
    let all = [
        ("share", fields.share.as_ref().map(Spanned::span), !matches!(kind, KindName::Steady | KindName::Restart)),
        ("how", fields.how.as_ref().map(Spanned::span), cuts || partition),
        ("times", fields.times.as_ref().map(Spanned::span), cuts),
        ("at", fields.at.as_ref().map(Spanned::span), cuts),
        ("back", fields.back.as_ref().map(Spanned::span), cuts),
        ("away", fields.away.as_ref().map(Spanned::span), cuts),
        ("spread", fields.spread.as_ref().map(Spanned::span), cuts || partition),
        ("rate", fields.rate.as_ref().map(Spanned::span), kind == KindName::Slow),
        ("cursors", fields.cursors.as_ref().map(Spanned::span), kind == KindName::Forge),
    ];
    match all.into_iter().find_map(|(key, given, counts)| given.filter(|_| !counts).map(|at| (key, at))) {
        Some((key, at)) => wrong(at, format!("`{key}` means nothing in a phase of kind \"{kind:?}\"").to_lowercase()),
        None => Ok(()),
    }
}

fn how(fields: &RawPhase) -> How {
    match fields.how.as_ref().map(Spanned::get_ref) {
        None | Some(HowName::Rst) => How::Rst,
        Some(HowName::Fin) => How::Fin,
        Some(HowName::Silence) => How::Silence,
        Some(HowName::Mixed) => How::Mixed,
    }
}

fn cut(fields: &RawPhase, share: Share, length: Duration) -> Result<Cut, Wrong> {
    let times = fields.times.as_ref().map(|times| between(times, 1, TIMES_MAX, "times")).transpose()?.unwrap_or(1);
    let away = fields.away.as_ref().map(|away| time(away, "away")).transpose()?;
    let spread = fields.spread.as_ref().map(|spread| time(spread, "spread")).transpose()?;
    let back = match (fields.back.as_ref().map_or(BackName::Retry, |back| *back.get_ref()), away, spread) {
        (BackName::Retry, None, None) => Back::Retry,
        (BackName::Herd, Some(away), None) => Back::Herd { away },
        (BackName::Jittered, Some(away), Some(spread)) => Back::Jittered { away, spread },
        (back, ..) => {
            let at = fields.back.as_ref().map_or_else(|| fields.kind.span(), Spanned::span);
            return wrong(
                at,
                match back {
                    BackName::Retry => "`away` and `spread` go with back = \"herd\" or \"jittered\"",
                    BackName::Herd => "back = \"herd\" needs `away`, and takes no `spread`",
                    BackName::Jittered => "back = \"jittered\" needs `away` and `spread`",
                },
            );
        }
    };
    if let (Some(away), Some(at)) = (away, &fields.away)
        && away > length / times
    {
        return wrong(at.span(), "they would be cut again before they are back: `away` is longer than `for` / `times`");
    }
    let at_once = fields.at.as_ref().is_some_and(|at| *at.get_ref() == AtName::Once);
    Ok(Cut { share, how: how(fields), times, at_once, back })
}

fn cursors(fields: &RawPhase) -> Result<Vec<Forgery>, Wrong> {
    let Some(names) = &fields.cursors else {
        return Ok(vec![Forgery::Forged, Forgery::Foreign, Forgery::Garbage, Forgery::Stale]);
    };
    if names.get_ref().is_empty() {
        return wrong(names.span(), "at least one of \"forged\", \"foreign\", \"garbage\", \"stale\"");
    }
    let forgery = |name: &ForgeryName| match name {
        ForgeryName::Forged => Forgery::Forged,
        ForgeryName::Foreign => Forgery::Foreign,
        ForgeryName::Garbage => Forgery::Garbage,
        ForgeryName::Stale => Forgery::Stale,
    };
    Ok(names.get_ref().iter().map(forgery).collect())
}

/// A time that may be nothing.
fn time(value: &Spanned<Time>, key: &str) -> Result<Duration, Wrong> {
    let length = value.get_ref().0;
    if length > TIME_MAX { wrong(value.span(), format!("`{key}` is at most a day")) } else { Ok(length) }
}

/// A time that may not be nothing.
fn length(value: &Spanned<Time>, key: &str) -> Result<Duration, Wrong> {
    let length = time(value, key)?;
    if length.is_zero() { wrong(value.span(), format!("`{key}` must be longer than zero")) } else { Ok(length) }
}

fn between<T: Copy + PartialOrd + fmt::Display>(value: &Spanned<T>, least: T, most: T, key: &str) -> Result<T, Wrong> {
    let number = *value.get_ref();
    if number < least || number > most {
        return wrong(value.span(), format!("`{key}` is from {least} to {most}, not {number}"));
    }
    Ok(number)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
