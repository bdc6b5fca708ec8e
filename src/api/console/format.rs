//! States, times and durations as text. Each state has its own shape, because colour alone is not accessible.
use std::time::Duration;

use app::contract::rfc3339;
use domain::Timestamp;
use maud::{Markup, html};

/// A state with its shape and colour.
pub(crate) fn state_label(state: &str) -> Markup {
    let (shape, class) = match state {
        "running" | "ACTIVE" | "NORMAL" | "closed" | "UP" | "SENT" | "arrived" => ("●", "good"),
        "restarting" | "paused" | "ELEVATED" | "half-open" | "FAILED" | "WAITING_FOR_RETRY" | "BLOCKED_BY_HEAD"
        | "warning" => ("▲", "watch"),
        "stopped" | "PASSIVE" | "CRITICAL" | "open" | "DOWN" | "PARKED" | "dead" | "error" => ("■", "bad"),
        _ => ("○", "calm"),
    };
    html! { span class={ "state " (class) } { span aria-hidden="true" { (shape) } " " (state) } }
}

/// A time relative to now, with the absolute time as its tooltip.
pub(crate) fn relative_time(at: Timestamp, now: Timestamp) -> Markup {
    let relative =
        if at > now { format!("in {}", duration(at.since(now))) } else { format!("{} ago", duration(now.since(at))) };
    let absolute = rfc3339(at);
    html! { time datetime=(absolute) title=(absolute) { (relative) } }
}

/// A time relative to now, or a dash.
pub(crate) fn optional_time(at: Option<Timestamp>, now: Timestamp) -> Markup {
    html! { @match at { Some(at) => (relative_time(at, now)), None => "–" } }
}

/// A duration in its largest unit.
pub(crate) fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// A duration below a second in its own unit, as that of a message: 250 µs, 2.5 ms.
pub(crate) fn short_duration(short: Duration) -> String {
    match short.as_micros() {
        micros @ 0..1_000 => format!("{micros} µs"),
        micros @ 1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1_000.0),
        _ => duration(short),
    }
}

/// A number with its digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join("\u{202f}")
}

/// A number with its noun: `1 row is`, `2 rows are`.
pub(crate) fn pluralize(number: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { singular } else { plural })
}

/// A rate: whole numbers from 100 events a second on, otherwise one decimal.
pub(crate) fn per_second(rate: f64) -> String {
    if rate >= 100.0 || rate == 0.0 { grouped(rate.round() as u64) } else { format!("{rate:.1}") }
}

/// An optional text, or a dash.
pub(crate) fn or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("–")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_their_largest_unit() {
        let millis = [0, 999, 1_000, 119_000, 120_000, 7_200_000, 172_800_000];
        let texts = millis.map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(texts, ["0 ms", "999 ms", "1 s", "119 s", "2 min", "2 h", "2 d"]);
        let short = [40, 2_450, 1_000_000].map(|micros| short_duration(Duration::from_micros(micros)));
        assert_eq!(short, ["40 µs", "2.5 ms", "1 s"]);
    }

    #[test]
    fn numbers_are_grouped_and_rates_rounded_to_their_size() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
        assert_eq!([0.0, 0.25, 99.94, 1_234.5].map(per_second), ["0", "0.2", "99.9", "1\u{202f}235"]);
        assert_eq!(pluralize(1, "row is", "rows are"), "1 row is");
    }

    #[test]
    fn states_have_a_shape_and_times_are_relative() {
        assert!(state_label("PARKED").into_string().contains("■</span> PARKED"));
        assert!(state_label("a new state").into_string().contains("○"));
        let now = Timestamp::from_millis(10_000);
        assert!(relative_time(Timestamp::from_millis(7_000), now).into_string().ends_with(">3 s ago</time>"));
        assert!(relative_time(Timestamp::from_millis(12_000), now).into_string().ends_with(">in 2 s</time>"));
    }
}
