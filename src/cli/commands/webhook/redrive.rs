//! `webhook redrive` of all dead letters: requests that each examine what fits into a few seconds, until the limit or the end.
use api::RefusalsBody;
use app::operators::dead_letters::{DeadLetterPosition, RefusedDeadLetter, RefusedDeadLetters, unsent_summary};
use serde_json::{Value, json};

use crate::cli::output::pluralize;

/// Most dead letters of one request.
const PAGE: u64 = 1_000;

/// The sum of the responses so far.
pub(super) struct WebhookRedrive {
    dry_run: bool,
    limit: u64,
    reason: String,
    matched: u64,
    redriven: u64,
    held: u64,
    refusals: RefusedDeadLetters,
    /// Where the next request continues, as the service wrote it; null at the beginning and at the end.
    next: Value,
}

impl WebhookRedrive {
    pub(super) fn new(dry_run: bool, limit: u32, reason: String) -> Self {
        let (refusals, next) = (RefusedDeadLetters::default(), Value::Null);
        Self { dry_run, limit: limit.into(), reason, matched: 0, redriven: 0, held: 0, refusals, next }
    }

    /// The run after this count, of as many dead letters as the operator confirms: none that arrived after the count.
    pub(super) fn confirmed(&self) -> Self {
        Self::new(false, u32::try_from(self.matched).unwrap_or(u32::MAX), self.reason.clone())
    }

    /// Sets the cursor of a further redrive to the end of the count, whose last dead letter is this run's last. A run that held some back is repeated
    /// from the start.
    pub(super) fn set_next_from(&mut self, count: &Self) {
        self.next = if self.held > 0 { Value::Null } else { count.next.clone() };
    }

    pub(super) fn matched(&self) -> u64 {
        self.matched
    }

    /// The body of the next request.
    pub(super) fn request(&self) -> Value {
        let limit = self.limit.saturating_sub(self.matched).min(PAGE);
        json!({"dryRun": self.dry_run, "limit": limit, "reason": self.reason, "after": self.next})
    }

    /// Adds a response, and returns whether another request must follow.
    pub(super) fn add(&mut self, response: &Value) -> bool {
        self.matched += response["matched"].as_u64().unwrap_or(0);
        self.redriven += response["redriven"].as_u64().unwrap_or(0);
        self.held += response["held"].as_u64().unwrap_or(0);
        self.refusals.append(refusals(&response["refused"]));
        self.next = response["next"].clone();
        self.matched < self.limit && !self.next.is_null()
    }

    /// The sum in the form of a response.
    pub(super) fn report(&self) -> Value {
        let Self { dry_run, matched, redriven, held, refusals, next, .. } = self;
        let mut report = json!({"dryRun": dry_run, "matched": matched, "redriven": redriven, "next": next});
        if *held > 0 {
            report["held"] = json!(held);
        }
        if let Some(refused) = RefusalsBody::from_refusals(refusals) {
            report["refused"] = json!(refused);
        }
        report
    }

    /// Which dead letters were not delivered again, for operators.
    pub(super) fn unsent_summary(&self) -> Option<String> {
        unsent_summary(self.held, &self.refusals)
    }

    pub(super) fn sentence(&self) -> String {
        let more = if self.next.is_null() { "" } else { "; there may be more: repeat the command, or raise --limit" };
        let dead_letters = pluralize(self.matched, "dead letter", "dead letters");
        if self.dry_run {
            return format!("{dead_letters} would be delivered again{more}");
        }
        format!(
            "{dead_letters}, {} of them {} delivered again{more}",
            self.redriven,
            if self.redriven == 1 { "is" } else { "are" }
        )
    }
}

/// The refused dead letters of a response; none where it has no such member.
fn refusals(response: &Value) -> RefusedDeadLetters {
    let refused = |named: &Value| {
        let position = DeadLetterPosition::parse(named["position"].as_str()?)?;
        Some(RefusedDeadLetter { position, reason: named["reason"].as_str()?.to_owned() })
    };
    let named = response["deadLetters"].as_array().into_iter().flatten().filter_map(refused);
    RefusedDeadLetters::new(response["count"].as_u64().unwrap_or(0), named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(matched: u64, next: Option<&str>) -> Value {
        json!({"dryRun": false, "matched": matched, "redriven": matched, "next": next})
    }

    #[test]
    fn requests_continue_after_an_empty_response_until_the_end() {
        let mut redrive = WebhookRedrive::new(false, 5_000, "fixed".into());
        assert_eq!(redrive.request(), json!({"dryRun": false, "limit": 1_000, "reason": "fixed", "after": null}));

        assert!(redrive.add(&response(0, Some("0/9@7"))), "what was examined so far belongs to other webhooks");
        assert_eq!(redrive.request()["after"], "0/9@7");
        assert!(redrive.add(&response(600, Some("1/3@7"))) && !redrive.add(&response(40, None)));

        assert_eq!(redrive.report(), response(640, None));
        assert_eq!(redrive.sentence(), "640 dead letters, 640 of them are delivered again");
    }

    #[test]
    fn a_run_delivers_no_more_than_its_count_and_ends_where_the_count_did() {
        let mut count = WebhookRedrive::new(true, 1_000, "fixed".into());
        assert!(!count.add(&json!({"dryRun": true, "matched": 5, "redriven": 0, "next": null})));
        assert_eq!(count.sentence(), "5 dead letters would be delivered again");

        let mut run = count.confirmed();
        assert_eq!(run.request(), json!({"dryRun": false, "limit": 5, "reason": "fixed", "after": null}));
        assert!(!run.add(&response(5, Some("0/9@7"))), "a sixth one arrived meanwhile");
        run.set_next_from(&count);

        assert_eq!(run.sentence(), "5 dead letters, 5 of them are delivered again");
    }

    #[test]
    fn requests_end_after_dead_letters_were_held_back() {
        let mut redrive = WebhookRedrive::new(false, 5_000, "fixed".into());

        assert!(!redrive.add(&json!({"dryRun": false, "matched": 9, "redriven": 7, "held": 2, "next": null})));

        assert_eq!(redrive.report()["held"], 2);
        assert!(redrive.unsent_summary().is_some_and(|text| text.starts_with("2 dead letters were held back")));
    }

    #[test]
    fn refused_dead_letters_of_all_responses_are_reported() {
        let mut redrive = WebhookRedrive::new(false, 5_000, "fixed".into());
        let with_refused = |position: &str, next: Option<&str>| {
            let refused = json!({"count": 1, "deadLetters": [{"position": position, "reason": "too large"}]});
            json!({"dryRun": false, "matched": 3, "redriven": 2, "refused": refused, "next": next})
        };

        assert!(redrive.add(&with_refused("0/9", Some("0/9@7"))) && !redrive.add(&with_refused("1/3", None)));

        assert_eq!((&redrive.report()["redriven"], &redrive.report()["refused"]["count"]), (&json!(4), &json!(2)));
        let text = redrive.unsent_summary().expect("two were refused");
        assert!(text.ends_with("0/9 (too large), 1/3 (too large)"), "{text}");
    }

    #[test]
    fn requests_end_at_the_limit_and_say_that_there_may_be_more() {
        let mut redrive = WebhookRedrive::new(false, 1_200, String::new());

        assert!(redrive.add(&response(1_000, Some("0/999@7"))));
        assert_eq!(redrive.request()["limit"], 200);
        assert!(!redrive.add(&response(200, Some("0/1199@7"))));

        assert!(redrive.sentence().contains("there may be more"), "{}", redrive.sentence());
    }
}
