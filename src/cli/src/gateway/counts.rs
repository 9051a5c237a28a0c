//! What the gateway counts, and its metrics.
//!
//! Counted by the gateway's thread and, where a child is refused, by shards: never once a message that goes where it should.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use enum_map::EnumMap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{End, Plant};

/// A number of events.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, events: u64) {
        self.0.fetch_add(events, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened to all children together.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Children that were started.
    pub started: Count,
    /// Children for which there was no room.
    pub refused: Count,
    /// Commands that could not be started.
    pub failed: Count,
    /// Children's lives that were over, by the reason.
    pub ended: EnumMap<End, Count>,
    /// Lines of stdout that were no messages.
    pub unusable: Count,
    /// Lines of stdout longer than a message may be.
    pub too_long: Count,
    /// Notifications for a child that does not read its input.
    pub untold: Count,
    /// Lines of stderr that were not logged: too many in a second.
    pub unlogged: Count,
}

/// Adds the gateway's metrics to a registry.
pub(crate) fn register(registry: &mut Registry, plant: Arc<Plant>) {
    registry.sub_registry_with_prefix("rejoin_gateway").register_collector(Box::new(Children(plant)));
}

/// The children of a plant.
struct Children(Arc<Plant>);

impl std::fmt::Debug for Children {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} children", self.0.children())
    }
}

impl Collector for Children {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let (plant, counts) = (&self.0, &self.0.counts);
        let mut gauge = |name: &str, help: &str, value: u64| {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
        };
        gauge("children", "Processes of the command that run.", plant.children())?;
        gauge("children_limit", "Processes that may run.", plant.settings.max_children.into())?;
        let mut counter = |name: &str, help: &str, count: &Count| {
            counted(&mut encoder.encode_descriptor(name, help, None, MetricType::Counter)?, count)
        };
        counter("children_started", "Processes that were started.", &counts.started)?;
        counter("children_refused", "Processes for which there was no room.", &counts.refused)?;
        counter("children_failed", "Times that the command could not be started.", &counts.failed)?;
        let help = "Processes whose session or life was over.";
        let mut metric = encoder.encode_descriptor("children_ended", help, None, MetricType::Counter)?;
        for (why, count) in &counts.ended {
            counted(&mut metric.encode_family(&[("reason", why.as_str())])?, count)?;
        }
        let help = "Lines of children, and notifications for them, that were dropped.";
        let mut metric = encoder.encode_descriptor("lines_dropped", help, None, MetricType::Counter)?;
        let drops = [
            ("no_message", &counts.unusable),
            ("too_long", &counts.too_long),
            ("input_full", &counts.untold),
            ("stderr_rate", &counts.unlogged),
        ];
        drops.into_iter().try_for_each(|(word, count)| counted(&mut metric.encode_family(&[("reason", word)])?, count))
    }
}

fn counted(metric: &mut MetricEncoder<'_>, count: &Count) -> Result<(), Error> {
    metric.encode_counter::<[(&str, &str); 0], _, u64>(&count.get(), None)
}
