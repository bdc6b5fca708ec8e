//! A sparkline: the shape of a series without axes. The number next to it is the value; the line shows its course.
use maud::{Markup, html};

/// The size of the view box.
const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 28.0;
/// Margin for the width of the line.
const MARGIN: f64 = 2.0;

/// The line through these values, from the oldest to the newest, scaled to their maximum. Decorative: a screen reader has the number beside it.
pub(crate) fn sparkline(values: &[f64]) -> Markup {
    let points = points(values);
    html! {
        svg class="spark" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" aria-hidden="true" {
            @if let (Some(first), Some(last)) = (points.first(), points.last()) {
                polygon class="spark-area" points=(format!("{},{HEIGHT} {} {},{HEIGHT}", first.0, joined(&points), last.0)) {}
                polyline class="spark-line" points=(joined(&points)) {}
            }
        }
    }
}

fn joined(points: &[(String, String)]) -> String {
    points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")
}

fn points(values: &[f64]) -> Vec<(String, String)> {
    let top = values.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let step = WIDTH / values.len().saturating_sub(1).max(1) as f64;
    let point = |(at, value): (usize, &f64)| {
        let y = HEIGHT - MARGIN - value / top * (HEIGHT - 2.0 * MARGIN);
        (format!("{:.1}", at as f64 * step), format!("{y:.1}"))
    };
    values.iter().enumerate().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_reaches_from_the_bottom_to_its_maximum() {
        let y: Vec<_> = points(&[0.0, 5.0, 10.0]).into_iter().map(|(_, y)| y).collect();
        assert_eq!(y, ["26.0", "14.0", "2.0"]);
        assert!(points(&[]).is_empty());
        assert!(!sparkline(&[0.0, 0.0]).into_string().contains("NaN"));
    }
}
