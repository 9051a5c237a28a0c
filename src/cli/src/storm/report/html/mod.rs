//! The report as one page: tables and plots, without a script, a font or anything else from elsewhere.
//!
//! Never writes text of a script or a server unescaped: `maud` escapes all of it, `plotters` all in plots.

mod plots;

use maud::{Markup, PreEscaped, html};

use super::numbers::{bytes, bytes_rate, count, latency, moment, number, rate};
use crate::page;
use crate::storm::results::{Distribution, Results};

/// The page.
pub(super) fn render(results: &Results) -> Result<String, String> {
    let plots = plots::all(results)?;
    let title = format!("{} · rejoin storm", results.script.name);
    let body = html! {
                (head(results))
                (violations(results))
                (doubts(results))
                (minimums(results))
                (latencies(results))
                @for plot in &plots {
                    section {
                        h2 { (plot.title) }
                        p.note { (plot.note) }
                        div.plot { (PreEscaped(&plot.svg)) }
                        ul.legend {
                            @for (class, name) in &plot.legend {
                                li { span class={ "key " (class) } {} (name) }
                            }
                        }
                    }
                }
                (totals(results))
                (kinds(results))
                (run(results))
    };
    Ok(page::render(&title, &plots::style(), &body))
}

fn head(results: &Results) -> Markup {
    html! {
        header {
            h1 { (results.script.name) " " (badge(results.passed)) }
            p {
                "against " code { (results.target) } ", " (results.started) ", " (moment(results.duration_ms)) ", "
                (results.pacing.name()) ", " (count(results.sessions)) " sessions"
            }
        }
    }
}

fn badge(passed: bool) -> Markup {
    html! { @if passed { span.badge.good { "passed" } } @else { span.badge.bad { "failed" } } }
}

fn violations(results: &Results) -> Markup {
    html! {
        @if results.totals.violations > 0 {
            section.bad {
                h2 { (count(results.totals.violations)) " violations" }
                p {
                    @for (index, (name, times)) in results.violations_by_name.iter().enumerate() {
                        @if index > 0 { ", " }
                        (name) " " (count(*times))
                    }
                }
                @for (index, violation) in results.violations.iter().enumerate() {
                    details open[index == 0] {
                        summary { strong { (violation.name) } " at " (moment(violation.at_ms)) ": " (violation.text) }
                        pre { (violation.transcript) }
                    }
                }
                @if results.violations_left_out() > 0 {
                    p.note { (count(results.violations_left_out())) " more are counted, but not kept." }
                }
            }
        }
    }
}

fn doubts(results: &Results) -> Markup {
    let clamped = results.latencies().filter(|(_, latencies)| latencies.clamped > 0);
    let mut doubts: Vec<_> =
        results.saturation.reasons.iter().map(|reason| format!("The storm itself was the bottleneck: {reason}.")).collect();
    if results.environment.loopback {
        doubts.push("Storm and server ran on one machine and shared its cores.".into());
    }
    doubts.extend(
        clamped
            .map(|(name, latencies)| format!("{name}: {} took an hour or more and count as an hour.", count(latencies.clamped))),
    );
    html! {
        @if !doubts.is_empty() {
            section.doubt { h2 { "Read with care" } ul { @for doubt in &doubts { li { (doubt) } } } }
        }
    }
}

fn minimums(results: &Results) -> Markup {
    html! {
        @if !results.minimums.is_empty() {
            section {
                h2 { "Minimums" }
                div.table { table {
                    thead { tr { th { "of" } th.number { "wanted" } th.number { "reached" } th {} } }
                    tbody { @for minimum in &results.minimums {
                        tr {
                            th { (minimum.name) }
                            td.number { (number(minimum.wanted)) " " (minimum.unit) }
                            td.number { (number(minimum.reached)) " " (minimum.unit) }
                            td { @if minimum.met() { span.badge.good { "reached" } } @else { span.badge.bad { "missed" } } }
                        }
                    } }
                } }
            }
        }
    }
}

fn latencies(results: &Results) -> Markup {
    let row = |name: &str, class: &str, distribution: &Distribution| {
        html! {
            tr class=(class) {
                th { (name) }
                td.number { (count(distribution.count)) }
                @for (_, us) in distribution.percentiles() { td.number { (latency(us)) } }
            }
        }
    };
    html! {
        @if !results.latencies.is_empty() {
            section {
                h2 { "Latencies" }
                p.note { "Corrected for coordinated omission; as measured, where that is something else." }
                div.table { table {
                    thead { tr {
                        th {} th.number { "count" }
                        @for name in ["p50", "p90", "p99", "p99.9", "max"] { th.number { (name) } }
                    } }
                    tbody { @for (name, latencies) in results.latencies() {
                        (row(name, "", &latencies.corrected))
                        @if let Some(measured) = &latencies.as_measured { (row("as measured", "aside", measured)) }
                    } }
                } }
            }
        }
    }
}

fn totals(results: &Results) -> Markup {
    let series = &results.series;
    html! {
        section {
            h2 { "Totals" }
            div.table { table {
                thead { tr { th {} th.number { "total" } th.number { "mean" } th.number { "peak" } } }
                tbody {
                    @for (name, total, column) in results.counted() {
                        tr {
                            th { (name) } td.number { (count(total)) }
                            td.number { (rate(total as f64 / results.seconds())) } td.number { (rate(series.peak_rate(column))) }
                        }
                    }
                    @for (name, total, column) in results.moved() {
                        tr {
                            th { (name) } td.number { (bytes(total)) }
                            td.number { (bytes_rate(total as f64 / results.seconds())) }
                            td.number { (bytes_rate(series.peak_rate(column))) }
                        }
                    }
                    @for (name, most) in results.peaks() {
                        tr { th { (name) } td {} td {} td.number { (count(most)) } }
                    }
                }
            } }
        }
    }
}

fn kinds(results: &Results) -> Markup {
    html! {
        @for (title, kinds) in [("Verdicts", &results.verdicts), ("Errors", &results.errors)] {
            @if !kinds.is_empty() {
                section {
                    h2 { (title) }
                    div.table { table { tbody { @for (kind, times) in kinds { tr { th { (kind) } td.number { (count(*times)) } } } } } }
                }
            }
        }
    }
}

fn run(results: &Results) -> Markup {
    let (environment, saturation) = (&results.environment, &results.saturation);
    let facts = [
        ("tool", format!("{} {}", results.tool.name, results.tool.version)),
        ("seed", results.seed.to_string()),
        ("threads", results.threads.to_string()),
        ("cores", environment.cores.to_string()),
        ("system", format!("{} {}", environment.kernel, environment.arch)),
        ("late by (p99, max)", format!("{}, {}", latency(saturation.lag_p99_us), latency(saturation.lag_max_us))),
        ("busiest thread", format!("{:.0} % of the time without time to spare", saturation.busiest_thread * 100.0)),
        ("result format", results.format.to_string()),
    ];
    html! {
        section {
            h2 { "The run" }
            div.table { table { tbody {
                @for (name, value) in facts { tr { th { (name) } td { (value) } } }
            } } }
            h3 { "Phases" }
            ol { @for phase in &results.phases { li { (phase.name) ", " (moment(phase.start_ms)) " to " (moment(phase.end_ms)) } } }
            details { summary { "The script" } pre { (results.script.text) } }
        }
    }
}
