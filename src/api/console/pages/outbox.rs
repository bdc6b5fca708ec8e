//! The outbox: tabs by status with their counts, the partitions, and the rows, of which some can be selected.
mod filter;
mod partitions;
mod rows;

use app::health::HealthSnapshot;
use app::port_types::RowFilter;
use maud::{Markup, html};

use crate::admin::filters::row_filter;
use crate::console::form::{failure_type_field, text_field};
use crate::console::format::grouped;
use crate::console::layout::{self, Page};
use crate::console::links::shell_command;
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::RouteResult;
use filter::RawRowFilter;

/// Rows of a page.
const PAGE_SIZE: u32 = 50;

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let query = context.query();
    let operations = &context.state.operations;
    let snapshot = operations.health();
    // The form shows the entered values of an invalid filter again, with the error.
    let (raw, filter) = match read_filter(&query) {
        Ok(filter) => filter,
        Err(problem) => return refused(&context, &query, &snapshot, &problem),
    };
    let (rows, now) = (operations.rows(&filter, PAGE_SIZE).await?, operations.now());
    let main = html! {
        (tabs(&raw, &snapshot))
        section class="card" { h2 { "Partitions" } (partitions::grid(&operations.partitions().await?, &context.state.dispatch.actors(), now)) }
        (filter_form(&raw))
        (rows::list(&rows, &raw, now))
        p class="quiet" { a href="/actuator/metrics/outbox_rows" { "outbox_rows" } " · "
            a href="/actuator/metrics/outbox_partitions_owned" { "outbox_partitions_owned" } }
    };
    let command = shell_command("posthaste outbox list", &raw.options());
    layout::show(&context, &page(main, raw.is_cheap(), &raw.api_link(), &command))
}

fn read_filter<'a>(query: &'a Query<'_>) -> Result<(RawRowFilter<'a>, RowFilter), Problem> {
    Ok((RawRowFilter::read(query)?, row_filter(query)?))
}

/// The page of an invalid filter: its form with the entered texts, and the errors.
fn refused(context: &RequestContext, query: &Query<'_>, snapshot: &HealthSnapshot, problem: &Problem) -> RouteResult {
    let raw = RawRowFilter::lenient(query);
    let main = html! { (tabs(&raw, snapshot)) (filter_form(&raw)) (layout::problem_notice(problem)) };
    layout::show_refused(context, &page(main, false, "/admin/outbox", "posthaste outbox list"), problem)
}

fn page<'a>(main: Markup, refreshes: bool, path: &'a str, command: &'a str) -> Page<'a> {
    Page { tab: "Outbox", refreshes, title: "Outbox", main, path, command }
}

/// A tab for each status, those that need an operator first. The numbers are those of the last measurement.
fn tabs(raw: &RawRowFilter<'_>, snapshot: &HealthSnapshot) -> Markup {
    let depth = &snapshot.depth;
    let unsent = depth.parked + depth.failed + depth.pending + depth.in_flight;
    let tabs = [
        ("PARKED", "PARKED", depth.parked, "bad"),
        ("FAILED", "FAILED", depth.failed, "watch"),
        ("PENDING", "PENDING", depth.pending, ""),
        ("IN_FLIGHT", "IN_FLIGHT", depth.in_flight, ""),
        ("", "All", unsent + depth.sent, ""),
        ("SENT", "SENT", depth.sent, ""),
    ];
    html! {
        nav class="tabs" aria-label="Rows by status" {
            ul {
                @for (status, name, rows, class) in tabs {
                    li { a href=(raw.with_status(status)) aria-current=[(raw.status == status).then_some("page")] {
                        (name) " " span class={ "count " @if rows > 0 { (class) } } { (grouped(rows)) }
                    } }
                }
            }
        }
    }
}

fn filter_form(raw: &RawRowFilter<'_>) -> Markup {
    html! {
        form method="get" action="/console/outbox" class="filter" role="search" {
            @if !raw.status.is_empty() { input type="hidden" name="status" value=(raw.status); }
            (text_field("Key", "key", raw.key))
            (text_field("Type", "type", raw.event_type))
            (failure_type_field(raw.failure))
            (text_field("Partition", "partition", raw.partition))
            button { "Show" }
            @if raw.has_conditions() { a href="/console/outbox" { "Clear" } }
        }
    }
}
