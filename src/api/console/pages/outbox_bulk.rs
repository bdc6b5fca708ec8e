//! An action on several selected rows in two steps: a preview of the changes, then the changes, with a reason.
use app::error::QueryError;
use app::port_types::{OperatorAction, RowId, RowStatus, RowView};
use maud::{Markup, html};

use crate::admin::live_events::log_operator_action;
use crate::console::form;
use crate::console::format::{pluralize, state_label};
use crate::console::layout::{self, Page};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::RouteResult;

/// Most rows of one action: more than a page shows.
const ROWS_MAX: usize = 100;

/// The action on the selected rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BulkAction {
    /// Makes waiting and parked rows due.
    Retry,
    /// Makes parked rows due, and no other.
    Redrive,
    /// Parks rows that wait for an attempt.
    Park,
}

impl BulkAction {
    fn read(query: &Query<'_>) -> Result<Self, Problem> {
        match query.non_empty("action")? {
            Some("retry") => Ok(Self::Retry),
            Some("redrive") => Ok(Self::Redrive),
            Some("park") => Ok(Self::Park),
            _ => Err(Problem::field("action", "must be one of retry, redrive, park")),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Redrive => "redrive",
            Self::Park => "park",
        }
    }

    fn applies_to(self, status: RowStatus) -> bool {
        let action = match self {
            Self::Retry => OperatorAction::Retry,
            Self::Redrive => OperatorAction::Redrive,
            Self::Park => OperatorAction::Park,
        };
        action.applies_to(status)
    }
}

pub(crate) async fn count(context: RequestContext) -> RouteResult {
    let query = context.query();
    let (action, ids) = (BulkAction::read(&query)?, selected(&query)?);
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        rows.push(context.state.operations.row(id).await?);
    }
    let main = confirmation(&context, action, &rows);
    let command = format!("posthaste outbox {} --help", action.as_str());
    let page = Page {
        tab: "Outbox",
        refreshes: false,
        title: "Selected rows",
        main,
        path: "/admin/outbox",
        command: &command,
    };
    layout::show(&context, &page)
}

fn confirmation(context: &RequestContext, action: BulkAction, rows: &[RowView]) -> Markup {
    let (fit, other): (Vec<&RowView>, Vec<&RowView>) = rows.iter().partition(|row| action.applies_to(row.status));
    html! {
        p class="verdict" { strong { (fit.len()) } " of " (pluralize(rows.len() as u64, "selected row", "selected rows"))
            " can be changed by " (action.as_str()) ". Nothing was changed." }
        ul class="plain" {
            @for row in rows { li { a href={ "/console/outbox/" (row.id) } { "row " (row.id) } " " (state_label(row.status.as_str())) " " (row.event_type) } }
        }
        @if !other.is_empty() { p class="quiet" { "The others stay as they are: " (action.as_str()) " does not apply to their status." } }
        @if !fit.is_empty() {
            form method="post" action="/console/outbox/bulk" class="act" {
                (form::csrf_field(context))
                input type="hidden" name="action" value=(action.as_str());
                @for row in &fit { input type="hidden" name="row" value=(row.id); }
                (form::reason_field()) " " button { (title(action)) " " (pluralize(fit.len() as u64, "row", "rows")) }
            }
        }
        p { a href="/console/outbox" { "Back to the outbox" } }
    }
}

fn title(action: BulkAction) -> &'static str {
    match action {
        BulkAction::Retry => "Retry",
        BulkAction::Redrive => "Redrive",
        BulkAction::Park => "Park",
    }
}

pub(crate) async fn change(context: RequestContext) -> RouteResult {
    let form = form::read(&context.body)?;
    let (action, ids, reason) = (BulkAction::read(&form)?, selected(&form)?, form::reason(&form)?);
    let operator = context.identity()?.subject.as_str();
    let (mut changed, mut refused, mut failure) = (Vec::new(), Vec::new(), None);
    for id in ids {
        match change_row(&context, action, id, operator, &reason).await {
            Ok(()) => changed.push(id.to_string()),
            // The row was changed or sent since the count; the others still are what the operator saw.
            Err(error @ (QueryError::Conflict(_) | QueryError::NotFound)) => refused.push(format!("row {id}: {error}")),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let on = format!("rows {}", changed.join(", "));
    if !changed.is_empty() {
        log_operator_action(&context.state, operator, action.as_str(), &on, &reason);
    }
    if let Some(error) = failure {
        let error = if changed.is_empty() { error } else { error.after(format!("{} of {on}", action.as_str())) };
        return Err(error.into());
    }
    let mut note = format!("{}: {} changed.", action.as_str(), pluralize(changed.len() as u64, "row was", "rows were"));
    if !refused.is_empty() {
        note = format!("{note} Not changed: {}.", refused.join("; "));
    }
    Ok(layout::see_other_with_flash(&context, "/console/outbox", note))
}

async fn change_row(
    context: &RequestContext,
    action: BulkAction,
    id: RowId,
    operator: &str,
    reason: &str,
) -> Result<(), QueryError> {
    let operations = &context.state.operations;
    let status = operations.row(id).await?.status;
    if !action.applies_to(status) {
        return Err(QueryError::Conflict(format!("it is {} now", status.as_str())));
    }
    match action {
        BulkAction::Retry => operations.retry(id, operator, reason).await,
        BulkAction::Redrive => operations.redrive_row(id, operator, reason).await,
        BulkAction::Park => operations.park(id, operator, reason).await,
    }
}

/// The ids of the selected rows, each once.
fn selected(query: &Query<'_>) -> Result<Vec<RowId>, Problem> {
    let none = || Problem::field("row", "must be the numbers of 1 to 100 rows: select some first");
    let mut ids = Vec::new();
    for text in query.all("row")? {
        let id = text.parse().map_err(|_| none())?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    if (1..=ROWS_MAX).contains(&ids.len()) { Ok(ids) } else { Err(none()) }
}
