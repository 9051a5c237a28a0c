//! The counters of a server as metrics of a `prometheus-client` registry (feature `metrics`).
//!
//! Each scrape asks every shard once. Never keeps a figure of its own: what is exposed is what the shards counted.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use rejoin_proto::shard::counters::{Counters, Histogram, LogFigures, Snapshot};

use crate::handle::ServerHandle;
use crate::stats::{ShardState, ShardStats};

/// How long a scrape waits for a shard. Reason: a busy turn takes milliseconds, and scrapers give up after seconds.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Adds a server's metrics to a registry; their names begin with `rejoin_`. A scrape blocks up to [`PATIENCE`] where a shard is stuck:
/// not for a shard's own thread.
///
/// ```
/// # use rejoin::{Call, Handler, Json, Reply, RpcError, Server, Session};
/// # struct Nobody;
/// # impl Handler for Nobody {
/// #     async fn initialize(&self, _: &Session, _: &Json) -> Result<Json, RpcError> { Err(RpcError::internal("nobody")) }
/// #     async fn request(&self, call: &Call) -> Result<Reply, RpcError> { Err(RpcError::method_not_found(call.method())) }
/// # }
/// let server = Server::builder().shards(1).serve(|| Nobody)?;
/// let mut registry = prometheus_client::registry::Registry::default();
/// rejoin::metrics::register(&mut registry, &server);
/// let mut text = String::new();
/// prometheus_client::encoding::prometheus_text::encode(&mut text, &registry)?;
/// assert!(text.contains("rejoin_sessions{shard=\"0\"} 0"), "{text}");
/// # server.shutdown(std::time::Duration::ZERO);
/// # server.wait();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn register(registry: &mut Registry, server: &ServerHandle) {
    registry.sub_registry_with_prefix("rejoin").register_collector(Box::new(Shards(server.clone())));
}

/// The shards of a server.
#[derive(Debug)]
struct Shards(ServerHandle);

impl Collector for Shards {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let stats = self.0.stats(PATIENCE);
        let mut page = Page { encoder, shards: known(&stats) };
        page.shards_themselves(&stats)?;
        page.boundary()?;
        page.calls()?;
        page.room()?;
        page.log()
    }
}

/// Each shard of which something is known, with its number.
fn known(stats: &[ShardStats]) -> Vec<(usize, &Snapshot)> {
    let shards = stats.iter().enumerate();
    shards.filter_map(|(shard, stats)| Some((shard, &stats.state.snapshot()?.kernel))).collect()
}

/// One scrape's metrics.
struct Page<'a, 'e> {
    encoder: DescriptorEncoder<'e>,
    shards: Vec<(usize, &'a Snapshot)>,
}

impl<'a> Page<'a, '_> {
    fn shards_themselves(&mut self, stats: &[ShardStats]) -> Result<(), Error> {
        let mut metric = self.begin("shard_unresponsive", "Whether the shard did not answer in time.", MetricType::Gauge)?;
        for (shard, stats) in stats.iter().enumerate() {
            let stuck = matches!(stats.state, ShardState::Unresponsive);
            with(&mut metric, &[("shard", &shard.to_string())], |metric| metric.encode_gauge(&u32::from(stuck)))?;
        }
        let mut metric = self.begin("mailbox_messages", "Messages that wait for the shard.", MetricType::Gauge)?;
        for (shard, stats) in stats.iter().enumerate() {
            with(&mut metric, &[("shard", &shard.to_string())], |metric| gauge(metric, stats.mail_waiting as u64))?;
        }
        self.gauge("draining", "Whether the shard drains.", |shard| u64::from(shard.draining))
    }

    /// What clients that come back meet.
    fn boundary(&mut self) -> Result<(), Error> {
        self.counters("verdicts", "What requests that came back were answered, and refusals of any request.", |shard, say| {
            shard.counters.verdicts.iter().try_for_each(|(kind, &count)| say(&[("kind", kind.as_str())], count))?;
            refusals(&shard.counters).into_iter().try_for_each(|((code, reason), count)| match reason {
                Some(reason) => say(&[("kind", "refused"), ("code", code), ("reason", reason)], count),
                None => say(&[("kind", "refused"), ("code", code)], count),
            })
        })?;
        self.histograms("gap_events", "Events lost in each gap that a resync told.", 1.0, |shard, say| {
            shard.counters.gaps.iter().try_for_each(|(reason, gaps)| say(&[("reason", reason.as_str())], gaps))
        })?;
        self.counter("replayed_events", "Events sent that had been issued before their reader came.", |c| c.replayed_events)?;
        self.counter("replayed_bytes", "Bytes of those events' frames.", |c| c.replayed_bytes)?;
        self.counter("takeovers", "GETs that took a stream over from another connection.", |c| c.takeovers)?;
        self.counter("overruns", "Gaps in a live stream whose reader was too slow for the log.", overruns)?;
        self.counter("handoffs", "Connections handed off to the shard that their request belongs to.", |c| c.handoffs)
    }

    fn calls(&mut self) -> Result<(), Error> {
        self.counter("calls_begun", "Calls that began, initialize included.", |c| c.calls_begun)?;
        self.gauge("calls_in_flight", "Calls that have not ended.", |shard| shard.counters.calls_in_flight())?;
        let help = "From a call's dispatch to its handler's answer.";
        self.histograms("call_duration_seconds", help, 1e-3, |shard, say| say(&[], &shard.counters.calls_answered))?;
        self.counters("calls_cancelled", "Calls that ended without their handler's answer.", |shard, say| {
            shard.counters.calls_cancelled.iter().try_for_each(|(why, &count)| say(&[("reason", why.as_str())], count))
        })?;
        self.counter("reposts_joined", "Reposts that joined the stream of the first execution.", |c| c.reposts_joined)?;
        self.counters("executions_avoided", "Calls that came again and were not executed again.", |shard, say| {
            shard.counters.executions_avoided.iter().try_for_each(|(how, &count)| say(&[("kind", how.as_str())], count))
        })?;
        self.counter("outcomes_unknown", "Times that a client was told that a call's outcome is unknown.", |c| {
            c.outcomes_unknown
        })?;
        self.counter("cancels_ignored", "Cancellations that named no call, or more than one.", |c| c.cancels_ignored)?;
        self.counter("responses_unmatched", "Responses of clients to no request of ours.", |c| c.responses_unmatched)?;
        let help = "Notifications of handlers that could reach nobody.";
        self.counter("notifications_dropped", help, |c| c.notifications_dropped)
    }

    /// Sessions and connections, and what there was no room for.
    fn room(&mut self) -> Result<(), Error> {
        self.gauge("sessions", "Sessions alive.", |shard| shard.sessions.into())?;
        self.gauge("sessions_limit", "Sessions that may be alive.", |shard| shard.sessions_max.into())?;
        self.gauge("exchanges", "Requests without a session in flight.", |shard| shard.exchanges.into())?;
        self.gauge("exchanges_limit", "Requests without a session that may be in flight.", |shard| shard.exchanges_max.into())?;
        self.counter("sessions_begun", "Sessions that began.", |c| c.sessions_begun)?;
        self.counters("sessions_ended", "Sessions that ended.", |shard, say| {
            let ends = shard.counters.sessions_ended.iter().filter(|(why, _)| why.is_an_end());
            ends.into_iter().try_for_each(|(why, &count)| say(&[("reason", why.reason())], count))
        })?;
        self.counter("sessions_marked", "Sessions whose client used a request id again.", |c| c.sessions_marked)?;
        self.gauge("connections", "Connections open.", |shard| shard.connections.into())?;
        self.gauge("connections_limit", "Connections that may be open.", |shard| shard.connections_max.into())?;
        self.counter("connections_opened", "Connections accepted.", |c| c.connections_opened)?;
        self.counters("sheds", "What was given up for want of room.", |shard, say| {
            shard.counters.sheds.iter().try_for_each(|(room, &count)| say(&[("reason", room.as_str())], count))
        })?;
        self.gauge("timers", "Timers set.", |shard| shard.timers as u64)
    }

    fn log(&mut self) -> Result<(), Error> {
        self.log_gauge("log_used_bytes", "Memory of the event log in use, everything counted.", |log| log.used)?;
        self.log_gauge("log_limit_bytes", "Memory that the event log may use.", |log| log.budget)?;
        self.log_gauge("log_pinned_bytes", "Of it, results and unanswered requests to clients.", |log| log.pinned)?;
        self.log_gauge("log_pinned_limit_bytes", "The most that these may use.", |log| log.pinned_budget)?;
        self.log_gauge("log_lingering_bytes", "Of it, evicted events that are still being sent.", |log| log.lingering)?;
        self.log_gauge("log_streams", "Streams that hold events.", |log| log.streams)?;
        self.counters("evictions", "Events evicted.", |shard, say| {
            shard.log.evicted.iter().try_for_each(|(why, &count)| say(&[("reason", why.as_str())], count))
        })
    }

    // ---- one metric ----

    fn begin<'s>(&'s mut self, name: &'s str, help: &str, kind: MetricType) -> Result<MetricEncoder<'s>, Error> {
        self.encoder.encode_descriptor(name, help, None, kind)
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&Snapshot) -> u64) -> Result<(), Error> {
        let shards = self.shards.clone();
        let mut metric = self.begin(name, help, MetricType::Gauge)?;
        shards.into_iter().try_for_each(|(shard, snapshot)| {
            with(&mut metric, &[("shard", &shard.to_string())], |metric| gauge(metric, value(snapshot)))
        })
    }

    fn log_gauge(&mut self, name: &str, help: &str, value: impl Fn(&LogFigures) -> usize) -> Result<(), Error> {
        self.gauge(name, help, |shard| value(&shard.log) as u64)
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Fn(&Counters) -> u64) -> Result<(), Error> {
        self.counters(name, help, |shard, say| say(&[], value(&shard.counters)))
    }

    /// A counter with labels beside the shard's.
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        each: impl Fn(&'a Snapshot, &mut dyn FnMut(&[(&str, &str)], u64) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shards = self.shards.clone();
        let mut metric = self.begin(name, help, MetricType::Counter)?;
        shards.into_iter().try_for_each(|(shard, snapshot)| {
            each(snapshot, &mut |labels, count| {
                with(&mut metric, &labels_of(&shard.to_string(), labels), |metric| {
                    metric.encode_counter::<[(&str, &str); 0], _, u64>(&count, None)
                })
            })
        })
    }

    /// The same of histograms, whose values are multiples of `unit`.
    fn histograms<const BUCKETS: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: f64,
        each: impl Fn(&'a Snapshot, &mut dyn FnMut(&[(&str, &str)], &Histogram<BUCKETS>) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shards = self.shards.clone();
        let mut metric = self.begin(name, help, MetricType::Histogram)?;
        shards.into_iter().try_for_each(|(shard, snapshot)| {
            each(snapshot, &mut |labels, histogram| {
                let bound = |bound: Option<u64>| bound.map_or(f64::INFINITY, |bound| bound as f64 * unit);
                let buckets: Vec<_> = histogram.buckets().map(|(most, count)| (bound(most), count)).collect();
                let (sum, count) = (histogram.sum() as f64 * unit, histogram.count());
                with(&mut metric, &labels_of(&shard.to_string(), labels), |metric| {
                    metric.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)
                })
            })
        })
    }
}

/// Refusals by code and reason: kinds that look the same to clients are one.
fn refusals(counters: &Counters) -> BTreeMap<(&'static str, Option<&'static str>), u64> {
    counters.refusals.iter().fold(BTreeMap::new(), |mut all, (kind, count)| {
        let shape = kind.example().shape();
        *all.entry((shape.code, shape.reason)).or_default() += count;
        all
    })
}

fn overruns(counters: &Counters) -> u64 {
    counters.gaps[rejoin_proto::shard::counters::GapReason::Overrun].count()
}

fn gauge(metric: &mut MetricEncoder<'_>, value: u64) -> Result<(), Error> {
    metric.encode_gauge(&value)
}

fn labels_of<'l>(shard: &'l str, labels: &[(&'l str, &'l str)]) -> Vec<(&'l str, &'l str)> {
    std::iter::once(("shard", shard)).chain(labels.iter().copied()).collect()
}

/// Encodes one series of a metric.
fn with(
    metric: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    encode(&mut metric.encode_family(labels)?)
}
