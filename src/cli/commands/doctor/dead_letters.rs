//! `doctor`: counts the dead letters that were not sent back. They are a note, not a problem: each was set aside as configured.
use std::time::Duration;

use app::error::QueryError;
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
    let count = async {
        Ok::<_, QueryError>((
            dead_letters.waiting(COUNT_MAX).await?,
            dead_letters.waiting_of_webhooks(COUNT_MAX).await?,
        ))
    };
    let (of_topics, of_webhooks) = tokio::time::timeout(TIMEOUT, count).await.ok()?.ok()?;
    Some(finding(&of_topics, of_webhooks.as_ref()))
}

fn finding(of_topics: &[WaitingDeadLetters], of_webhooks: Option<&WaitingDeadLetters>) -> Finding {
    let number = |WaitingDeadLetters { waiting, more, .. }: &WaitingDeadLetters| {
        if *more { format!("at least {waiting}") } else { waiting.to_string() }
    };
    let of_topic = |count: &WaitingDeadLetters| {
        let (number, topic) = (number(count), &count.topic);
        format!("{number} of {topic} were not sent back: see `posthaste dlt list --topic {topic}`")
    };
    let of_all_webhooks = |count: &WaitingDeadLetters| {
        format!("{} of webhooks were not sent back: see `posthaste webhook dead-letters ID`", number(count))
    };
    let notes: Vec<String> =
        of_topics.iter().map(of_topic).chain(of_webhooks.into_iter().map(of_all_webhooks)).collect();
    if notes.is_empty() {
        return Finding::new("dead_letters", true, "none waits to be sent back");
    }
    Finding::note("dead_letters", notes.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_that_wait_are_a_note_that_names_each_topic() {
        let waiting = |topic: &str, waiting, more| WaitingDeadLetters { topic: topic.to_owned(), waiting, more };

        let of_topics = [waiting("order.events", 2, false), waiting("invoices", 1_000, true)];
        let noted = finding(&of_topics, Some(&waiting("webhooks", 3, false)));

        assert!(noted.ok && noted.is_note);
        assert_eq!(
            noted.detail,
            "2 of order.events were not sent back: see `posthaste dlt list --topic order.events`; \
             at least 1000 of invoices were not sent back: see `posthaste dlt list --topic invoices`; \
             3 of webhooks were not sent back: see `posthaste webhook dead-letters ID`"
        );
        assert!(!finding(&[], None).is_note);
    }
}
