//! `doctor`: counts the dead letters that were not sent back. They are a note, not a problem: each was set aside as configured.
use std::time::Duration;

use app::operators::dead_letters_by_topic::WaitingDeadLetters;
use posthaste::OperatorAccess;

use super::finding::Finding;

/// Most dead letters that are counted in each topic.
const COUNT_MAX: u32 = 1_000;
/// Longest count: it reads the dead-letter topics.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The finding; `None` where no broker is configured, or where the count fails or takes too long.
pub(super) async fn check(access: &OperatorAccess) -> Option<Finding> {
    let dead_letters = access.dead_letters.as_ref()?;
    // Reading changes nothing, so a count may be dropped at any point.
    let waiting = tokio::time::timeout(TIMEOUT, dead_letters.waiting(COUNT_MAX)).await.ok()?.ok()?;
    Some(finding(&waiting))
}

fn finding(waiting: &[WaitingDeadLetters]) -> Finding {
    if waiting.is_empty() {
        return Finding::new("dead_letters", true, "none waits to be sent back");
    }
    let of_topic = |WaitingDeadLetters { topic, waiting, more }: &WaitingDeadLetters| {
        let at_least = if *more { "at least " } else { "" };
        format!("{at_least}{waiting} of {topic} were not sent back: see `posthaste dlt list --topic {topic}`")
    };
    Finding::note("dead_letters", waiting.iter().map(of_topic).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_that_wait_are_a_note_that_names_each_topic() {
        let waiting = |topic: &str, waiting, more| WaitingDeadLetters { topic: topic.to_owned(), waiting, more };

        let noted = finding(&[waiting("order.events", 2, false), waiting("invoices", 1_000, true)]);

        assert!(noted.ok && noted.is_note);
        assert_eq!(
            noted.detail,
            "2 of order.events were not sent back: see `posthaste dlt list --topic order.events`; \
             at least 1000 of invoices were not sent back: see `posthaste dlt list --topic invoices`"
        );
        assert!(!finding(&[]).is_note);
    }
}
