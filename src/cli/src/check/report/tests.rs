//! Every report says the same, whatever the server said.

use scraper::{Html, Selector};

use super::results::{Results, Row};
use super::{html, junit, text};
use crate::check::cases;
use crate::check::sentences;
use crate::check::verdict::{Cost, Finding, Kind, Verdict};

const HOSTILE: &str = "<b>&\"\x1b]0;owned\x07";

fn finding(kind: Kind) -> Finding {
    let breaks = kind == Kind::BreaksContinuity;
    Finding {
        kind,
        text: format!("came: {HOSTILE}"),
        cost: breaks.then_some(Cost::Gap),
        boundary: breaks.then_some("GET row 13"),
        mcp: (kind == Kind::ViolatesMcp).then_some(&sentences::UNIQUE_IDS),
    }
}

fn results() -> Results {
    let verdicts = [Verdict::BreaksContinuity, Verdict::ViolatesMcp, Verdict::Unclear, Verdict::Untested, Verdict::Pass];
    let kinds = [Some(Kind::BreaksContinuity), Some(Kind::ViolatesMcp), Some(Kind::Unclear), None, None];
    let rows = cases::all().into_iter().zip(verdicts.into_iter().zip(kinds)).map(|(case, (verdict, kind))| Row {
        name: case.name,
        group: case.group,
        verdict,
        expects: case.expects,
        boundary: case.boundary,
        findings: kind.map(finding).into_iter().collect(),
        untested: (verdict == Verdict::Untested).then(|| format!("why: {HOSTILE}")),
        took_ms: 1_234,
        transcript: if verdict == Verdict::Pass { String::new() } else { format!("GET /mcp\n{HOSTILE}\n") },
    });
    Results {
        format: 1,
        rejoin: "0",
        target: "http://127.0.0.1:1/mcp".to_owned(),
        server: HOSTILE.to_owned(),
        revision: "2025-11-25".to_owned(),
        tool: Some("ticker".to_owned()),
        passed: false,
        died: None,
        cases: rows.collect(),
    }
}

fn plain() -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    text::write(&mut out, &results()).expect("in memory");
    String::from_utf8(out.into_inner()).expect("text")
}

#[test]
fn the_table_names_each_verdict_and_ends_with_their_counts() {
    let text = plain();
    for verdict in Verdict::ALL {
        assert!(text.lines().any(|line| line.starts_with(&format!("  {verdict} "))), "{verdict}: {text}");
    }
    let counts = "1 breaks continuity, 1 violates MCP, 1 could be clearer, 1 untested, 1 pass";
    assert_eq!(text.lines().last(), Some(counts));
    assert!(
        text.contains("[gap]") && text.contains("boundary: GET row 13") && text.contains("MUST be globally unique"),
        "{text}"
    );
}

#[test]
fn a_hostile_server_steers_neither_terminal_nor_page_nor_ci() {
    let mut out = Vec::new();
    text::write(&mut out, &results()).expect("in memory");
    let text = String::from_utf8(out).expect("text");
    for report in [text, html::render(&results()), junit::render(&results())] {
        assert!(!report.contains("\x1b]") && !report.contains('\x07'), "{report}");
    }
    for report in [html::render(&results()), junit::render(&results())] {
        assert!(!report.contains("<b>"), "{report}");
    }
}

#[test]
fn the_page_has_a_row_and_a_section_for_each_case_and_no_mistake() {
    let page = Html::parse_document(&html::render(&results()));
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    let rows = page.select(&Selector::parse("tbody tr").expect("a selector")).count();
    let sections = page.select(&Selector::parse("section[id]").expect("a selector")).count();
    assert_eq!((rows, sections), (5, 5));
}

#[test]
fn ci_sees_a_failure_only_where_continuity_breaks() {
    let xml = junit::render(&results());
    assert_eq!((xml.matches("<failure ").count(), xml.matches("<skipped ").count()), (1, 1), "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), xml.matches("</testcase>").count());
    assert_eq!(xml.matches("<system-out>").count(), 2);
    assert!(xml.contains("failures=\"1\"") && xml.contains("skipped=\"1\"") && xml.contains("time=\"1.234\""), "{xml}");
}

#[test]
fn the_json_has_what_the_table_has() {
    let json = serde_json::to_value(results()).expect("JSON");
    assert_eq!(json["cases"][0]["verdict"], "breaks-continuity");
    assert_eq!(json["cases"][0]["findings"][0]["cost"], "gap");
    assert_eq!(json["cases"][1]["findings"][0]["mcp"]["text"], sentences::UNIQUE_IDS.text);
    assert!(json["cases"][4].get("transcript").is_none() && json["passed"] == false);
}
