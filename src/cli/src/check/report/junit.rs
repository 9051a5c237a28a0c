//! The report as CI systems read test results: a suite for each group of cases, a test for each case.
//!
//! Never fails a test that the exit code does not fail: what violates MCP or could be clearer is in the test's output.

use maud::{Markup, PreEscaped, html};

use super::results::{Results, Row};
use super::words;
use crate::check::verdict::Verdict;
use crate::shown::printable;

/// The document.
pub(super) fn render(results: &Results) -> String {
    let mut groups: Vec<&str> = results.cases.iter().map(|row| row.group).collect();
    groups.dedup();
    let document = html! {
        (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>"))
        testsuites name="rejoin check" {
            @for group in groups {
                @let rows: Vec<_> = results.cases.iter().filter(|row| row.group == group).collect();
                (suite(results, group, &rows))
            }
        }
    };
    // XML has no control characters, escaped or not: those of texts are shown in another way.
    printable(&document.into_string())
}

fn suite(results: &Results, group: &str, rows: &[&Row]) -> Markup {
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let seconds = rows.iter().map(|row| row.took_ms).sum::<u64>() as f64 / 1000.0;
    html! {
        testsuite name=(group) tests=(rows.len()) failures=(count(Verdict::BreaksContinuity)) errors="0"
            skipped=(count(Verdict::Untested)) time=(seconds) {
            properties {
                property name="target" value=(results.target) {}
                property name="server" value=(results.server) {}
            }
            @for row in rows { (test(row)) }
        }
    }
}

fn test(row: &Row) -> Markup {
    let said = words(row);
    html! {
        testcase classname=(row.group) name=(row.name) time=(row.took_ms as f64 / 1000.0) {
            @match row.verdict {
                Verdict::BreaksContinuity => failure type=(row.verdict) message=(said) { (row.transcript) },
                Verdict::Untested => skipped message=(row.untested.as_deref().unwrap_or_default()) {},
                Verdict::ViolatesMcp | Verdict::Unclear => system-out { (row.verdict) ": " (said) },
                Verdict::Pass => {}
            }
        }
    }
}
