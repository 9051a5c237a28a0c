//! The clients, and how each is brought to play all its scenarios at once.
//!
//! Never judges what they saw.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rejoin_tests::sdk::Sdk;
use serde_json::Value;

use crate::bed::{Bed, Reader, Scenario, Seen, Way};
use crate::{browser, curl, rust_sdk};

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Client {
    /// `@modelcontextprotocol/sdk`.
    TypeScript1,
    /// `@modelcontextprotocol/client`.
    TypeScript2,
    /// `mcp`.
    Python,
    /// `fastmcp`.
    FastMcp,
    /// The crate `rmcp`.
    Rmcp,
    /// The command, and a person who knows what to do.
    Curl,
    /// Headless Chromium's `EventSource`.
    EventSource,
}

/// What a client saw in each scenario on each way.
pub(crate) type Played = BTreeMap<(Scenario, Way), Seen>;

impl Client {
    /// All of them, as the page lists them.
    pub(crate) const ALL: [Self; 7] =
        [Self::TypeScript1, Self::TypeScript2, Self::Python, Self::FastMcp, Self::Rmcp, Self::EventSource, Self::Curl];

    /// Whether it calls by itself.
    pub(crate) fn reader(self) -> Reader {
        if self == Self::EventSource { Reader::Events } else { Reader::Calls }
    }

    /// Whether it plays this scenario on this way.
    pub(crate) fn plays(self, scenario: Scenario, way: Way) -> bool {
        let both_eras = matches!(self, Self::TypeScript2 | Self::Python | Self::FastMcp | Self::Rmcp);
        way.has(scenario) && (way != Way::Stateless || both_eras)
    }

    /// Everything that it saw; played once, by whoever asks first.
    pub(crate) fn played(self) -> &'static Played {
        static PLAYED: [OnceLock<Played>; Client::ALL.len()] = [const { OnceLock::new() }; Client::ALL.len()];
        PLAYED[self as usize].get_or_init(|| self.play())
    }

    fn play(self) -> Played {
        let places = Scenario::ALL.into_iter().flat_map(|scenario| Way::ALL.map(|way| (scenario, way)));
        let places: Vec<_> = places.filter(|&(scenario, way)| self.plays(scenario, way)).collect();
        let beds: Vec<Bed> = places.iter().map(|&(scenario, way)| Bed::make(scenario, way, self.reader())).collect();
        let said = match self {
            Self::TypeScript1 => driven(&Sdk::typescript("scenario").told("1"), &beds),
            Self::TypeScript2 => driven(&Sdk::typescript("scenario").told("2"), &beds),
            Self::Python => driven(&Sdk::python("scenario").told("mcp"), &beds),
            Self::FastMcp => driven(&Sdk::python("scenario").told("fastmcp"), &beds),
            Self::Rmcp => rust_sdk::play(&beds),
            Self::Curl => curl::play(&beds),
            Self::EventSource => browser::play(&beds),
        };
        let seen = beds.iter().zip(said).map(|(bed, said)| bed.seen(said));
        places.into_iter().zip(seen).collect()
    }
}

fn driven(sdk: &Sdk, beds: &[Bed]) -> Vec<Value> {
    let orders: Vec<Value> = beds.iter().map(Bed::order).collect();
    let mut seen = sdk.drive(&orders);
    beds.iter().map(|bed| seen.remove(&bed.front.url()).unwrap_or_else(|| panic!("{}: nothing was said", sdk.name))).collect()
}
