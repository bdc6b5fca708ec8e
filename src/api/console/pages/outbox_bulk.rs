//! An action on several selected rows in two steps: a preview of the changes, then the changes, with a reason.
pub(crate) mod action;
pub(crate) mod matching;

use app::port_types::{RowId, RowView};
use maud::{Markup, html};

use crate::admin::dead_letters::audit;
use crate::console::form;
use crate::console::format::{pluralize, state_label};
use crate::console::layout::{self, Page};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::RouteResult;
use action::{BulkAction, RowChanges};

/// Most rows of one action: more than a page shows.
const ROWS_MAX: usize = 100;

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
                (form::reason_field()) " " button { (action.title()) " " (pluralize(fit.len() as u64, "row", "rows")) }
            }
        }
        p { a href="/console/outbox" { "Back to the outbox" } }
    }
}

pub(crate) async fn change(context: RequestContext) -> RouteResult {
    let form = form::read(&context.body)?;
    let (action, ids, audit) = (BulkAction::read(&form)?, selected(&form)?, audit(&context, form::reason(&form)?)?);
    let mut changes = RowChanges::default();
    for id in ids {
        if !changes.change_row(&context.state.operations, action, id, &audit).await {
            break;
        }
    }
    let on = changes.rows();
    let note = changes.finish(&context.state, action, &on, &audit)?;
    Ok(layout::see_other_with_flash(&context, "/console/outbox", note))
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
