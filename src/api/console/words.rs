//! States and times in words, each state with a shape of its own: colour alone tells nobody.
use std::time::Duration;

use app::contract::rfc3339;
use domain::Timestamp;
use maud::{Markup, html};

/// A state: its word, and a shape before it.
pub(super) fn state(word: &str) -> Markup {
    let (shape, tone) = match word {
        "running" | "ACTIVE" | "NORMAL" | "closed" | "UP" | "SENT" | "arrived" => ("●", "good"),
        "restarting" | "paused" | "ELEVATED" | "half-open" | "FAILED" | "WAITING_FOR_RETRY" | "BLOCKED_BY_HEAD" => {
            ("▲", "watch")
        }
        "stopped" | "PASSIVE" | "CRITICAL" | "open" | "DOWN" | "PARKED" | "dead" => ("■", "bad"),
        _ => ("○", "calm"),
    };
    html! { span class={ "state " (tone) } { span aria-hidden="true" { (shape) } " " (word) } }
}

/// A moment as people say it, with the whole of it for who points at it.
pub(super) fn when(at: Timestamp, now: Timestamp) -> Markup {
    let told = if at > now { format!("in {}", span(at.since(now))) } else { format!("{} ago", span(now.since(at))) };
    let whole = rfc3339(at);
    html! { time datetime=(whole) title=(whole) { (told) } }
}

/// The same where there may be none.
pub(super) fn maybe_when(at: Option<Timestamp>, now: Timestamp) -> Markup {
    html! { @match at { Some(at) => (when(at, now)), None => "–" } }
}

/// A duration in its largest unit.
pub(super) fn span(long: Duration) -> String {
    match long.as_secs() {
        0 => format!("{} ms", long.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// A text that may be missing.
pub(super) fn or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("–")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_their_largest_unit() {
        let told = [0, 999, 1_000, 119_000, 120_000, 7_200_000, 172_800_000].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(told, ["0 ms", "999 ms", "1 s", "119 s", "2 min", "2 h", "2 d"]);
    }

    #[test]
    fn every_state_has_a_word_and_a_shape() {
        assert!(state("PARKED").into_string().contains("■</span> PARKED"));
        assert!(state("what is new").into_string().contains("○"));
        let now = Timestamp::from_millis(10_000);
        assert!(when(Timestamp::from_millis(7_000), now).into_string().ends_with(">3 s ago</time>"));
        assert!(when(Timestamp::from_millis(12_000), now).into_string().ends_with(">in 2 s</time>"));
    }
}
