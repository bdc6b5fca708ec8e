//! Actions of operators on outbox rows through any interface, newest first.
use app::port_types::{AuditEntry, OperatorAction};
use domain::Timestamp;
use maud::{Markup, html};

use crate::admin::audit::audit_filter;
use crate::console::form::{self, select_field, text_field};
use crate::console::format::relative_time;
use crate::console::layout::{self, Page};
use crate::console::links::{link, shell_command};
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

/// Entries of a page.
const PAGE_SIZE: u32 = 100;
const FIELDS: [&str; 4] = ["row", "action", "by", "after"];

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let query = context.query();
    // The form shows the entered values of an invalid filter again, with the error.
    let raw = FIELDS.map(|name| (name, query.non_empty(name).ok().flatten().unwrap_or_default()));
    let filter = match form::raw_values(&query, FIELDS).and_then(|_| audit_filter(&query)) {
        Ok(filter) => filter,
        Err(problem) => {
            let main = html! { (filter_form(&raw)) (layout::problem_notice(&problem)) };
            return layout::show_refused(&context, &page(main, "/admin/audit", "posthaste audit"), &problem);
        }
    };
    let operations = &context.state.operations;
    let (found, now) = (operations.audit_entries(&filter, PAGE_SIZE).await?, operations.now());
    let next = found.next.map(|next| next.to_string());
    let main = html! {
        (filter_form(&raw))
        @if found.entries.is_empty() { p class="empty" { "No action of an operator matches." } }
        @else { (table(&found.entries, now)) }
        @if let Some(next) = &next {
            p class="pages" { a rel="next" href=(link("/console/audit", &[raw[0], raw[1], raw[2], ("after", next)])) { "Next page" } }
        }
    };
    let (path, command) = (link("/admin/audit", &raw), shell_command("posthaste audit", &raw));
    layout::show(&context, &page(main, &path, &command))
}

fn page<'a>(main: Markup, path: &'a str, command: &'a str) -> Page<'a> {
    Page { tab: "Audit", refreshes: false, title: "Audit", main, path, command }
}

fn filter_form(raw: &[(&'static str, &str); 4]) -> Markup {
    html! {
        form method="get" action="/console/audit" class="filter" role="search" {
            (text_field("Row", "row", raw[0].1))
            (select_field("Action", "action", &OperatorAction::ALL.map(OperatorAction::as_str), raw[1].1))
            (text_field("Operator", "by", raw[2].1))
            button { "Show" }
        }
    }
}

fn table(entries: &[AuditEntry], now: Timestamp) -> Markup {
    html! {
        div class="wide" { table class="cards" {
            caption { "Newest first" }
            thead { tr { @for name in ["When", "Operator", "Action", "Row", "Reason"] { th scope="col" { (name) } } } }
            tbody {
                @for entry in entries {
                    tr {
                        td data-label="When" { (relative_time(entry.at, now)) }
                        td data-label="Operator" { strong { (entry.audit.operator) } }
                        td data-label="Action" { (entry.action) }
                        td data-label="Row" { @match entry.row { Some(row) => a href={ "/console/outbox/" (row) } { "row " (row) }, None => "–" } }
                        td data-label="Reason" { (entry.audit.reason) }
                    }
                }
            }
        } }
    }
}
