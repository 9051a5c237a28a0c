//! Reports read back as their readers read them.

use std::time::{Duration, Instant};

use clap::Parser;
use scraper::{ElementRef, Html, Selector};

use super::*;
use crate::storm::measure::Violation;
use crate::storm::results::tests::results;

/// A run of `forgery` that a version of format 1 wrote: what was written once must stay readable.
const SAMPLE: &str = include_str!("sample.json");

fn sample() -> Results {
    Results::parse(SAMPLE).expect("format 1")
}

fn page(results: &Results) -> Html {
    Html::parse_document(&html::render(results).expect("all histograms are sound"))
}

fn all<'a>(page: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    let selector = Selector::parse(selector).expect("a constant");
    page.select(&selector).collect()
}

/// Text that would be markup, a reference or a control sequence, wherever one forgot.
const HOSTILE: &str = "</style></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<!--\x1b[2J\u{202e}\0";

fn hostile() -> Results {
    let mut results = sample();
    results.script.name = HOSTILE.into();
    results.script.text = HOSTILE.into();
    results.target = HOSTILE.into();
    results.started = HOSTILE.into();
    results.environment.kernel = HOSTILE.into();
    results.phases[0].name = HOSTILE[..34].into();
    results.phases[0].end_ms = results.duration_ms;
    results.minimums[0].name = HOSTILE.into();
    results.minimums[0].unit = HOSTILE.into();
    results.saturation.reasons = vec![HOSTILE.into()];
    let verdicts = results.series.verdicts["replay"].clone();
    results.series.verdicts.insert(HOSTILE.into(), verdicts);
    results.verdicts.insert(HOSTILE.into(), 1);
    results.errors.insert(HOSTILE.into(), 1);
    results.violations_by_name.insert(HOSTILE.into(), 1);
    results.totals.violations = 1;
    results.violations = vec![Violation { at_ms: 1, name: HOSTILE.into(), text: HOSTILE.into(), transcript: HOSTILE.into() }];
    results
}

#[test]
fn the_page_is_html_without_a_mistake() {
    for results in [sample(), results(), hostile()] {
        let page = page(&results);
        assert!(page.errors.is_empty(), "{:?}", page.errors);
        assert!(all(&page, "svg").len() >= 5);
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_runs_nothing() {
    for results in [sample(), hostile()] {
        let page = page(&results);
        assert!(all(&page, "script, img, iframe, object, embed, link, base, form, image, use, foreignObject, a").is_empty());
        for element in all(&page, "*") {
            for (name, value) in element.value().attrs() {
                assert!(!name.starts_with("on") && !["src", "href", "srcset", "style"].contains(&name), "{name}");
                // A namespace is a name, not an address.
                assert!(name == "xmlns" || !value.contains("//"), "{name}={value}");
            }
        }
        let css: String = all(&page, "style").iter().flat_map(|style| style.text()).collect();
        assert!(!css.contains("url(") && !css.contains("@import"));
    }
}

#[test]
fn hostile_text_is_shown_as_text() {
    let rendered = html::render(&hostile()).expect("sound");
    assert!(!rendered.contains('\x1b') && !rendered.contains('\u{202e}') && !rendered.contains('\0'));
    let page = Html::parse_document(&rendered);
    let heading: String = all(&page, "h1").iter().flat_map(|heading| heading.text()).collect();
    assert!(heading.contains("<script>alert(1)</script>") && heading.contains("\\u{1b}[2J"), "{heading}");
    // The phase's name stands in a plot, where it fits.
    let plots: String = all(&page, "svg text").iter().flat_map(|text| text.text()).collect();
    assert!(plots.contains("</style></svg><script>"), "{plots}");
}

#[test]
fn every_colour_of_a_plot_has_one_for_the_dark() {
    let page = page(&sample());
    let css: String = all(&page, "style").iter().flat_map(|style| style.text()).collect();
    let mut seen = 0;
    for element in all(&page, "svg *") {
        for attribute in ["fill", "stroke"] {
            let Some(colour) = element.value().attr(attribute).filter(|colour| *colour != "none") else { continue };
            assert!(css.contains(&format!("[{attribute}=\"{colour}\"]")), "{attribute} {colour}");
            seen += 1;
        }
    }
    assert!(seen > 100);
}

#[test]
fn a_run_in_which_nothing_happened_has_a_page_and_a_summary() {
    let measured = crate::storm::measure::Recorder::new(Instant::now(), crate::storm::measure::Live::group(1).remove(0));
    let mut run = crate::storm::results::tests::run();
    (run.phases, run.duration) = (Vec::new(), Duration::ZERO);
    let empty = Results::new(run, &measured.finish(Instant::now()));
    assert!(page(&empty).errors.is_empty());
    let mut out = Vec::new();
    text::write(&mut out, &empty).expect("in memory");
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    outputs: Outputs,
}

fn line(arguments: &[&str]) -> Result<Line, String> {
    Line::try_parse_from(std::iter::once("storm").chain(arguments.iter().copied())).map_err(|error| error.to_string())
}

/// A directory of this test's own, which is gone with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rejoin-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("plain").to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_run_read_again_leaves_all_that_was_asked_for() {
    let directory = Directory::new("again");
    let (from, json, page, hgrm) =
        (directory.file("from"), directory.file("json"), directory.file("html"), directory.file("hgrm"));
    fs::write(&from, SAMPLE).expect("ours");
    let Line { reading, outputs } = line(&["--from", &from, "--json", &json, "--html", &page, "--hgrm", &hgrm]).expect("valid");
    reading.run(&outputs).expect("asked for").expect("written");
    assert_eq!(Results::read(Path::new(&json)).expect("our own"), sample());
    assert!(fs::read_to_string(&page).expect("written").starts_with("<!DOCTYPE html>"));
    let resume = fs::read_to_string(Path::new(&hgrm).join("time_to_resume.hgrm")).expect("written");
    assert!(resume.contains("1/(1-Percentile)"));
    assert!(Path::new(&hgrm).join("connect.as-measured.hgrm").exists());
}

#[test]
fn what_cannot_be_written_is_known_before_the_storm() {
    let directory = Directory::new("before");
    let missing = directory.file("missing/results.json");
    let error = line(&["--json", &missing]).expect("valid").outputs.prepare().expect_err("refused");
    assert!(error.contains(&missing), "{error}");
    let kept = directory.file("kept.json");
    fs::write(&kept, "old").expect("ours");
    line(&["--json", &kept]).expect("valid").outputs.prepare().expect("writable");
    assert_eq!(fs::read_to_string(&kept).expect("there"), "old");
}

#[test]
fn a_comparison_says_which_file_is_no_results() {
    let directory = Directory::new("compare");
    let (good, bad) = (directory.file("good.json"), directory.file("bad.json"));
    fs::write(&good, SAMPLE).expect("ours");
    fs::write(&bad, SAMPLE.replacen("\"format\":1", "\"format\":2", 1)).expect("ours");
    let Line { reading, outputs } = line(&["--compare", &good, &bad]).expect("valid");
    let error = reading.run(&outputs).expect("asked for").expect_err("refused");
    assert!(error.contains("bad.json") && error.contains("format 2"), "{error}");
    assert!(compared(Path::new(&good), Path::new(&good), Format::Json).is_ok());
}

#[test]
fn a_comparison_writes_no_report_of_a_run_and_takes_two_files() {
    assert!(line(&["--compare", "a"]).is_err());
    assert!(line(&["--compare", "a", "b", "--html", "c"]).is_err());
    assert!(line(&[]).expect("valid").reading.run(&Outputs::default()).is_none());
}
