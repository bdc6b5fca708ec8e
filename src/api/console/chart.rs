//! The chart of what waits: lines that differ in more than colour, and the same numbers as a table.
use app::contract::rfc3339;
use domain::Timestamp;
use maud::{Markup, html};

use super::history::{SPAN, Sample, WAITING};

/// The picture, in its own units.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
/// Where the lines are drawn: left, top, right, bottom.
const LEFT: f64 = 64.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 948.0;
const BOTTOM: f64 = 188.0;
/// Styles of the lines, by state.
const LINES: [&str; 4] = ["line pending", "line in-flight", "line failed", "line parked"];
/// Samples of one row of the table: a minute.
const SAMPLES_A_ROW: usize = 30;

/// The chart, its legend and its table.
pub(super) fn chart(samples: &[Sample], now: Timestamp) -> Markup {
    let top = ceiling(samples.iter().flat_map(|sample| sample.rows).max().unwrap_or(0));
    let last = samples.last().map_or([0; 4], |sample| sample.rows);
    html! {
        figure {
            svg role="img" aria-labelledby="chart-title chart-desc" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
                title id="chart-title" { "Rows that wait, over the last 15 minutes" }
                desc id="chart-desc" { (described(&last, samples)) }
                (axes(top))
                @for (state, style) in LINES.iter().enumerate() {
                    polyline class=(style) points=(points(samples, state, top, now)) {}
                }
                @for at in restarts(samples) {
                    line class="restart" x1=(x(at, now)) x2=(x(at, now)) y1=(TOP) y2=(BOTTOM) {}
                }
            }
            figcaption {
                ul class="legend" {
                    @for ((name, style), rows) in WAITING.iter().zip(LINES).zip(last) {
                        li { (sample_of(style)) " " (name) " " strong { (rows) } }
                    }
                    li { (sample_of("restart")) " restart of an actor" }
                }
            }
        }
        (table(samples))
    }
}

/// The same numbers for who cannot see lines, or wants to read them off: one row a minute, the newest first.
fn table(samples: &[Sample]) -> Markup {
    html! {
        details id="numbers" {
            summary { "The numbers as a table" }
            div class="wide" { table {
                caption { "Rows that wait, once a minute" }
                thead { tr { th scope="col" { "At" } @for name in WAITING { th scope="col" { (name) } } th scope="col" { "Restarts" } } }
                tbody {
                    @for sample in samples.iter().rev().step_by(SAMPLES_A_ROW) {
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

fn described(last: &[u64; 4], samples: &[Sample]) -> String {
    let told = WAITING.iter().enumerate().map(|(state, name)| {
        let most = samples.iter().map(|sample| sample.rows[state]).max().unwrap_or(0);
        format!("{name}: {} now, {most} at most", last[state])
    });
    told.collect::<Vec<_>>().join("; ")
}

fn axes(top: u64) -> Markup {
    let level = |share: f64| BOTTOM - share * (BOTTOM - TOP);
    html! {
        @for (share, rows) in [(0.0, 0), (0.5, top / 2), (1.0, top)] {
            line class="axis" x1=(LEFT) x2=(RIGHT) y1=(level(share)) y2=(level(share)) {}
            text x=(LEFT - 8.0) y=(level(share) + 4.0) text-anchor="end" { (rows) }
        }
        @for (share, told) in [(0.0, "15 min ago"), (1.0 / 3.0, "10"), (2.0 / 3.0, "5"), (1.0, "now")] {
            text x=(LEFT + share * (RIGHT - LEFT)) y=(BOTTOM + 20.0) text-anchor=(anchor(share)) { (told) }
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

fn sample_of(style: &str) -> Markup {
    html! { svg class="key" viewBox="0 0 28 10" aria-hidden="true" { line class=(style) x1="0" x2="28" y1="5" y2="5" {} } }
}

/// The line of one state. What repeats itself is left out: a line between its ends is the same line.
fn points(samples: &[Sample], state: usize, top: u64, now: Timestamp) -> String {
    let rows = |at: usize| samples.get(at).map(|sample| sample.rows[state]);
    let bends = |at: &usize| {
        let before = at.checked_sub(1).and_then(rows);
        before != rows(*at) || rows(*at + 1) != rows(*at)
    };
    let kept = (0..samples.len()).filter(bends).map(|at| &samples[at]);
    let told = kept.map(|sample| {
        let y = BOTTOM - sample.rows[state] as f64 / top as f64 * (BOTTOM - TOP);
        format!("{},{y:.1}", x(sample.at, now))
    });
    told.collect::<Vec<_>>().join(" ")
}

fn x(at: Timestamp, now: Timestamp) -> String {
    let share = 1.0 - now.since(at).as_secs_f64() / SPAN.as_secs_f64();
    format!("{:.1}", LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT))
}

/// When actors were restarted.
fn restarts(samples: &[Sample]) -> Vec<Timestamp> {
    samples.windows(2).filter(|pair| pair[1].restarts > pair[0].restarts).map(|pair| pair[1].at).collect()
}

/// A round number that is not below, and even, so that its half is a number of rows, too.
fn ceiling(most: u64) -> u64 {
    let mut step = 1_u64;
    loop {
        for round in [2, 4, 10] {
            let top = step.saturating_mul(round);
            if top >= most {
                return top;
            }
        }
        step = step.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64, pending: u64, restarts: u64) -> Sample {
        Sample { at: Timestamp::from_millis(second * 1_000), rows: [pending, 0, 0, 0], restarts }
    }

    #[test]
    fn the_scale_ends_at_a_round_number() {
        let tops = [0, 2, 3, 5, 11, 21, 399, 401, u64::MAX].map(ceiling);
        assert_eq!(tops, [2, 2, 4, 10, 20, 40, 400, 1_000, u64::MAX]);
    }

    #[test]
    fn a_line_bends_only_where_the_number_changes() {
        let now = Timestamp::from_millis(900_000);
        let samples: Vec<_> = (0..450).map(|n| sample(n * 2, if n < 225 { 0 } else { 4 }, 0)).collect();
        assert_eq!(points(&samples, 0, 4, now).split(' ').count(), 4);
        assert!(points(&samples, 0, 4, now).starts_with("64.0,188.0 "));
        assert_eq!(points(&[], 0, 2, now), "");
    }

    #[test]
    fn restarts_stand_where_their_number_rose() {
        let samples = [sample(0, 0, 1), sample(2, 0, 1), sample(4, 0, 3), sample(6, 0, 3)];
        assert_eq!(restarts(&samples), [Timestamp::from_millis(4_000)]);
    }

    #[test]
    fn the_picture_has_words() {
        let picture = chart(&[sample(0, 7, 0), sample(2, 3, 0)], Timestamp::from_millis(2_000)).into_string();
        assert!(picture.contains("PENDING: 3 now, 7 at most"), "{picture}");
        assert!(picture.contains("role=\"img\"") && !picture.contains("style="));
    }
}
