//! An outbox row: why it is in its state and the next step, its contents, its path and history, the rows of its key, and the actions on it.
mod contents;
mod explanation;
mod facts;
mod history;
mod state_path;

use app::error::QueryError;
use app::operators::outbox::RowPage;
use app::port_types::{Audit, AuditFilter, OperatorAction, RowFilter, RowId, RowSelector, RowStatus};
use domain::Timestamp;
use maud::{Markup, html};

use crate::admin::dead_letters::audit;
use crate::admin::filters::row_id;
use crate::admin::live_events::log_if_changed;
use crate::console::form;
use crate::console::format::{relative_time, state_label};
use crate::console::layout::{self, Page};
use crate::console::links::link;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

/// Rows of the same key that are shown.
const SAME_KEY_ROWS_MAX: u32 = 20;
/// Actions of operators that are shown.
const AUDIT_MAX: u32 = 50;

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let id = row_id(&context)?;
    let operations = &context.state.operations;
    let row = operations.row(id).await?;
    let diagnosis = operations.diagnose(RowSelector::Event(row.event_id)).await?;
    let same_key_rows =
        operations.rows(&RowFilter { key: Some(row.key), ..RowFilter::default() }, SAME_KEY_ROWS_MAX).await?;
    let audit = operations.audit_entries(&AuditFilter { row: Some(id), ..AuditFilter::default() }, AUDIT_MAX).await?;
    let (event, now) = (contents::event(&context, id).await?, operations.now());
    let attempts_max =
        event.as_ref().map(|event| context.state.options.relay_rules.retry_of(&event.topic).attempts_max);
    let broker_configured = operations.health().broker_configured;
    let command = format!("posthaste outbox why --event {}", row.event_id);
    let main = html! {
        p class="verdict" { (state_label(diagnosis.verdict(now))) " " (explanation::sentence(&diagnosis, broker_configured, now)) }
        (explanation::next_step(&diagnosis, broker_configured))
        (actions(&context, id, diagnosis.row.status))
        div class="columns" {
            section class="card" { (facts::facts(&diagnosis, attempts_max, now)) }
            section class="card" {
                h2 { "Path" } (state_path::state_path(&diagnosis, &audit.entries, now))
                h2 { "History" } (history::timeline(&context, &diagnosis, &audit.entries, now))
            }
        }
        (contents::section(&context, event.as_ref()))
        section class="card" { (same_key_list(&same_key_rows, id, now)) }
        p { a href="/console/outbox" { "Back to the outbox" } }
    };
    let event = row.event_id.to_string();
    let path = link("/admin/outbox/why", &[("event", &event)]);
    layout::show(
        &context,
        &Page { tab: "Outbox", refreshes: true, title: &format!("Row {id}"), main, path: &path, command: &command },
    )
}

/// The rows of the same key in their order: a row waits for the ones before it.
fn same_key_list(rows: &RowPage, id: RowId, now: Timestamp) -> Markup {
    html! {
        h2 { "Rows of the same key" }
        ol class="chain" {
            @for row in &rows.rows {
                li aria-current=[(row.id == id).then_some("true")] {
                    a href={ "/console/outbox/" (row.id) } { "row " (row.id) } " " (state_label(row.status.as_str())) " " (row.event_type)
                    " " span class="quiet" { (relative_time(row.created_at, now)) }
                }
            }
        }
        @if rows.next.is_some() { p class="quiet" { "and later ones" } }
    }
}

fn actions(context: &RequestContext, id: RowId, status: RowStatus) -> Markup {
    let [retry, park] = [OperatorAction::Retry, OperatorAction::Park].map(|action| action.applies_to(status));
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
        @if !retry && !park { p class="quiet" { "None: the row is in flight or sent." } }
    }
}

pub(crate) async fn retry(context: RequestContext) -> RouteResult {
    let (id, audit) = (row_id(&context)?, audit(&context, form::reason(&form::read(&context.body)?)?)?);
    let result = context.state.operations.retry(id, &audit.operator, &audit.reason).await;
    acted_on_row(&context, result, &audit, id, "retry")
}

pub(crate) async fn park(context: RequestContext) -> RouteResult {
    let (id, audit) = (row_id(&context)?, audit(&context, form::reason(&form::read(&context.body)?)?)?);
    let result = context.state.operations.park(id, &audit.operator, &audit.reason).await;
    acted_on_row(&context, result, &audit, id, "park")
}

fn acted_on_row(
    context: &RequestContext,
    result: Result<(), QueryError>,
    audit: &Audit,
    id: RowId,
    action: &str,
) -> RouteResult {
    log_if_changed(&context.state, &result, audit, action, &format!("row {id}"));
    result?;
    let note = format!("Row {id}: {action} succeeded.");
    Ok(layout::see_other_with_flash(context, &format!("/console/outbox/{id}"), note))
}
