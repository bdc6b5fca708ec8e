//! The outbox: its rows by status, key and type, and the owners of its partitions.
use app::operators::outbox::RowPage;
use app::port_types::{PartitionView, RowStatus, RowView};
use domain::Timestamp;
use maud::{Markup, html};

use crate::admin::filters::row_filter;
use crate::console::form::{select_field, text_field};
use crate::console::format::{optional_time, or_dash, relative_time, state_label};
use crate::console::layout::{self, Page};
use crate::console::links::{link, shell_command};
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::RouteResult;

/// RowPage of a page.
const PAGE_SIZE: u32 = 50;

/// The filter's parameters as the query string contains them.
struct RawRowFilter<'a> {
    status: &'a str,
    key: &'a str,
    kind: &'a str,
    after: &'a str,
}

impl<'a> RawRowFilter<'a> {
    fn read(query: &'a Query<'_>) -> Result<Self, crate::error::Problem> {
        let text = |name| query.non_empty(name).map(Option::unwrap_or_default);
        Ok(Self { status: text("status")?, key: text("key")?, kind: text("type")?, after: text("after")? })
    }

    /// A link to the same filter with another `after`.
    fn link(&self, path: &str, after: &str) -> String {
        link(path, &[("status", self.status), ("key", self.key), ("type", self.kind), ("after", after)])
    }
}

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let query = context.query();
    let (raw, filter) = (RawRowFilter::read(&query)?, row_filter(&query)?);
    let operations = &context.state.operations;
    let (rows, now) = (operations.rows(&filter, PAGE_SIZE).await?, operations.now());
    let main = html! {
        h2 { "Rows" }
        (filter_form(&raw))
        (list(&rows, &raw, now))
        h2 { "Parked rows" }
        p { a href=(link("/console/outbox/redrive", &[("key", raw.key), ("type", raw.kind)])) { "Redrive parked rows…" }
            " The next page counts them first." }
        h2 { "Partitions" }
        (partitions(&operations.partitions().await?))
        p { a href="/actuator/metrics/outbox_rows" { "outbox_rows" } " · "
            a href="/actuator/metrics/outbox_partitions_owned" { "outbox_partitions_owned" } }
    };
    let options = [("status", raw.status), ("key", raw.key), ("type", raw.kind), ("after", raw.after)];
    let path = raw.link("/admin/outbox", raw.after);
    let command = shell_command("posthaste outbox list", &options);
    layout::show(
        &context,
        &Page { tab: "Outbox", refreshes: true, title: "Outbox", main, path: &path, command: &command },
    )
}

fn filter_form(raw: &RawRowFilter<'_>) -> Markup {
    html! {
        form method="get" action="/console/outbox" class="filter" {
            (select_field("Status", "status", &RowStatus::ALL.map(RowStatus::as_str), raw.status))
            (text_field("Key", "key", raw.key))
            (text_field("Type", "type", raw.kind))
            button { "Show" }
        }
    }
}

fn list(rows: &RowPage, raw: &RawRowFilter<'_>, now: Timestamp) -> Markup {
    html! {
        div class="wide" { table {
            caption { @if rows.rows.is_empty() { "No rows match" } @else { "Rows in insertion order" } }
            thead { tr { @for name in ["Row", "Status", "Type", "Key", "Partition", "Attempts", "Next attempt", "Last failure", "Created"] {
                th scope="col" { (name) }
            } } }
            tbody { @for one in &rows.rows { (table_row(one, now)) } }
        } }
        p class="pages" {
            @if !raw.after.is_empty() { a href=(raw.link("/console/outbox", "")) { "First page" } " " }
            @if let Some(next) = rows.next { a rel="next" href=(raw.link("/console/outbox", &next.to_string())) { "Next page" } }
        }
    }
}

fn table_row(row: &RowView, now: Timestamp) -> Markup {
    let key = row.key.to_string();
    html! {
        tr {
            th scope="row" { a href={ "/console/outbox/" (row.id) } { (row.id) } }
            td { (state_label(row.status.as_str())) }
            td { (row.kind) }
            td { a href=(link("/console/outbox", &[("key", &key)])) { code { (key) } } }
            td class="number" { (row.partition.0) }
            td class="number" { (row.retry_count) }
            td { (optional_time(row.next_attempt_at, now)) }
            td { (or_dash(row.last_failure_reason.as_deref())) }
            td { (relative_time(row.created_at, now)) }
        }
    }
}

fn partitions(all: &[PartitionView]) -> Markup {
    let unsent: u64 = all.iter().map(|one| one.depth).sum();
    let unowned = all.iter().filter(|one| one.owner.is_none()).count();
    html! {
        p { (all.len()) " partitions, " (unowned) " without an owner, " (unsent) " unsent rows." }
        ol class="grid" {
            @for one in all {
                li class=[(one.depth > 0).then_some("busy")] {
                    strong { (one.partition.0) } " " span class="depth" { (one.depth) " rows" }
                    br; @match &one.owner { Some(owner) => { (owner) }, None => { (state_label("unowned")) } }
                    br; small { "epoch " (one.epoch) @if one.in_flight.is_some() { ", batch in flight" } }
                }
            }
        }
    }
}
