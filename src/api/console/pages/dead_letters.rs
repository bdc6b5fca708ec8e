//! The dead letters: the latest in groups by reason, and all of them by partition and offset.
mod groups;

use app::operators::dead_letters::{DeadLetter, DeadLetterPage};
use domain::Timestamp;
use maud::{Markup, html};

use crate::admin::dead_letters;
use crate::admin::filters::dead_letter_filter;
use crate::console::form::{self, select_field};
use crate::console::layout::{self, Page};
use crate::console::links::{link, shell_command};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::response::RouteResult;

/// Dead letters of a page by offset.
const PAGE_SIZE: u32 = 50;
/// The latest dead letters that are shown in groups.
const LATEST_MAX: u32 = 200;
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
    // An illegal filter keeps what was typed: the form shows it again beside the error.
    let (raw, filter) = match raw_filter(&query).and_then(|raw| Ok((raw, dead_letter_filter(&query)?))) {
        Ok(filter) => filter,
        Err(problem) => return refused(&context, &query, &problem),
    };
    let (dead_letters, now) = (dead_letters::dead_letters(&context)?, context.state.operations.now());
    let list = if raw[5].1.is_empty() {
        let latest = dead_letters.latest(&filter, LATEST_MAX).await?;
        html! { (groups::list(&latest, now)) @if latest.len() >= LATEST_MAX as usize { (older_note(&raw)) } }
    } else {
        by_offset(&dead_letters.list(&filter, PAGE_SIZE).await?, &raw, now)
    };
    let [key, kind, failure, age, ..] = raw;
    let main = html! {
        (filter_form(&raw))
        (list)
        p { a href=(link("/console/dlt/redrive", &[key, kind, failure, age])) { "Redrive all that match…" } " The next page counts them first." }
        p class="quiet" { a href="/actuator/metrics/kafka.consumer.dlq.count" { "kafka.consumer.dlq.count" } }
    };
    let (path, command) = (link("/admin/dlt", &raw), shell_command("posthaste dlt list", &command_options(&raw)));
    layout::show(&context, &page(main, &path, &command))
}

/// The page of a filter that is not valid: its form with the texts, and what is wrong with them.
fn refused(context: &RequestContext, query: &Query<'_>, problem: &Problem) -> RouteResult {
    let raw = FIELDS.map(|name| (name, query.non_empty(name).ok().flatten().unwrap_or_default()));
    let main = html! { (filter_form(&raw)) (layout::problem_notice(problem)) };
    layout::show_refused(context, &page(main, "/admin/dlt", "posthaste dlt list"), problem)
}

fn page<'a>(main: Markup, path: &'a str, command: &'a str) -> Page<'a> {
    Page { tab: "Dead letters", refreshes: false, title: "Dead letters", main, path, command }
}

fn filter_form(raw: &RawFilter<'_>) -> Markup {
    html! {
        form method="get" action="/console/dlt" class="filter" role="search" {
            (filter_fields(raw)) (select_field("Redriven", "redriven", &["true", "false"], raw[4].1)) button { "Show" }
        }
    }
}

pub(crate) fn filter_fields(raw: &RawFilter<'_>) -> Markup {
    let [(_, key), (_, kind), (_, failure), (_, age), ..] = *raw;
    form::failure_filter_fields(key, kind, failure, age)
}

fn older_note(raw: &RawFilter<'_>) -> Markup {
    html! { p { "These are the latest. " a href=(link("/console/dlt", &after(raw, "0/0"))) { "All, by partition and offset" } } }
}

/// One page of the list by partition and offset, which reaches every dead letter.
fn by_offset(page: &DeadLetterPage, raw: &RawFilter<'_>, now: Timestamp) -> Markup {
    let next = page.next.map(|next| next.to_string());
    let all: Vec<&DeadLetter> = page.dead_letters.iter().collect();
    html! {
        (groups::table(if all.is_empty() { "No dead letters match" } else { "Dead letters by partition and offset" }, &all, now))
        p class="pages" {
            a href=(link("/console/dlt", &after(raw, ""))) { "The latest" } " "
            @if let Some(next) = &next { a rel="next" href=(link("/console/dlt", &after(raw, next))) { "Next page" } }
        }
    }
}
