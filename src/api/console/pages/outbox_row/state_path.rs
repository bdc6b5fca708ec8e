//! The states of a row as a path with its branches: committed, claimed, and then sent, failed or parked. The stores keep the facts of the last
//! attempt only, and so does the path.
use app::port_types::{AuditEntry, OperatorAction, RowDiagnosis, RowStatus};
use domain::Timestamp;
use maud::{Markup, html};

use super::history::sent_to_text;
use crate::console::format::{or_dash, pluralize, relative_time, state_label};

/// A state on the path.
struct Step {
    state: RowStatus,
    is_current: bool,
    /// What is known about the state; `None` if the row has not reached it, as far as the store knows.
    facts: Option<Markup>,
}

pub(super) fn state_path(diagnosis: &RowDiagnosis, audit: &[AuditEntry], now: Timestamp) -> Markup {
    let step = |state, facts| Step { state, is_current: diagnosis.row.status == state, facts };
    let [pending, in_flight] =
        [step(RowStatus::Pending, Some(committed(diagnosis, now))), step(RowStatus::InFlight, claimed(diagnosis, now))];
    let [failed, parked, sent] = [
        step(RowStatus::Failed, failed(diagnosis, now)),
        step(RowStatus::Parked, parked(diagnosis, audit, now)),
        step(RowStatus::Sent, sent(diagnosis, now)),
    ];
    html! {
        ol class="path" aria-label="States of the row" {
            (item(&pending, None)) (item(&in_flight, Some(&[failed, parked]))) (item(&sent, None))
        }
    }
}

fn item(step: &Step, branches: Option<&[Step]>) -> Markup {
    html! {
        li class=(if step.facts.is_some() { "reached" } else { "open" }) aria-current=[step.is_current.then_some("step")] {
            @match &step.facts {
                Some(facts) => { (state_label(step.state.as_str())) " " span { (facts) } },
                // Without the shape and the colour of the state, which would alarm.
                None => span class="quiet" { span aria-hidden="true" { "◌" } " " (step.state.as_str()) " not reached" },
            }
            @if let Some(branches) = branches { ul class="branches" { @for branch in branches { (item(branch, None)) } } }
        }
    }
}

fn committed(diagnosis: &RowDiagnosis, now: Timestamp) -> Markup {
    html! {
        "committed " (relative_time(diagnosis.row.created_at, now))
        @if let Some(head) = &diagnosis.head {
            "; waits behind " a href={ "/console/outbox/" (head.id) } { "row " (head.id) } ", which is " (head.status.as_str())
        }
    }
}

fn claimed(diagnosis: &RowDiagnosis, now: Timestamp) -> Option<Markup> {
    let row = &diagnosis.row;
    let is_claimed = row.status == RowStatus::InFlight || row.retry_count > 0 || row.last_attempt_at.is_some();
    is_claimed.then(|| {
        html! {
            // A redrive counts the attempts from 0 again.
            @if row.retry_count > 0 { "attempt " (row.retry_count) ", " }
            "claimed by " (or_dash(row.lease_owner.as_ref().map(|owner| &*owner.0)))
            " with token " (row.lease_version)
            @if let Some(at) = row.last_attempt_at { ", " (relative_time(at, now)) }
            @if row.retry_count > 1 { "; of the attempts before it only the number is stored" }
            @if diagnosis.deaths > 0 { "; " (pluralize(diagnosis.deaths.into(), "claimer", "claimers")) " died while it was in flight" }
        }
    })
}

fn failed(diagnosis: &RowDiagnosis, now: Timestamp) -> Option<Markup> {
    let row = &diagnosis.row;
    let failure = row.failure_type.map(|failure| {
        html! { (failure.as_str()) @if let Some(reason) = &row.last_failure_reason { ": " (reason) } }
    });
    if failure.is_none() && row.status != RowStatus::Failed {
        return None;
    }
    Some(html! {
        (failure.unwrap_or_else(|| html! { "to be tried again" }))
        @if row.status == RowStatus::Failed {
            @match row.due_later(now) { Some(due) => { "; next attempt " (relative_time(due, now)) }, None => "; due now" }
        } @else if row.status == RowStatus::Sent { "; a later attempt succeeded" }
    })
}

/// The latest action that parked the row or ended its parking, or the last failure.
fn parked(diagnosis: &RowDiagnosis, audit: &[AuditEntry], now: Timestamp) -> Option<Markup> {
    let row = &diagnosis.row;
    let latest = |action: OperatorAction| {
        audit.iter().filter(|entry| entry.action == action.as_str()).max_by_key(|entry| entry.at)
    };
    let by = |entry: &AuditEntry| html! { (entry.audit.operator) " " (relative_time(entry.at, now)) };
    let (park, redrive) = (latest(OperatorAction::Park), latest(OperatorAction::Redrive));
    match row.status {
        RowStatus::Parked => Some(match park.filter(|park| redrive.is_none_or(|redrive| redrive.at <= park.at)) {
            Some(park) if row.last_attempt_at.is_none_or(|attempt| attempt <= park.at) => html! { "by " (by(park)) },
            _ => {
                html! { "after attempt " (row.retry_count) @if let Some(reason) = &row.last_failure_reason { ": " (reason) } }
            }
        }),
        RowStatus::Pending | RowStatus::InFlight | RowStatus::Failed | RowStatus::Sent => match (park, redrive) {
            (_, Some(redrive)) => Some(html! { "redriven by " (by(redrive)) }),
            (Some(park), None) => Some(html! { "earlier, by " (by(park)) }),
            (None, None) => None,
        },
    }
}

fn sent(diagnosis: &RowDiagnosis, now: Timestamp) -> Option<Markup> {
    let sent_at = diagnosis.row.sent_at?;
    Some(html! {
        (relative_time(sent_at, now))
        @if let Some(sent_to) = &diagnosis.sent_to { " to " (sent_to_text(sent_to)) }
        @if diagnosis.by_fallback { ", by the fallback of its type" }
    })
}

#[cfg(test)]
mod tests {
    use app::port_types::{Audit, EventKey, FailureType, InstanceId, PartitionNo, RecordLocation, RowView};
    use domain::EventId;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(300_000);

    fn seconds_before(seconds: i64) -> Timestamp {
        Timestamp::from_millis(NOW.millis() - seconds * 1_000)
    }

    fn row(status: RowStatus, attempts: u32, failure: Option<&str>) -> RowDiagnosis {
        let row = RowView {
            id: 6,
            event_id: EventId::new_v7(Timestamp::from_millis(1_000), [1; 10]),
            key: EventKey::from_text("k"),
            event_type: "ORDER_CREATED".into(),
            partition: PartitionNo(7),
            status,
            lease_owner: (attempts > 0).then(|| InstanceId("one".into())),
            lease_version: 5,
            retry_count: attempts,
            next_attempt_at: (status == RowStatus::Failed).then(|| Timestamp::from_millis(NOW.millis() + 9_000)),
            last_attempt_at: (attempts > 0).then(|| seconds_before(40)),
            failure_type: failure.map(|_| FailureType::Network),
            last_failure_reason: failure.map(str::to_owned),
            created_at: seconds_before(100),
            sent_at: (status == RowStatus::Sent).then(|| seconds_before(39)),
        };
        let sent_to = row.sent_at.map(|_| RecordLocation { topic: "t".into(), partition_offset: Some((3, 17)) });
        RowDiagnosis { row, head: None, owner: None, epoch: 4, deaths: 0, sent_to, by_fallback: false }
    }

    fn action(action: &str, seconds_ago: i64) -> AuditEntry {
        let audit = Audit { operator: "ann".into(), reason: String::new() };
        AuditEntry { id: 1, at: seconds_before(seconds_ago), action: action.into(), row: Some(6), audit }
    }

    /// The text of each state, from PENDING to SENT in the order of the page, without elements.
    fn states(diagnosis: &RowDiagnosis, audit: &[AuditEntry]) -> Vec<String> {
        let html = state_path(diagnosis, audit, NOW).into_string();
        let plain = |item: &str| {
            let text: String =
                item.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect();
            text.trim_start_matches(|first: char| !first.is_ascii_uppercase()).to_owned()
        };
        html.split("<li class=\"").skip(1).map(|item| plain(item.split_once('>').expect("a tag").1)).collect()
    }

    #[test]
    fn a_row_shows_the_states_that_it_has_reached_and_the_branch_that_it_took() {
        use RowStatus::{Failed, InFlight, Parked, Pending, Sent};
        let open = |state: &str| format!("{state} not reached");
        let committed = "PENDING committed 100 s ago".to_owned();
        let claimed = |attempt: u32| format!("IN_FLIGHT attempt {attempt}, claimed by one with token 5, 40 s ago");
        let [failed, parked, sent] = ["FAILED", "PARKED", "SENT"].map(open);
        let states = |diagnosis: &RowDiagnosis| states(diagnosis, &[]);

        let expected = [committed.clone(), open("IN_FLIGHT"), failed.clone(), parked.clone(), sent.clone()];
        assert_eq!(states(&row(Pending, 0, None)), expected);
        assert_eq!(states(&row(InFlight, 1, None))[1], claimed(1));
        let retried = states(&row(Failed, 2, Some("refused")));
        assert_eq!(retried[1], format!("{}; of the attempts before it only the number is stored", claimed(2)));
        assert_eq!(
            retried[2..],
            ["FAILED NETWORK: refused; next attempt in 9 s".to_owned(), parked.clone(), sent.clone()]
        );
        assert_eq!(states(&row(Parked, 1, Some("too big")))[3], "PARKED after attempt 1: too big");
        let arrived = states(&row(Sent, 2, Some("refused")));
        assert_eq!(arrived[2], "FAILED NETWORK: refused; a later attempt succeeded");
        assert_eq!(arrived[3..], [parked, "SENT 39 s ago to t, partition 3, offset 17".to_owned()]);
    }

    #[test]
    fn operators_are_named_on_the_branch_of_parking() {
        let parked = |status, audit: &[AuditEntry]| states(&row(status, 1, None), audit)[3].clone();

        assert_eq!(parked(RowStatus::Parked, &[action("park", 20)]), "PARKED by ann 20 s ago");
        let parked_again = [action("park", 90), action("redrive", 60)];
        assert_eq!(parked(RowStatus::Parked, &parked_again), "PARKED after attempt 1");
        assert_eq!(parked(RowStatus::Sent, &parked_again), "PARKED redriven by ann 60 s ago");
        assert_eq!(parked(RowStatus::Failed, &[action("park", 90)]), "PARKED earlier, by ann 90 s ago");
    }

    #[test]
    fn the_current_state_is_marked_not_only_by_its_colour() {
        let html = state_path(&row(RowStatus::Failed, 1, Some("refused")), &[], NOW).into_string();
        assert_eq!(html.matches("aria-current=\"step\"").count(), 1);
        assert!(html.contains("aria-current=\"step\"><span class=\"state watch\">"), "{html}");
    }
}
