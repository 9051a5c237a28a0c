//! The plots, as SVG that stands in the page.
//!
//! Never has a colour that the page does not know: each is a name for one of the style sheet's, which has another one in the dark.

use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::super::numbers::{count, latency, number, on_a_line};
use crate::storm::results::{Phase, Results, Spreads};

/// Size of a plot in its own units, which the page scales.
const SIZE: (u32, u32) = (960, 280);
/// Left of the plot and below it, for labels; and around it.
const LEFT: u32 = 76;
const BELOW: u32 = 30;
const AROUND: u32 = 10;
/// Room for the names of phases above the plot.
const ABOVE: u32 = 18;
/// Width of a letter in a phase's name. Reason: a name that would run into the next one is left out.
const LETTER: f64 = 7.5;
/// Kinds that have a line of their own; the rest share one.
const LINES: usize = 7;
/// Percentiles that the curve has marks at.
const MARKS: [(f64, &str); 7] =
    [(0.0, "0 %"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "99.99 %"), (5.0, "99.999 %"), (6.0, "99.9999 %")];

/// A colour of the style sheet: its name there, and what it is in the light.
type Colour = (&'static str, RGBColor);

const BAND: Colour = ("band", RGBColor(0xee, 0xf1, 0xf6));
const GRID: Colour = ("line", RGBColor(0xd9, 0xdd, 0xe4));
const QUIET: Colour = ("quiet", RGBColor(0x5e, 0x66, 0x75));
const LINE: [Colour; LINES + 1] = [
    ("c0", RGBColor(0x1f, 0x5f, 0xbf)),
    ("c1", RGBColor(0xc2, 0x57, 0x0c)),
    ("c2", RGBColor(0x17, 0x73, 0x3c)),
    ("c3", RGBColor(0x8a, 0x2f, 0xa8)),
    ("c4", RGBColor(0xb3, 0x26, 0x1e)),
    ("c5", RGBColor(0x0b, 0x7a, 0x83)),
    ("c6", RGBColor(0x7a, 0x6a, 0x00)),
    ("c7", RGBColor(0x5d, 0x66, 0x75)),
];

/// The rules that put the style sheet's colours in the place of the plots' own.
pub(super) fn style() -> String {
    let mut rules = String::new();
    for (name, RGBColor(red, green, blue)) in [BAND, GRID, QUIET].into_iter().chain(LINE) {
        for attribute in ["stroke", "fill"] {
            let rule = format!(".plot [{attribute}=\"#{red:02X}{green:02X}{blue:02X}\"]{{{attribute}:var(--{name})}}\n");
            rules.push_str(&rule);
        }
        // Writing into a String does not fail.
        let _ = writeln!(rules, ".key.{name}{{color:var(--{name})}}");
    }
    rules
}

/// A plot with its words.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) note: &'static str,
    pub(super) svg: String,
    /// The colour's name, and what the line is of.
    pub(super) legend: Vec<(&'static str, String)>,
}

/// A line: what it is of, and its points; none where there is a gap.
struct Line {
    name: String,
    points: Vec<Option<(f64, f64)>>,
}

/// All plots for which there is something to show.
pub(super) fn all(results: &Results) -> Result<Vec<Plot>, String> {
    let mut plots = Vec::new();
    plots.extend(connections(results)?);
    plots.extend(kinds(results, "Verdicts over time", "In a second, by kind.", &results.series.verdicts)?);
    plots.extend(percentiles(results)?);
    for (name, _) in results.latencies() {
        if let Some(spreads) = results.series.latencies.get(name) {
            plots.extend(latency_over_time(results, name, spreads)?);
        }
    }
    plots.extend(throughput(results)?);
    plots.extend(kinds(results, "Errors over time", "In a second, by kind.", &results.series.errors)?);
    Ok(plots)
}

fn connections(results: &Results) -> Result<Option<Plot>, String> {
    let series = &results.series;
    let line = |name: &str, column: &[u64]| {
        let points = column.iter().enumerate().map(|(bucket, level)| {
            let (start, length) = series.span(bucket);
            Some((start + length, *level as f64))
        });
        Line { name: name.into(), points: points.collect() }
    };
    let lines = vec![
        line("connections", &series.connections.last),
        line("connections, lowest since the point before", &series.connections.low),
        line("sessions", &series.sessions.last),
    ];
    over_time(
        results,
        "Connections over time",
        "The lowest is a bound: with several threads there may have been more, never fewer.",
        lines,
    )
}

fn kinds(
    results: &Results,
    title: &str,
    note: &'static str,
    kinds: &std::collections::BTreeMap<String, Vec<u64>>,
) -> Result<Option<Plot>, String> {
    let mut kinds: Vec<_> = kinds.iter().collect();
    kinds.sort_by_key(|(_, column)| std::cmp::Reverse(column.iter().sum::<u64>()));
    let mut lines: Vec<_> = kinds.iter().take(LINES).map(|(kind, column)| rates(results, kind, column)).collect();
    if kinds.len() > LINES {
        let sums: Vec<_> =
            (0..results.series.len()).map(|bucket| kinds[LINES..].iter().map(|(_, column)| column[bucket]).sum()).collect();
        lines.push(rates(results, "others", &sums));
    }
    over_time(results, title, note, lines)
}

fn throughput(results: &Results) -> Result<Option<Plot>, String> {
    let series = &results.series;
    let columns = [("connects", &series.connects), ("calls", &series.calls), ("events", &series.events)];
    let lines = columns.map(|(name, column)| rates(results, name, column));
    over_time(results, "Throughput", "In a second.", lines.into())
}

/// A column of counts, in a second, at the middle of each bucket.
fn rates(results: &Results, name: &str, column: &[u64]) -> Line {
    let points = column.iter().enumerate().map(|(bucket, times)| {
        let (start, length) = results.series.span(bucket);
        // A rest of a bucket is too short for a rate that means something.
        let whole = length * 2000.0 >= results.series.width_ms as f64;
        whole.then(|| (start + length / 2.0, *times as f64 / length))
    });
    Line { name: name.into(), points: points.collect() }
}

fn latency_over_time(results: &Results, name: &str, spreads: &Spreads) -> Result<Option<Plot>, String> {
    let line = |name: &str, column: &[Option<u64>]| {
        let points = column.iter().enumerate().map(|(bucket, us)| {
            let (start, length) = results.series.span(bucket);
            us.map(|us| (start + length / 2.0, us.max(1) as f64))
        });
        Line { name: name.into(), points: points.collect() }
    };
    let lines = vec![line("p50", &spreads.p50_us), line("p99", &spreads.p99_us), line("max", &spreads.max_us)];
    let Some((low, high)) = decades(&lines) else { return Ok(None) };
    let plot = Canvas { phases: &results.phases, x: (0.0, end(results)), lines: &lines };
    let svg = plot.draw((low..high).log_scale(), (low, high), seconds, |us| latency(*us as u64))?;
    let note = "By when it ended, without what the correction of a closed loop adds. The scale is logarithmic.";
    Ok(Some(Plot { title: format!("{name} over time"), note, svg, legend: legend(lines) }))
}

fn percentiles(results: &Results) -> Result<Option<Plot>, String> {
    let mut lines = Vec::new();
    for (name, latencies) in results.latencies() {
        let histogram = latencies.corrected.histogram()?;
        let points = histogram.iter_quantiles(5).filter_map(|step| {
            let share = step.quantile_iterated_to();
            (share < 1.0).then(|| Some((-(1.0 - share).log10(), step.value_iterated_to().max(1) as f64)))
        });
        lines.push(Line { name: name.into(), points: points.collect() });
    }
    let Some((low, high)) = decades(&lines) else { return Ok(None) };
    let right = lines.iter().flat_map(|line| &line.points).flatten().fold(1.0, |right: f64, (x, _)| right.max(*x));
    let plot = Canvas { phases: &[], x: (0.0, right), lines: &lines };
    let mark = |x: &f64| MARKS.iter().find(|(at, _)| (at - x).abs() < 1e-6).map_or_else(String::new, |(_, name)| (*name).into());
    let svg = plot.draw((low..high).log_scale(), (low, high), mark, |us| latency(*us as u64))?;
    let note = "Corrected for coordinated omission. Both scales are logarithmic: each mark to the right is ten times as rare.";
    Ok(Some(Plot { title: "Percentiles".into(), note, svg, legend: legend(lines) }))
}

/// Lines over time that begin at zero; none where none of them ever leaves it.
fn over_time(results: &Results, title: &str, note: &'static str, lines: Vec<Line>) -> Result<Option<Plot>, String> {
    let high = range(&lines).map_or(0.0, |(_, high)| high);
    if high <= 0.0 {
        return Ok(None);
    }
    let plot = Canvas { phases: &results.phases, x: (0.0, end(results)), lines: &lines };
    let svg =
        plot.draw(0.0..high * 1.08, (0.0, high * 1.08), seconds, |y| if *y < 10.0 { number(*y) } else { count(*y as u64) })?;
    Ok(Some(Plot { title: title.into(), note, svg, legend: legend(lines) }))
}

fn end(results: &Results) -> f64 {
    (results.series.end_ms.max(1)) as f64 / 1000.0
}

fn seconds(x: &f64) -> String {
    format!("{} s", number((x * 1000.0).round() / 1000.0))
}

fn range(lines: &[Line]) -> Option<(f64, f64)> {
    let values = lines.iter().flat_map(|line| &line.points).flatten().map(|(_, y)| *y);
    values.fold(None, |range, y| match range {
        None => Some((y, y)),
        Some((low, high)) => Some((low.min(y), high.max(y))),
    })
}

/// The powers of ten around all values: only those have labels on a logarithmic axis.
fn decades(lines: &[Line]) -> Option<(f64, f64)> {
    let (low, high) = range(lines)?;
    let low = low.log10().floor();
    Some((10f64.powf(low), 10f64.powf(high.log10().ceil().max(low + 1.0))))
}

fn legend(lines: Vec<Line>) -> Vec<(&'static str, String)> {
    LINE.iter().zip(lines).map(|((colour, _), line)| (*colour, line.name)).collect()
}

/// What is drawn.
struct Canvas<'a> {
    phases: &'a [Phase],
    x: (f64, f64),
    lines: &'a [Line],
}

impl Canvas<'_> {
    /// Draws with this y axis, which goes from and to `y`.
    fn draw<Y>(
        &self,
        y_axis: Y,
        y: (f64, f64),
        x_label: impl Fn(&f64) -> String,
        y_label: impl Fn(&f64) -> String,
    ) -> Result<String, String>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        self.onto(&area, y_axis, y, x_label, y_label).map_err(|error| format!("a plot: {error}"))?;
        drop(area);
        Ok(svg)
    }

    fn onto<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        y_axis: Y,
        y: (f64, f64),
        x_label: impl Fn(&f64) -> String,
        y_label: impl Fn(&f64) -> String,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(AROUND)
            .margin_top(AROUND + ABOVE)
            .margin_right(AROUND * 3)
            .set_label_area_size(LabelAreaPosition::Left, LEFT)
            .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
            .build_cartesian_2d(self.x.0..self.x.1, y_axis)?;
        let shown = self.phases.iter().filter_map(|phase| Some((phase, self.span(phase)?)));
        for (nth, (_, (start, end))) in shown.clone().enumerate() {
            if nth % 2 == 0 {
                chart.draw_series([Rectangle::new([(start, y.0), (end, y.1)], BAND.1.filled())])?;
            }
        }
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.1)
            .axis_style(GRID.1)
            .label_style(("sans-serif", 16).into_font().color(&QUIET.1))
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label)
            .draw()?;
        // The first line matters most, so it is drawn above the others.
        for (line, (_, colour)) in self.lines.iter().zip(LINE).rev() {
            for run in line.points.split(Option::is_none) {
                let points: Vec<_> = run.iter().flatten().copied().collect();
                if let [alone] = points[..] {
                    chart.draw_series([Circle::new(alone, 2, colour.filled())])?;
                } else {
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
                }
            }
        }
        for (phase, (start, end)) in shown {
            self.name(area, phase, start, end)?;
        }
        area.present()?;
        Ok(())
    }

    /// A phase's part of the axis.
    fn span(&self, phase: &Phase) -> Option<(f64, f64)> {
        let start = (phase.start_ms as f64 / 1000.0).max(self.x.0);
        let end = (phase.end_ms as f64 / 1000.0).min(self.x.1);
        (start < end).then_some((start, end))
    }

    /// Writes a phase's name above its band, if it fits.
    fn name(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        phase: &Phase,
        start: f64,
        end: f64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let width = f64::from(SIZE.0 - LEFT - 4 * AROUND) / (self.x.1 - self.x.0);
        let name = on_a_line(&phase.name);
        if name.chars().count() as f64 * LETTER > (end - start) * width {
            return Ok(());
        }
        let left = f64::from(LEFT + AROUND) + (start - self.x.0) * width;
        let style = ("sans-serif", 15).into_font().color(&QUIET.1);
        // A pixel is precise enough, and the plot is not wide enough for more than fits.
        area.draw_text(&name, &style, (left as i32 + 4, i32::try_from(AROUND)?))?;
        Ok(())
    }
}
