//! Scrapes, and scenarios: a server, an event, and what it moves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rejoin_tests::matrix::Flavour;
use rejoin_tests::server::Rejoin;
use rejoin_tests::wire::{Answer, Request, ask};

/// How long a figure may take to become what is expected.
const PATIENCE: Duration = Duration::from_secs(10);

/// One series: its name, and its labels without the shard.
type Key = (String, BTreeMap<String, String>);

/// What `/metrics` said.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    /// Metrics, and their types.
    pub(crate) kinds: BTreeMap<String, String>,
    /// Metrics, and what their help says.
    pub(crate) helps: BTreeMap<String, String>,
    /// Series, and their sums over the shards.
    values: BTreeMap<Key, f64>,
}

impl Scrape {
    /// Reads Prometheus' text format; what is not of it is a panic.
    pub(crate) fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            if let Some((name, help)) = line.strip_prefix("# HELP ").map(|rest| rest.split_once(' ').expect("a help")) {
                scrape.helps.insert(name.to_owned(), help.to_owned());
            } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").map(|rest| rest.split_once(' ').expect("a type")) {
                assert!(scrape.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} begins twice");
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value in {line:?}"));
                assert!(seen.insert(series.to_owned()), "{series} stands twice");
                let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number in {line:?}"));
                *scrape.values.entry(key(series)).or_default() += value;
            }
        }
        scrape
    }

    /// The names of all metrics.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.kinds.keys().cloned().collect()
    }

    /// Every series, in words: `name label=value …`. A histogram's is its count.
    pub(crate) fn series(&self) -> BTreeSet<String> {
        let word = |(name, labels): &Key| {
            let labels = labels.iter().rev().map(|(label, value)| (label.as_str(), value.as_str()));
            let mut labels: Vec<_> = labels.collect();
            labels.sort_by_key(|(label, _)| ["kind", "code", "reason"].iter().position(|one| one == label));
            labels.into_iter().fold(name.clone(), |text, (label, value)| format!("{text} {label}={value}"))
        };
        let counted = |(name, _): &&Key| {
            let part =
                ["_bucket", "_sum"].iter().any(|part| name.strip_suffix(part).is_some_and(|of| self.kinds.contains_key(of)));
            !part
        };
        self.values.keys().filter(counted).map(word).collect()
    }

    /// The value of a series in words, over all shards.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let mut words = series.split(' ');
        let name = words.next().expect("a name").to_owned();
        let labels = words.map(|word| word.split_once('=').expect("a label")).map(|(one, two)| (one.to_owned(), two.to_owned()));
        let found = self.values.get(&(name, labels.collect()));
        *found.unwrap_or_else(|| panic!("no series {series} in {:#?}", self.values.keys()))
    }
}

fn key(series: &str) -> Key {
    let Some((name, labels)) = series.split_once('{') else { return (series.to_owned(), BTreeMap::new()) };
    let labels = labels.strip_suffix('}').expect("labels end").split(',').map(|label| {
        let (label, value) = label.split_once('=').expect("a label");
        (label.to_owned(), value.trim_matches('"').to_owned())
    });
    (name.to_owned(), labels.filter(|(label, _)| label != "shard").collect())
}

/// A GET of an admin page.
pub(crate) fn page(admin: SocketAddr, path: &str) -> Answer {
    ask(admin, &Request::new("GET", admin).target(path))
}

/// Scrapes the metrics.
pub(crate) fn scrape(admin: SocketAddr) -> Scrape {
    let answer = page(admin, "/metrics");
    assert_eq!(answer.status(), 200, "{}", answer.head);
    assert_eq!(answer.head.field("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    Scrape::read(&String::from_utf8(answer.body).expect("text"))
}

/// What an event does to a series.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// Adds exactly this.
    By(f64),
    /// Adds this or more.
    ByAtLeast(f64),
    /// Makes it exactly this.
    To(f64),
}

impl Expected {
    fn holds(self, before: f64, after: f64) -> bool {
        match self {
            Self::By(more) => after - before == more,
            Self::ByAtLeast(more) => after - before >= more,
            Self::To(value) => after == value,
        }
    }
}

/// A server with an admin listener.
pub(crate) struct Bed {
    pub(crate) server: Rejoin,
    pub(crate) admin: SocketAddr,
}

impl Bed {
    pub(crate) fn start(on: Flavour, options: &[&str]) -> Self {
        let server = Rejoin::start(on, &[&["--admin", "127.0.0.1:0"], options].concat());
        Self { admin: server.admin(), server }
    }

    /// Waits until a series is so.
    pub(crate) fn until(&self, series: &str, holds: impl Fn(f64) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = scrape(self.admin).value(series);
            if holds(value) {
                return;
            }
            assert!(Instant::now() < deadline, "{series} stays {value}");
            sleep(Duration::from_millis(20));
        }
    }
}

/// Lets the event happen, and waits until it has moved everything as expected. What `event` gives lives until then.
pub(crate) fn moves<T>(bed: &Bed, expected: &[(&str, Expected)], event: impl FnOnce(&Bed) -> T) {
    let before = scrape(bed.admin);
    let held = event(bed);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let after = scrape(bed.admin);
        let off: Vec<_> = expected
            .iter()
            .map(|(series, expected)| (series, expected, before.value(series), after.value(series)))
            .filter(|(_, expected, before, after)| !expected.holds(*before, *after))
            .collect();
        if off.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "expected, before and after: {off:#?}");
        sleep(Duration::from_millis(20));
    }
    drop(held);
}

/// Scenarios, each four tests: a name, a server, what is moved, and the event that moves it. `MOVES` is all that they move.
macro_rules! scenarios {
    ($($name:ident: $start:expr, [$($series:literal $how:ident $amount:literal),+ $(,)?], $event:expr;)+) => {
        rejoin_tests::on_every_server!($($name),+);

        $(fn $name(on: rejoin_tests::matrix::Flavour) {
            let start: fn(rejoin_tests::matrix::Flavour) -> crate::scrape::Bed = $start;
            crate::scrape::moves(&start(on), &[$(($series, crate::scrape::Expected::$how($amount))),+], $event);
        })+

        pub(crate) const MOVES: &[&[(&str, crate::scrape::Expected)]] =
            &[$(&[$(($series, crate::scrape::Expected::$how($amount))),+]),+];
    };
}
pub(crate) use scenarios;
