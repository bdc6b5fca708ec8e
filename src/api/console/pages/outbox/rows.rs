//! The table of the rows. Unsent ones can be selected for an action, which another page counts first.
use app::operators::outbox::RowPage;
use app::port_types::{FailureType, RowStatus, RowView};
use domain::Timestamp;
use maud::{Markup, html};

use super::filter::{RawRowFilter, partition_link};
use crate::console::format::{optional_time, or_dash, relative_time, state_label};
use crate::console::links::link;
use crate::console::pages::outbox_bulk::action::BulkAction;

/// The actions on all rows of a filter, each with a status that it applies to. Parked rows have the redrive.
const MATCHING_ACTIONS: [(BulkAction, RowStatus); 3] = [
    (BulkAction::Retry, RowStatus::Failed),
    (BulkAction::Park, RowStatus::Failed),
    (BulkAction::Park, RowStatus::Pending),
];

pub(super) fn list(rows: &RowPage, raw: &RawRowFilter<'_>, now: Timestamp) -> Markup {
    let selectable = rows.rows.iter().any(|row| is_selectable(row.status));
    html! {
        @if !raw.is_cheap() { p class="quiet" { "The page is not updated by itself: choose a status of unsent rows." } }
        @if rows.rows.is_empty() { p class="empty" { "No rows match" @if raw.status.is_empty() { "." } @else { ": none is " (raw.status) "." } } }
        @else {
            form method="get" action="/console/outbox/bulk" {
                div class="wide" { table class="cards rows" {
                    caption { "Rows in insertion order" }
                    thead { tr {
                        @if selectable { th scope="col" { span class="hidden" { "Select" } } }
                        @for name in ["Row", "Status", "Type", "Key", "Partition", "Attempts", "Next attempt", "Failure", "Last failure", "Created"] {
                            th scope="col" { (name) }
                        }
                    } }
                    tbody { @for row in &rows.rows { (table_row(row, selectable, now)) } }
                } }
                @if selectable { (bulk_buttons()) }
            }
        }
        p class="pages" {
            @if !raw.after.is_empty() { a href=(raw.page_link("")) { "First page" } " " }
            @if let Some(next) = rows.next { a rel="next" href=(raw.page_link(&next.to_string())) { "Next page" } " " }
            (matching_actions(raw))
        }
    }
}

fn matching_actions(raw: &RawRowFilter<'_>) -> Markup {
    html! {
        a href=(link("/console/outbox/redrive", &raw.conditions())) { "Redrive all parked rows that match…" }
        @for (action, status) in MATCHING_ACTIONS.map(|(action, status)| (action, status.as_str())) {
            @if raw.status.is_empty() || raw.status == status {
                " " a href=(raw.matching_link(action.as_str(), status)) { (action.title()) " all " (status) " rows that match…" }
            }
        }
    }
}

fn is_selectable(status: RowStatus) -> bool {
    matches!(status, RowStatus::Pending | RowStatus::Failed | RowStatus::Parked)
}

fn bulk_buttons() -> Markup {
    html! {
        div class="act bulk" {
            span { "Selected rows:" }
            button name="action" value="retry" { "Retry…" }
            button name="action" value="redrive" { "Redrive…" }
            button name="action" value="park" { "Park…" }
            span class="quiet" { "The next page counts them first." }
        }
    }
}

fn table_row(row: &RowView, selectable: bool, now: Timestamp) -> Markup {
    let key = row.key.to_string();
    html! {
        tr id={ "row-" (row.id) } {
            @if selectable {
                td class="select" {
                    @if is_selectable(row.status) { input type="checkbox" name="row" value=(row.id) aria-label={ "Select row " (row.id) }; }
                }
            }
            th scope="row" { a href={ "/console/outbox/" (row.id) } { (row.id) } }
            td data-label="Status" { (state_label(row.status.as_str())) }
            td data-label="Type" { (row.event_type) }
            td data-label="Key" { a href=(link("/console/outbox", &[("key", &key)])) { code { (key) } } }
            td class="number" data-label="Partition" { a href=(partition_link(row.partition)) { (row.partition.0) } }
            td class="number" data-label="Attempts" { (row.retry_count) }
            td data-label="Next attempt" { (optional_time(row.next_attempt_at, now)) }
            td data-label="Failure" { (or_dash(row.failure_type.map(FailureType::as_str))) }
            td data-label="Last failure" { (or_dash(row.last_failure_reason.as_deref())) }
            td data-label="Created" { (relative_time(row.created_at, now)) }
        }
    }
}
