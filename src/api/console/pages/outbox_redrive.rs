//! Redrives parked rows in two steps: a count, then a redrive of no more than the counted ones, with a reason.
use app::port_types::{RedriveMode, RowFilter};
use maud::html;

use crate::admin::dead_letters::audit;
use crate::admin::filters::{older_than, row_filter};
use crate::admin::live_events::log_if_changed;
use crate::admin::operator_body::{LIMIT_MAX, paced_redrive};
use crate::console::form::{self, hidden_fields};
use crate::console::format::pluralize;
use crate::console::layout::{self, Page};
use crate::console::links::{link, shell_command};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::RouteResult;

const FIELDS: [&str; 5] = ["key", "type", "failureType", "olderThan", "partition"];

pub(crate) async fn count(context: RequestContext) -> RouteResult {
    let query = context.query();
    let (filter, raw) = (parked_row_filter(&query)?, form::raw_values(&query, FIELDS)?);
    let operator = context.identity()?.subject.as_str();
    let matched = context.state.operations.redrive(&filter, LIMIT_MAX, RedriveMode::DryRun, operator, "").await?;
    let [(_, key), (_, event_type), (_, failure), (_, age), (_, partition)] = raw;
    let main = html! {
        form method="get" action="/console/outbox/redrive" class="filter" {
            (form::failure_filter_fields(key, event_type, failure, age)) (form::text_field("Partition", "partition", partition))
            button { "Count" }
        }
        p class="verdict" { strong { (matched) } @if matched == 1 { " parked row matches" } @else { " parked rows match" } ". Nothing was changed." }
        @if matched > 0 {
            form method="post" action="/console/outbox/redrive" class="act" {
                (form::csrf_field(&context)) (hidden_fields(&raw)) input type="hidden" name="matched" value=(matched.min(LIMIT_MAX.into()));
                (form::rate_field()) " " (form::reason_field()) " " button { "Redrive these rows" }
            }
        }
        p { a href="/console/outbox?status=PARKED" { "Back to the parked rows" } }
    };
    let options =
        [("key", key), ("type", event_type), ("failure", failure), ("older-than", age), ("partition", partition)];
    let command = shell_command("posthaste outbox redrive --dry-run", &options);
    let conditions =
        [("status", "PARKED"), ("key", key), ("type", event_type), ("failureType", failure), ("partition", partition)];
    let path = link("/admin/outbox", &conditions);
    layout::show(
        &context,
        &Page { tab: "Outbox", refreshes: false, title: "Redrive parked rows", main, path: &path, command: &command },
    )
}

pub(crate) async fn redrive(context: RequestContext) -> RouteResult {
    let form = form::read(&context.body)?;
    let (filter, limit) = (parked_row_filter(&form)?, form::matched_count(&form)?);
    let (pace, audit) = (form::pace(&form)?, audit(&context, form::reason(&form)?)?);
    let redrive = paced_redrive(&context, limit.into(), pace);
    let on = link("outbox", &form::raw_values(&form, FIELDS)?);
    let result = redrive.rows(&context.state.operations, &filter, &audit).await;
    log_if_changed(&context.state, &result, &audit, "redrive", &on);
    let rows = result?;
    let note = if rows < u64::from(limit) {
        format!(
            "{rows} of {} due now. Redrive again for the others.",
            pluralize(limit.into(), "parked row is", "parked rows are")
        )
    } else {
        format!("{} due now.", pluralize(rows, "parked row is", "parked rows are"))
    };
    Ok(layout::see_other_with_flash(&context, "/console/outbox", note))
}

fn parked_row_filter(query: &Query<'_>) -> Result<RowFilter, Problem> {
    Ok(RowFilter { older_than: older_than(query)?, status: None, after: None, ..row_filter(query)? })
}
