//! `.hgrm` files: percentile distributions that HdrHistogram's plotters read, in milliseconds.
//!
//! Never rounds a percentile up to one: the last line alone has it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use hdrhistogram::Histogram;

use crate::storm::results::Results;

/// Steps for each halving of the distance to 100 %, as HdrHistogram's own tools have it.
const TICKS: u32 = 5;
/// Microseconds of the unit in the file.
const UNIT: f64 = 1000.0;

/// Writes a file for each metric: `call.hgrm`, and `call.as-measured.hgrm` where that is something else.
pub(super) fn write(directory: &Path, results: &Results) -> Result<(), String> {
    for (name, latencies) in results.latencies() {
        let distributions = [
            (Some(&latencies.corrected), format!("{name}.hgrm")),
            (latencies.as_measured.as_ref(), format!("{name}.as-measured.hgrm")),
        ];
        for (distribution, file) in distributions {
            let Some(distribution) = distribution else { continue };
            let text = render(&distribution.histogram()?);
            let path = directory.join(file);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// The format of `outputPercentileDistribution` of the Java original, which the plotters were written for.
fn render(histogram: &Histogram<u64>) -> String {
    const IN_MEMORY: &str = "a String takes all text";
    let mut text = String::new();
    writeln!(text, "{:>12} {:>14} {:>10} {:>14}\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)").expect(IN_MEMORY);
    let mut passed = 0;
    for step in histogram.iter_quantiles(TICKS) {
        passed += step.count_since_last_iteration();
        let value = step.value_iterated_to() as f64 / UNIT;
        let share = step.quantile_iterated_to();
        write!(text, "{value:>12.3} {share:>14.12} {passed:>10}").expect(IN_MEMORY);
        if share < 1.0 {
            write!(text, " {:>14.2}", 1.0 / (1.0 - share)).expect(IN_MEMORY);
        }
        text.push('\n');
    }
    let (mean, deviation, max) = (histogram.mean() / UNIT, histogram.stdev() / UNIT, histogram.max() as f64 / UNIT);
    let (buckets, sub_buckets) = shape(histogram);
    writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]").expect(IN_MEMORY);
    writeln!(text, "#[Max     = {max:>12.3}, Total count    = {:>12}]", histogram.len()).expect(IN_MEMORY);
    writeln!(text, "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]").expect(IN_MEMORY);
    text
}

/// Buckets, and parts of each, that a histogram of this range and precision has.
fn shape(histogram: &Histogram<u64>) -> (u32, u64) {
    let sub_buckets = (2 * 10u64.pow(u32::from(histogram.sigfig()))).next_power_of_two();
    let mut buckets = 1;
    let mut reach = u128::from(sub_buckets);
    while reach <= u128::from(histogram.high()) {
        (reach, buckets) = (reach * 2, buckets + 1);
    }
    (buckets, sub_buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("sound bounds");
        values.into_iter().for_each(|value| histogram.record(value).expect("in range"));
        histogram
    }

    #[test]
    fn the_file_reads_as_the_plotters_expect_it() {
        let text = render(&histogram(1..=1000));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "       Value     Percentile TotalCount 1/(1-Percentile)");
        assert_eq!(lines[1], "");
        assert_eq!(lines[2], "       0.001 0.000000000000          1           1.00");
        let last = lines.iter().rposition(|line| !line.starts_with('#')).expect("there are lines");
        assert_eq!(lines[last], "       1.000 1.000000000000       1000");
        assert_eq!(lines[last + 1], "#[Mean    =        0.500, StdDeviation   =        0.289]");
        assert_eq!(lines[last + 2], "#[Max     =        1.000, Total count    =         1000]");
        assert_eq!(lines[last + 3], "#[Buckets =           22, SubBuckets     =         2048]");
    }

    #[test]
    fn percentiles_and_counts_only_rise_and_reach_the_whole() {
        let text = render(&histogram((0..5000).map(|nth| nth * nth)));
        let rows: Vec<Vec<f64>> = text
            .lines()
            .filter(|line| line.starts_with(' ') && !line.contains("Value"))
            .map(|line| line.split_whitespace().map(|field| field.parse().expect("a number")).collect())
            .collect();
        assert!(rows.len() > 20);
        assert!(rows.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2]));
        assert!(rows.iter().all(|row| row.len() == 4 || (row[1] - 1.0).abs() < 1e-12));
        assert!(rows.last().is_some_and(|row| row.len() == 3 && (row[2] - 5000.0).abs() < 1e-9));
    }

    #[test]
    fn a_histogram_of_nothing_has_a_footer() {
        assert!(render(&histogram([])).contains("Total count    =            0]"));
    }
}
