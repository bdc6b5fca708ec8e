//! The latest dead letters in groups by type, failure and reason; those that were sent back are listed separately.
use app::operators::dead_letters::{DeadLetter, LatestDeadLetters};
use domain::Timestamp;
use maud::{Markup, html};

use crate::console::format::{or_dash, pluralize, relative_time};
use crate::console::links::link;
use crate::console::redrive_state::redrive_state;

/// Dead letters that failed for the same reason, the newest first.
struct ReasonGroup<'a> {
    reason: &'a str,
    failure: &'a str,
    dead_letters: Vec<&'a DeadLetter>,
}

/// The groups in the order of their newest dead letter.
pub(super) fn list(latest: &LatestDeadLetters, topic: (&str, &str), now: Timestamp) -> Markup {
    let (redriven, waiting): (Vec<&DeadLetter>, Vec<&DeadLetter>) =
        latest.dead_letters.iter().partition(|dead_letter| dead_letter.is_redriven());
    html! {
        @if waiting.is_empty() { p class="empty" { (nothing_waits(latest)) } }
        @for group in groups(&waiting) {
            section class="card" {
                h2 { (group.reason) }
                p class="quiet" { (group.failure) " · " (pluralize(group.dead_letters.len() as u64, "dead letter", "dead letters"))
                    ", the newest " (relative_time(group.dead_letters[0].message.record.timestamp, now)) }
                (table("Newest first", &group.dead_letters, topic, now))
            }
        }
        @if !redriven.is_empty() {
            section class="card done" {
                h2 { "Sent back" }
                (table("Newest first", &redriven, topic, now))
            }
        }
    }
}

fn nothing_waits(latest: &LatestDeadLetters) -> &'static str {
    match (latest.is_complete, latest.dead_letters.is_empty()) {
        (false, _) => "No dead letter waits among the latest.",
        (true, true) => "There are no dead letters.",
        (true, false) => "No dead letter waits: all were sent back.",
    }
}

fn groups<'a>(dead_letters: &[&'a DeadLetter]) -> Vec<ReasonGroup<'a>> {
    let mut groups: Vec<ReasonGroup<'a>> = Vec::new();
    for &dead_letter in dead_letters {
        let reason = dead_letter.reason().unwrap_or("No reason is given");
        let failure = dead_letter.failure_type().map_or("unknown failure", |failure| failure.as_str());
        match groups.iter_mut().find(|group| (group.reason, group.failure) == (reason, failure)) {
            Some(group) => group.dead_letters.push(dead_letter),
            None => groups.push(ReasonGroup { reason, failure, dead_letters: vec![dead_letter] }),
        }
    }
    groups
}

/// `topic` is the parameter of the links.
pub(super) fn table(caption: &str, dead_letters: &[&DeadLetter], topic: (&str, &str), now: Timestamp) -> Markup {
    html! {
        div class="wide" { table class="cards" {
            caption { (caption) }
            thead { tr { @for name in ["Dead letter", "State", "Type", "Key", "Failure", "Reason", "Attempts", "Dead-lettered"] { th scope="col" { (name) } } } }
            tbody { @for dead_letter in dead_letters { (row(dead_letter, topic, now)) } }
        } }
    }
}

fn row(dead_letter: &DeadLetter, topic: (&str, &str), now: Timestamp) -> Markup {
    let (position, record) = (dead_letter.position(), &dead_letter.message.record);
    html! {
        tr {
            th scope="row" { a href=(link(&format!("/console/dlt/{position}"), &[topic])) { (position) } }
            td data-label="State" { (redrive_state(dead_letter)) }
            td data-label="Type" { (or_dash(dead_letter.event_type())) }
            td data-label="Key" { code { (record.key) } }
            td data-label="Failure" { (or_dash(dead_letter.failure_type().map(|failure| failure.as_str()))) }
            td data-label="Reason" { (or_dash(dead_letter.reason())) }
            td class="number" data-label="Attempts" { @match dead_letter.attempts() { Some(attempts) => (attempts), None => "–" } }
            td data-label="Dead-lettered" { (relative_time(record.timestamp, now)) }
        }
    }
}
