//! An action on all rows of a filter in two steps: a count, then a change of no more than the counted rows, with a reason.
use app::operators::outbox::{OutboxOperations, ROWS_MAX};
use app::port_types::{Audit, RowFilter, RowStatus, RowView};
use maud::{Markup, html};
use tokio::time::Instant;

use super::action::{BulkAction, RowChanges};
use crate::admin::dead_letters::audit;
use crate::admin::filters::{older_than, row_filter};
use crate::console::form::{self, hidden_fields};
use crate::console::format::{pluralize, state_label};
use crate::console::layout::{self, Page};
use crate::console::links::{link, shell_command};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::RouteResult;

/// Most rows that are counted and changed at a time: each is changed by a statement of its own.
const MATCHED_MAX: usize = 1_000;
/// Rows that the count names.
const NAMED_MAX: usize = 10;
const FIELDS: [&str; 6] = ["status", "key", "type", "failureType", "olderThan", "partition"];

/// The counted rows of a filter.
struct MatchedRows {
    count: usize,
    /// Whether there are more than [`MATCHED_MAX`].
    more: bool,
    first: Vec<RowView>,
}

pub(crate) async fn count(context: RequestContext) -> RouteResult {
    let query = context.query();
    let action = BulkAction::read(&query)?;
    let (filter, raw) = (filter(&query, action)?, form::raw_values(&query, FIELDS)?);
    let [(_, status), (_, key), (_, event_type), (_, failure), (_, age), (_, partition)] = raw;
    let matched = count_rows(&context.state.operations, filter).await?;
    let main = html! {
        form method="get" action="/console/outbox/matching" class="filter" {
            input type="hidden" name="action" value=(action.as_str()); input type="hidden" name="status" value=(status);
            (form::failure_filter_fields(key, event_type, failure, age)) (form::text_field("Partition", "partition", partition))
            button { "Count" }
        }
        (verdict(&matched, status))
        @if matched.count > 0 {
            form method="post" action="/console/outbox/matching" class="act" {
                (form::csrf_field(&context)) (hidden_fields(&raw))
                input type="hidden" name="action" value=(action.as_str()); input type="hidden" name="matched" value=(matched.count);
                p { (action.effect()) }
                (form::reason_field()) " " button { (action.title()) " " (pluralize(matched.count as u64, "row", "rows")) }
            }
        }
        p { a href=(link("/console/outbox", &[("status", status)])) { "Back to the outbox" } }
    };
    let title = format!("{} all {status} rows that match", action.title());
    let conditions =
        [("status", status), ("key", key), ("type", event_type), ("failureType", failure), ("partition", partition)];
    let options =
        [("status", status), ("key", key), ("type", event_type), ("failure", failure), ("partition", partition)];
    let (path, command) = (link("/admin/outbox", &conditions), shell_command("posthaste outbox list", &options));
    let page = Page { tab: "Outbox", refreshes: false, title: &title, main, path: &path, command: &command };
    layout::show(&context, &page)
}

fn verdict(matched: &MatchedRows, status: &str) -> Markup {
    let unnamed = matched.count.saturating_sub(matched.first.len()) as u64;
    html! {
        p class="verdict" {
            @if matched.more { "More than " } strong { (matched.count) } " " (status)
            @if matched.count == 1 { " row matches" } @else { " rows match" } ". Nothing was changed."
            @if matched.more { " One action changes the first " (matched.count) " of them; repeat it for the others." }
        }
        ul class="plain" {
            @for row in &matched.first {
                li { a href={ "/console/outbox/" (row.id) } { "row " (row.id) } " " (state_label(row.status.as_str())) " " (row.event_type) }
            }
            @if unnamed > 0 { li { "and " (pluralize(unnamed, "more", "more")) } }
        }
    }
}

pub(crate) async fn change(context: RequestContext) -> RouteResult {
    let form = form::read(&context.body)?;
    let action = BulkAction::read(&form)?;
    let (filter, raw) = (filter(&form, action)?, form::raw_values(&form, FIELDS)?);
    let (matched, audit) = (form::matched_count(&form)? as usize, audit(&context, form::reason(&form)?)?);
    // As a redrive: the response must arrive in time. The rest is left for a further form.
    let end = Instant::now() + context.time_limit * 4 / 5;
    let limit = matched.min(MATCHED_MAX);
    let (changes, tried) = change_rows(&context.state.operations, action, filter, limit, end, &audit).await;
    let on = format!("{} rows of {}", changes.count(), link("outbox", &raw));
    let note = changes.finish(&context.state, action, &on, &audit)?;
    let rest =
        if tried < limit && Instant::now() >= end { " The time was up: count again for the others." } else { "" };
    let list = link("/console/outbox", &[("status", raw[0].1)]);
    Ok(layout::see_other_with_flash(&context, &list, format!("{note}{rest}")))
}

/// Changes the first `limit` rows until `end`; returns the changes and the number of rows that were tried, at least one if any matches.
async fn change_rows(
    operations: &OutboxOperations,
    action: BulkAction,
    mut filter: RowFilter,
    limit: usize,
    end: Instant,
    audit: &Audit,
) -> (RowChanges, usize) {
    let (mut changes, mut tried) = (RowChanges::default(), 0);
    while tried < limit && (tried == 0 || Instant::now() < end) {
        let page = match operations.rows(&filter, (limit - tried).min(ROWS_MAX as usize) as u32).await {
            Ok(page) => page,
            Err(error) => {
                changes.fail(error);
                break;
            }
        };
        for row in &page.rows {
            if tried > 0 && Instant::now() >= end {
                return (changes, tried);
            }
            tried += 1;
            if !changes.change_row(operations, action, row.id, audit).await {
                return (changes, tried);
            }
        }
        // The next page begins behind these rows: one that still matches is not changed twice.
        let Some(next) = page.next else { break };
        filter.after = Some(next);
    }
    (changes, tried)
}

/// Counts the rows that match, up to [`MATCHED_MAX`], page by page: a store counts only parked rows without reading them.
async fn count_rows(operations: &OutboxOperations, mut filter: RowFilter) -> Result<MatchedRows, Problem> {
    let mut matched = MatchedRows { count: 0, more: false, first: Vec::new() };
    loop {
        let page = operations.rows(&filter, ROWS_MAX).await?;
        matched.count += page.rows.len();
        if matched.first.is_empty() {
            matched.first = page.rows.into_iter().take(NAMED_MAX).collect();
        }
        matched.more = page.next.is_some();
        match page.next {
            Some(next) if matched.count < MATCHED_MAX => filter.after = Some(next),
            Some(_) | None => return Ok(matched),
        }
    }
}

/// The filter of a form. Its status is required: an action never applies to rows of every status.
fn filter(query: &Query<'_>, action: BulkAction) -> Result<RowFilter, Problem> {
    let filter = RowFilter { older_than: older_than(query)?, after: None, ..row_filter(query)? };
    let fits = filter.status.is_some_and(|status: RowStatus| action.applies_to(status));
    if fits { Ok(filter) } else { Err(Problem::field("status", "must be one that the action applies to")) }
}
