//! One outbox row: its diagnosis, its details, and the actions on it.
use app::contract::rfc3339;
use app::port_types::{RowDiagnosis, RowId, RowSelector, RowStatus};
use domain::Timestamp;
use maud::{Markup, html};

use crate::admin::filters::row_id;
use crate::console::form;
use crate::console::format::{optional_time, or_dash, relative_time, state_label};
use crate::console::layout::{self, Page};
use crate::console::links::link;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let id = row_id(&context)?;
    let operations = &context.state.operations;
    let row = operations.row(id).await?;
    let diagnosis = operations.diagnose(RowSelector::Event(row.event_id)).await?;
    let now = operations.now();
    let main = html! {
        p class="verdict" { (state_label(diagnosis.verdict(now))) " " (explanation(&diagnosis)) }
        (facts(&diagnosis, now))
        (actions(&context, id, diagnosis.row.status))
        p { a href="/console/outbox" { "Back to the outbox" } }
    };
    let event = row.event_id.to_string();
    let path = link("/admin/outbox/why", &[("event", &event)]);
    let command = format!("posthaste outbox why --event {event}");
    layout::show(
        &context,
        &Page { tab: "Outbox", refreshes: true, title: &format!("Row {id}"), main, path: &path, command: &command },
    )
}

/// The diagnosis as a sentence.
fn explanation(diagnosis: &RowDiagnosis) -> Markup {
    html! {
        @if let Some(head) = &diagnosis.head {
            "Blocked by " a href={ "/console/outbox/" (head.id) } { "row " (head.id) } " of the same key, which is " (head.status.as_str()) "."
        } @else {
            @match diagnosis.row.status {
                RowStatus::Sent => "The event was sent.",
                RowStatus::InFlight => "The owner of the partition is publishing it.",
                RowStatus::Parked => "An operator must retry or redrive it.",
                RowStatus::Failed => "It will be retried.",
                RowStatus::Pending => "It will be published.",
            }
        }
    }
}

fn facts(diagnosis: &RowDiagnosis, now: Timestamp) -> Markup {
    let RowDiagnosis { row, head: _, owner, epoch, deaths, sent_to, by_fallback } = diagnosis;
    let key = row.key.to_string();
    let fact = |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td { (value) } } };
    html! {
        div class="wide" { table class="facts" {
            caption { "Details" }
            tbody {
                (fact("Status", state_label(row.status.as_str())))
                (fact("Type", html! { (row.kind) }))
                (fact("Key", html! { a href=(link("/console/outbox", &[("key", &key)])) { code { (key) } } }))
                (fact("Event", html! { code { (row.event_id) } }))
                (fact("Partition", html! { (row.partition.0) ", owned by " (or_dash(owner.as_ref().map(|owner| &*owner.0))) " since epoch " (epoch) }))
                (fact("Last claim", html! { (or_dash(row.lease_owner.as_ref().map(|owner| &*owner.0))) ", token " (row.lease_version) }))
                (fact("Attempts", html! { (row.retry_count) }))
                (fact("Last attempt", optional_time(row.last_attempt_at, now)))
                (fact("Next attempt", optional_time(row.next_attempt_at, now)))
                (fact("Failure", html! { (or_dash(row.failure_type.map(|failure| failure.as_str()))) }))
                (fact("Last failure", html! { (or_dash(row.last_failure_reason.as_deref())) }))
                (fact("Instance deaths while publishing it", html! { (deaths) }))
                (fact("Created", html! { (relative_time(row.created_at, now)) " (" (rfc3339(row.created_at)) ")" }))
                (fact("Sent", optional_time(row.sent_at, now)))
                @if let Some(place) = sent_to {
                    (fact("Sent to", html! { (place.topic) ", partition " (place.partition) ", offset " (place.offset) }))
                }
                @if *by_fallback { (fact("How", html! { "by the fallback of its type" })) }
            }
        } }
    }
}

fn actions(context: &RequestContext, id: RowId, status: RowStatus) -> Markup {
    let (retry, park) = match status {
        RowStatus::Pending | RowStatus::Failed => (true, true),
        RowStatus::Parked => (true, false),
        RowStatus::InFlight | RowStatus::Sent => (false, false),
    };
    let action = |path: &str, label: &str, effect: &str| {
        html! {
            form method="post" action={ "/console/outbox/" (id) "/" (path) } class="act" {
                (form::csrf_field(context)) p { (effect) } (form::reason_field()) " " button { (label) }
            }
        }
    };
    html! {
        h2 { "Actions" }
        @if retry { (action("retry", "Retry now", "Makes the row due now. The order of its key does not change.")) }
        @if park { (action("park", "Park", "Stops its retries. Later events of its key are blocked until it is sent.")) }
        @if !retry && !park { p { "None: the row is in flight or sent." } }
    }
}

pub(crate) async fn retry(context: RequestContext) -> RouteResult {
    let (id, reason) = (row_id(&context)?, form::reason(&form::read(&context.body)?)?);
    let operator = context.identity()?.subject.as_str();
    context.state.operations.retry(id, operator, &reason).await?;
    Ok(redirect_to_row(&context, operator, id, "retry", &reason))
}

pub(crate) async fn park(context: RequestContext) -> RouteResult {
    let (id, reason) = (row_id(&context)?, form::reason(&form::read(&context.body)?)?);
    let operator = context.identity()?.subject.as_str();
    context.state.operations.park(id, operator, &reason).await?;
    Ok(redirect_to_row(&context, operator, id, "park", &reason))
}

fn redirect_to_row(
    context: &RequestContext,
    operator: &str,
    id: RowId,
    action: &str,
    reason: &str,
) -> actix_web::HttpResponse {
    form::log_operator_action(operator, action, &format!("row {id}"), reason);
    layout::see_other_with_note(context, &format!("/console/outbox/{id}"), format!("Row {id}: {action} succeeded."))
}
