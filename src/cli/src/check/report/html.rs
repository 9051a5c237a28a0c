//! The report as one page: the table, each finding with its sentence or its row, and what was said on the wire.
//!
//! Never writes text of a server unescaped: `maud` escapes all of it; and nothing on the page is fetched or run.

use maud::{Markup, html};

use super::results::{Results, Row};
use crate::check::verdict::Verdict;
use crate::page;

/// The page.
pub(super) fn render(results: &Results) -> String {
    let body = html! {
                header {
                    h1 { (results.server) " " (badge(if results.passed { Verdict::Pass } else { Verdict::BreaksContinuity })) }
                    p {
                        "at " code { (results.target) } ", MCP " (results.revision)
                        @if let Some(tool) = &results.tool { ", by its tool " code { (tool) } }
                        ", rejoin " (results.rejoin)
                    }
                }
                @if let Some(why) = &results.died { section.bad { h2 { "Not to its end" } p { (why) } } }
                section {
                    p { @for verdict in Verdict::ALL {
                        @if results.count(verdict) > 0 { (results.count(verdict)) " " (badge(verdict)) " " }
                    } }
                    div.table { table {
                        thead { tr { th { "group" } th { "case" } th {} th.number { "seconds" } } }
                        tbody { @for row in &results.cases {
                            tr {
                                td { (row.group) }
                                th { a href=(format!("#{}", row.name)) { (row.name) } }
                                td { (badge(row.verdict)) }
                                td.number { (format!("{:.1}", row.took_ms as f64 / 1000.0)) }
                            }
                        } }
                    } }
                }
                @for row in &results.cases { (case(row)) }
    };
    page::render(&format!("{} · rejoin check", results.server), "", &body)
}

fn badge(verdict: Verdict) -> Markup {
    let class = match verdict {
        Verdict::Pass => "badge good",
        Verdict::BreaksContinuity | Verdict::ViolatesMcp => "badge bad",
        Verdict::Unclear | Verdict::Untested => "badge",
    };
    html! { span class=(class) { (verdict) } }
}

fn case(row: &Row) -> Markup {
    html! {
        section id=(row.name) {
            h2 { (row.name) " " (badge(row.verdict)) }
            p { (row.expects) "." }
            p.note { "Boundary: " (row.boundary) }
            @if let Some(why) = &row.untested { p { "Untested: " (why) } }
            @for finding in &row.findings {
                p {
                    (finding.text)
                    @if let Some(cost) = finding.cost { " " strong { (cost.words()) } }
                }
                @if let Some(boundary) = finding.boundary { p.note { "Boundary: " (boundary) } }
                @if let Some(sentence) = finding.mcp { p.note { (sentence.section) ": “" (sentence.text) "”" } }
            }
            @if !row.transcript.is_empty() { details { summary { "What was said" } pre { (row.transcript) } } }
        }
    }
}
