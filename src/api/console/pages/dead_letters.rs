//! The list of dead letters.
use app::contract::rfc3339;
use app::dead_letters::{DeadLetter, DeadLetterPage};
use domain::Timestamp;
use maud::{Markup, html};

use crate::admin::dead_letters;
use crate::admin::filters::dead_letter_filter;
use crate::console::form::{self, select_field};
use crate::console::format::{or_dash, relative_time, state_label};
use crate::console::layout::{self, Page};
use crate::console::links::{link, shell_command};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::RouteResult;

/// Dead letters of a page.
const PAGE_SIZE: u32 = 50;
const FIELDS: [&str; 6] = ["key", "type", "failureType", "olderThan", "redriven", "after"];

/// The filter's parameters by [`FIELDS`], as the query string contains them.
pub(crate) type RawFilter<'a> = [(&'static str, &'a str); 6];

pub(crate) fn raw_filter<'a>(query: &'a Query<'_>) -> Result<RawFilter<'a>, Problem> {
    form::raw_values(query, FIELDS)
}

/// The same filter with another `after`.
pub(crate) fn after<'a>(raw: &RawFilter<'a>, after: &'a str) -> RawFilter<'a> {
    let mut other = *raw;
    other[5].1 = after;
    other
}

/// The filter under the names of the command line's options.
pub(crate) fn command_options<'a>(raw: &RawFilter<'a>) -> RawFilter<'a> {
    let names = ["key", "type", "failure", "older-than", "redriven", "after"];
    let mut options = *raw;
    options.iter_mut().zip(names).for_each(|(option, name)| option.0 = name);
    options
}

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let query = context.query();
    let (raw, filter) = (raw_filter(&query)?, dead_letter_filter(&query)?);
    let page = dead_letters::dead_letters(&context)?.list(&filter, PAGE_SIZE).await?;
    let [key, kind, failure, age, ..] = raw;
    let main = html! {
        form method="get" action="/console/dlt" class="filter" { (filter_fields(&raw)) (select_field("Redriven", "redriven", &["true", "false"], raw[4].1)) button { "Show" } }
        (list(&page, &raw, context.state.operations.now()))
        p { a href=(link("/console/dlt/redrive", &[key, kind, failure, age])) { "Redrive all that match…" } " The next page counts them first." }
        p { a href="/actuator/metrics/kafka.consumer.dlq.count" { "kafka.consumer.dlq.count" } }
    };
    let (path, command) = (link("/admin/dlt", &raw), shell_command("posthaste dlt list", &command_options(&raw)));
    layout::show(
        &context,
        &Page { tab: "Dead letters", refreshes: false, title: "Dead letters", main, path: &path, command: &command },
    )
}

pub(crate) fn filter_fields(raw: &RawFilter<'_>) -> Markup {
    let [(_, key), (_, kind), (_, failure), (_, age), ..] = *raw;
    form::failure_filter_fields(key, kind, failure, age)
}

fn list(page: &DeadLetterPage, raw: &RawFilter<'_>, now: Timestamp) -> Markup {
    let next = page.next.map(|next| next.to_string());
    html! {
        div class="wide" { table {
            caption { @if page.letters.is_empty() { "No dead letters match" } @else { "Dead letters by partition and offset" } }
            thead { tr { @for name in ["Dead letter", "State", "Type", "Key", "Failure", "Reason", "Attempts", "Dead-lettered"] { th scope="col" { (name) } } } }
            tbody { @for dead_letter in &page.letters { (row(dead_letter, now)) } }
        } }
        p class="pages" {
            @if !raw[5].1.is_empty() { a href=(link("/console/dlt", &after(raw, ""))) { "First page" } " " }
            @if let Some(next) = &next { a rel="next" href=(link("/console/dlt", &after(raw, next))) { "Next page" } }
        }
    }
}

fn row(dead_letter: &DeadLetter, now: Timestamp) -> Markup {
    let (position, record) = (&dead_letter.delivery.position, &dead_letter.delivery.record);
    let place = format!("{}/{}", position.partition, position.offset);
    html! {
        tr {
            th scope="row" { a href={ "/console/dlt/" (place) } { (place) } }
            td { (redrive_state(dead_letter)) }
            td { (or_dash(dead_letter.kind())) }
            td { code { (record.key) } }
            td { (or_dash(dead_letter.failure_type().map(|failure| failure.as_str()))) }
            td { (or_dash(dead_letter.reason())) }
            td class="number" { @match dead_letter.attempts() { Some(attempts) => (attempts), None => "–" } }
            td { (relative_time(record.timestamp, now)) }
        }
    }
}

/// Whether a dead letter was redriven, by which operator and when.
pub(crate) fn redrive_state(dead_letter: &DeadLetter) -> Markup {
    html! {
        @match &dead_letter.redriven {
            None => (state_label("dead")),
            Some(redriven) if redriven.arrived => { "sent back by " (redriven.audit.operator) " at " (rfc3339(redriven.at)) }
            Some(redriven) => { "being sent back by " (redriven.audit.operator) " since " (rfc3339(redriven.at)) }
        }
    }
}
