//! One row: why it stands where it stands, and what can be done about it.
use app::contract::rfc3339;
use app::port_types::{RowDiagnosis, RowId, RowSelector, RowStatus};
use domain::Timestamp;
use maud::{Markup, html};

use super::form;
use super::links::link;
use super::page::{self, Page};
use super::words::{maybe_when, or_dash, state, when};
use crate::admin::outbox::row_id;
use crate::call::Call;
use crate::route::Answer;

pub(super) async fn show(call: Call) -> Answer {
    let id = row_id(&call)?;
    let operations = &call.state.operations;
    let row = operations.row(id).await?;
    let standing = operations.diagnose(RowSelector::Event(row.event_id)).await?;
    let now = operations.now();
    let main = html! {
        p class="verdict" { (state(standing.verdict(now))) " " (told(&standing)) }
        (facts(&standing, now))
        (acts(&call, id, standing.row.status))
        p { a href="/console/outbox" { "To the outbox" } }
    };
    let event = row.event_id.to_string();
    let path = link("/admin/outbox/why", &[("event", &event)]);
    let command = format!("posthaste outbox why --event {event}");
    page::show(
        &call,
        &Page { tab: "Outbox", fresh: true, title: &format!("Row {id}"), main, path: &path, command: &command },
    )
}

/// The verdict as a sentence.
fn told(standing: &RowDiagnosis) -> Markup {
    html! {
        @if let Some(head) = &standing.head {
            "It waits behind " a href={ "/console/outbox/" (head.id) } { "row " (head.id) } " of its key, which is " (head.status.as_str()) "."
        } @else {
            @match standing.row.status {
                RowStatus::Sent => "It has left.",
                RowStatus::InFlight => "It is in the hand of its partition's owner.",
                RowStatus::Parked => "It waits for an operator.",
                RowStatus::Failed => "It waits for its next attempt.",
                RowStatus::Pending => "It waits for its turn.",
            }
        }
    }
}

fn facts(standing: &RowDiagnosis, now: Timestamp) -> Markup {
    let RowDiagnosis { row, head: _, owner, epoch, deaths, sent_to, by_fallback } = standing;
    let key = row.key.to_string();
    let fact = |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td { (value) } } };
    html! {
        div class="wide" { table class="facts" {
            caption { "What is known" }
            tbody {
                (fact("Status", state(row.status.as_str())))
                (fact("Type", html! { (row.kind) }))
                (fact("Key", html! { a href=(link("/console/outbox", &[("key", &key)])) { code { (key) } } }))
                (fact("Event", html! { code { (row.event_id) } }))
                (fact("Partition", html! { (row.partition.0) ", owned by " (or_dash(owner.as_ref().map(|owner| &*owner.0))) " since epoch " (epoch) }))
                (fact("Last claim", html! { (or_dash(row.lease_owner.as_ref().map(|owner| &*owner.0))) ", token " (row.lease_version) }))
                (fact("Attempts", html! { (row.retry_count) }))
                (fact("Next attempt", maybe_when(row.next_attempt_at, now)))
                (fact("Failure", html! { (or_dash(row.failure_type.map(|failure| failure.as_str()))) }))
                (fact("Last failure", html! { (or_dash(row.last_failure_reason.as_deref())) }))
                (fact("Deaths of its claimer", html! { (deaths) }))
                (fact("Written", html! { (when(row.created_at, now)) " (" (rfc3339(row.created_at)) ")" }))
                (fact("Sent", maybe_when(row.sent_at, now)))
                @if let Some(place) = sent_to {
                    (fact("Sent to", html! { (place.topic) ", partition " (place.partition) ", offset " (place.offset) }))
                }
                @if *by_fallback { (fact("How", html! { "by its type's fallback" })) }
            }
        } }
    }
}

fn acts(call: &Call, id: RowId, status: RowStatus) -> Markup {
    let (retry, park) = match status {
        RowStatus::Pending | RowStatus::Failed => (true, true),
        RowStatus::Parked => (true, false),
        RowStatus::InFlight | RowStatus::Sent => (false, false),
    };
    let act = |path: &str, told: &str, why: &str| {
        html! {
            form method="post" action={ "/console/outbox/" (id) "/" (path) } class="act" {
                (form::mark(call)) p { (why) } (form::reason_field()) " " button { (told) }
            }
        }
    };
    html! {
        h2 { "What can be done" }
        @if retry { (act("retry", "Retry now", "Makes it due now; its place in its key's line stays.")) }
        @if park { (act("park", "Park", "Sets it aside; later events of its key wait behind it.")) }
        @if !retry && !park { p { "Nothing: it is in flight, or has left." } }
    }
}

pub(super) async fn retry(call: Call) -> Answer {
    let (id, why) = (row_id(&call)?, form::reason(&form::read(&call.body)?)?);
    let who = call.identity()?.subject.as_str();
    call.state.operations.retry(id, who, &why).await?;
    Ok(done(&call, who, id, "retry", &why))
}

pub(super) async fn park(call: Call) -> Answer {
    let (id, why) = (row_id(&call)?, form::reason(&form::read(&call.body)?)?);
    let who = call.identity()?.subject.as_str();
    call.state.operations.park(id, who, &why).await?;
    Ok(done(&call, who, id, "park", &why))
}

fn done(call: &Call, who: &str, id: RowId, action: &str, why: &str) -> actix_web::HttpResponse {
    form::tell(who, action, &format!("row {id}"), why);
    page::see_with_note(call, &format!("/console/outbox/{id}"), format!("Row {id}: {action} was done."))
}
