//! The chart of the outbox depth: lines that differ in dash pattern and colour, and the same numbers as a table.
use app::contract::rfc3339;
use domain::Timestamp;
use maud::{Markup, html};

use crate::console::charts::depth_history::{DepthSample, TIME_RANGE, UNSENT_STATUSES};

/// The size of the SVG view box.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
/// The edges of the plot area.
const LEFT: f64 = 64.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 948.0;
const BOTTOM: f64 = 188.0;
/// The CSS classes of the lines by [`UNSENT_STATUSES`].
const LINE_CLASSES: [&str; 4] = ["line pending", "line in-flight", "line failed", "line parked"];
/// The table has one row per minute.
const SAMPLES_PER_ROW: usize = 30;

/// The chart, its legend and its table.
pub(crate) fn chart(samples: &[DepthSample], now: Timestamp) -> Markup {
    let top = ceiling(samples.iter().flat_map(|sample| sample.rows).max().unwrap_or(0));
    let last = samples.last().map_or([0; 4], |sample| sample.rows);
    html! {
        figure {
            svg role="img" aria-labelledby="chart-title chart-desc" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
                title id="chart-title" { "Unsent rows over the last 15 minutes" }
                desc id="chart-desc" { (description(&last, samples)) }
                (axes(top))
                @for (state, style) in LINE_CLASSES.iter().enumerate() {
                    polyline class=(style) points=(points(samples, state, top, now)) {}
                }
                @for at in restarts(samples) {
                    line class="restart" x1=(x(at, now)) x2=(x(at, now)) y1=(TOP) y2=(BOTTOM) {}
                }
            }
            figcaption {
                ul class="legend" {
                    @for ((name, style), rows) in UNSENT_STATUSES.iter().zip(LINE_CLASSES).zip(last) {
                        li { (legend_line(style)) " " (name) " " strong { (rows) } }
                    }
                    li { (legend_line("restart")) " actor restart" }
                }
            }
        }
        (table(samples))
    }
}

/// The numbers of the chart, one row per minute, the newest first.
fn table(samples: &[DepthSample]) -> Markup {
    html! {
        details id="numbers" {
            summary { "Show as a table" }
            div class="wide" { table {
                caption { "Unsent rows, one sample per minute" }
                thead { tr { th scope="col" { "Time" } @for name in UNSENT_STATUSES { th scope="col" { (name) } } th scope="col" { "Restarts" } } }
                tbody {
                    @for sample in samples.iter().rev().step_by(SAMPLES_PER_ROW) {
                        tr {
                            th scope="row" { (rfc3339(sample.at)) }
                            @for rows in sample.rows { td class="number" { (rows) } }
                            td class="number" { (sample.restarts) }
                        }
                    }
                }
            } }
        }
    }
}

fn description(last: &[u64; 4], samples: &[DepthSample]) -> String {
    let parts = UNSENT_STATUSES.iter().enumerate().map(|(state, name)| {
        let max = samples.iter().map(|sample| sample.rows[state]).max().unwrap_or(0);
        format!("{name}: {} now, {max} at most", last[state])
    });
    parts.collect::<Vec<_>>().join("; ")
}

fn axes(top: u64) -> Markup {
    let level = |share: f64| BOTTOM - share * (BOTTOM - TOP);
    html! {
        @for (share, rows) in [(0.0, 0), (0.5, top / 2), (1.0, top)] {
            line class="axis" x1=(LEFT) x2=(RIGHT) y1=(level(share)) y2=(level(share)) {}
            text x=(LEFT - 8.0) y=(level(share) + 4.0) text-anchor="end" { (rows) }
        }
        @for (share, label) in [(0.0, "15 min ago"), (1.0 / 3.0, "10"), (2.0 / 3.0, "5"), (1.0, "now")] {
            text x=(LEFT + share * (RIGHT - LEFT)) y=(BOTTOM + 20.0) text-anchor=(anchor(share)) { (label) }
        }
    }
}

fn anchor(share: f64) -> &'static str {
    match share {
        0.0 => "start",
        1.0 => "end",
        _ => "middle",
    }
}

fn legend_line(style: &str) -> Markup {
    html! { svg class="key" viewBox="0 0 28 10" aria-hidden="true" { line class=(style) x1="0" x2="28" y1="5" y2="5" {} } }
}

/// The points of one status's line. Samples that equal both neighbours are left out: the line is the same.
fn points(samples: &[DepthSample], state: usize, top: u64, now: Timestamp) -> String {
    let rows = |at: usize| samples.get(at).map(|sample| sample.rows[state]);
    let changes = |at: &usize| {
        let before = at.checked_sub(1).and_then(rows);
        before != rows(*at) || rows(*at + 1) != rows(*at)
    };
    let kept = (0..samples.len()).filter(changes).map(|at| &samples[at]);
    let points = kept.map(|sample| {
        let y = BOTTOM - sample.rows[state] as f64 / top as f64 * (BOTTOM - TOP);
        format!("{},{y:.1}", x(sample.at, now))
    });
    points.collect::<Vec<_>>().join(" ")
}

fn x(at: Timestamp, now: Timestamp) -> String {
    let share = 1.0 - now.since(at).as_secs_f64() / TIME_RANGE.as_secs_f64();
    format!("{:.1}", LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT))
}

/// The times of samples with more actor restarts than the sample before.
fn restarts(samples: &[DepthSample]) -> Vec<Timestamp> {
    samples.windows(2).filter(|pair| pair[1].restarts > pair[0].restarts).map(|pair| pair[1].at).collect()
}

/// The upper end of the scale: a round even number, so that its half is a whole number of rows.
fn ceiling(max: u64) -> u64 {
    let mut step = 1_u64;
    loop {
        for round in [2, 4, 10] {
            let top = step.saturating_mul(round);
            if top >= max {
                return top;
            }
        }
        step = step.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64, pending: u64, restarts: u64) -> DepthSample {
        DepthSample { at: Timestamp::from_millis(second * 1_000), rows: [pending, 0, 0, 0], restarts }
    }

    #[test]
    fn the_scale_ends_at_a_round_number() {
        let tops = [0, 2, 3, 5, 11, 21, 399, 401, u64::MAX].map(ceiling);
        assert_eq!(tops, [2, 2, 4, 10, 20, 40, 400, 1_000, u64::MAX]);
    }

    #[test]
    fn lines_have_points_only_where_the_number_changes() {
        let now = Timestamp::from_millis(900_000);
        let samples: Vec<_> = (0..450).map(|n| sample(n * 2, if n < 225 { 0 } else { 4 }, 0)).collect();
        assert_eq!(points(&samples, 0, 4, now).split(' ').count(), 4);
        assert!(points(&samples, 0, 4, now).starts_with("64.0,188.0 "));
        assert_eq!(points(&[], 0, 2, now), "");
    }

    #[test]
    fn restarts_are_marked_where_their_number_increases() {
        let samples = [sample(0, 0, 1), sample(2, 0, 1), sample(4, 0, 3), sample(6, 0, 3)];
        assert_eq!(restarts(&samples), [Timestamp::from_millis(4_000)]);
    }

    #[test]
    fn the_chart_has_a_text_description() {
        let markup = chart(&[sample(0, 7, 0), sample(2, 3, 0)], Timestamp::from_millis(2_000)).into_string();
        assert!(markup.contains("PENDING: 3 now, 7 at most"), "{markup}");
        assert!(markup.contains("role=\"img\"") && !markup.contains("style="));
    }
}
