//! The outbox: who owns which partition, and rows by state, key and type.
use app::operators::outbox::RowPage;
use app::port_types::{PartitionView, RowStatus, RowView};
use domain::Timestamp;
use maud::{Markup, html};

use super::form::{choice, text_field};
use super::links::{command, link};
use super::page::{self, Page};
use super::words::{maybe_when, or_dash, state, when};
use crate::admin::outbox::filter;
use crate::call::Call;
use crate::query::Query;
use crate::route::Answer;

/// Rows of a page.
const ROWS: u32 = 50;

/// What is asked for, as it was written.
struct Asked<'a> {
    status: &'a str,
    key: &'a str,
    kind: &'a str,
    after: &'a str,
}

impl<'a> Asked<'a> {
    fn read(query: &'a Query<'_>) -> Result<Self, crate::error::Problem> {
        let text = |name| query.filled(name).map(Option::unwrap_or_default);
        Ok(Self { status: text("status")?, key: text("key")?, kind: text("type")?, after: text("after")? })
    }

    /// An address of the same rows, behind `after`.
    fn link(&self, path: &str, after: &str) -> String {
        link(path, &[("status", self.status), ("key", self.key), ("type", self.kind), ("after", after)])
    }
}

pub(super) async fn show(call: Call) -> Answer {
    let query = call.query();
    let (asked, filter) = (Asked::read(&query)?, filter(&query)?);
    let operations = &call.state.operations;
    let (rows, now) = (operations.rows(&filter, ROWS).await?, operations.now());
    let main = html! {
        h2 { "Rows" }
        (search(&asked))
        (list(&rows, &asked, now))
        h2 { "Parked rows" }
        p { a href=(link("/console/outbox/redrive", &[("key", asked.key), ("type", asked.kind)])) { "Redrive parked rows…" }
            " They are counted first." }
        h2 { "Partitions" }
        (partitions(&operations.partitions().await?))
        p { a href="/actuator/metrics/outbox_rows" { "outbox_rows" } " · "
            a href="/actuator/metrics/outbox_partitions_owned" { "outbox_partitions_owned" } }
    };
    let options = [("status", asked.status), ("key", asked.key), ("type", asked.kind), ("after", asked.after)];
    let path = asked.link("/admin/outbox", asked.after);
    let command = command("posthaste outbox list", &options);
    page::show(&call, &Page { tab: "Outbox", fresh: true, title: "Outbox", main, path: &path, command: &command })
}

fn search(asked: &Asked<'_>) -> Markup {
    html! {
        form method="get" action="/console/outbox" class="filter" {
            (choice("Status", "status", &RowStatus::ALL.map(RowStatus::as_str), asked.status))
            (text_field("Key", "key", asked.key))
            (text_field("Type", "type", asked.kind))
            button { "Show" }
        }
    }
}

fn list(rows: &RowPage, asked: &Asked<'_>, now: Timestamp) -> Markup {
    html! {
        div class="wide" { table {
            caption { @if rows.rows.is_empty() { "No such rows" } @else { "Rows in the order in which they were written" } }
            thead { tr { @for name in ["Row", "Status", "Type", "Key", "Partition", "Attempts", "Next attempt", "Last failure", "Written"] {
                th scope="col" { (name) }
            } } }
            tbody { @for one in &rows.rows { (row(one, now)) } }
        } }
        p class="pages" {
            @if !asked.after.is_empty() { a href=(asked.link("/console/outbox", "")) { "First page" } " " }
            @if let Some(next) = rows.next { a rel="next" href=(asked.link("/console/outbox", &next.to_string())) { "Next page" } }
        }
    }
}

fn row(row: &RowView, now: Timestamp) -> Markup {
    let key = row.key.to_string();
    html! {
        tr {
            th scope="row" { a href={ "/console/outbox/" (row.id) } { (row.id) } }
            td { (state(row.status.as_str())) }
            td { (row.kind) }
            td { a href=(link("/console/outbox", &[("key", &key)])) { code { (key) } } }
            td class="number" { (row.partition.0) }
            td class="number" { (row.retry_count) }
            td { (maybe_when(row.next_attempt_at, now)) }
            td { (or_dash(row.last_failure_reason.as_deref())) }
            td { (when(row.created_at, now)) }
        }
    }
}

fn partitions(all: &[PartitionView]) -> Markup {
    let waiting: u64 = all.iter().map(|one| one.depth).sum();
    let unowned = all.iter().filter(|one| one.owner.is_none()).count();
    html! {
        p { (all.len()) " partitions, " (unowned) " without an owner, " (waiting) " rows in them." }
        ol class="grid" {
            @for one in all {
                li class=[(one.depth > 0).then_some("busy")] {
                    strong { (one.partition.0) } " " span class="depth" { (one.depth) " rows" }
                    br; @match &one.owner { Some(owner) => { (owner) }, None => { (state("unowned")) } }
                    br; small { "epoch " (one.epoch) @if one.in_flight.is_some() { ", a batch is out" } }
                }
            }
        }
    }
}
