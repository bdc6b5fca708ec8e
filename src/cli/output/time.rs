//! Spans of time as people read them.
use std::time::Duration;

use domain::Timestamp;

/// The two largest units of a span: `2 d 3 h`, `5 min 7 s`, `340 ms`.
pub(crate) fn span(duration: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let seconds = duration.as_secs();
    let Some(first) = UNITS.iter().position(|(_, size)| seconds >= *size) else {
        return format!("{} ms", duration.as_millis());
    };
    let (name, size) = UNITS[first];
    let whole = format!("{} {name}", seconds / size);
    match UNITS.get(first + 1) {
        Some((next, next_size)) if seconds % size >= *next_size => {
            format!("{whole} {} {next}", seconds % size / next_size)
        }
        Some(_) | None => whole,
    }
}

/// A time relative to now: `in 5 s`, `3 min ago`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("in {}", span(at.since(now))) } else { format!("{} ago", span(now.since(at))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_shows_its_two_largest_units() {
        let cases = [
            (0, "0 ms"),
            (340, "340 ms"),
            (1_500, "1 s"),
            (307_000, "5 min 7 s"),
            (300_000, "5 min"),
            (3_601_000, "1 h"),
            (183_600_000, "2 d 3 h"),
        ];
        for (millis, expected) in cases {
            assert_eq!(span(Duration::from_millis(millis)), expected);
        }
        let at = Timestamp::from_millis;
        assert_eq!(
            (relative(at(9_000), at(4_000)), relative(at(4_000), at(9_000))),
            ("in 5 s".into(), "5 s ago".into())
        );
    }
}
