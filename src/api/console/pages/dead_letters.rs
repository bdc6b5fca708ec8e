//! The dead letters: the latest in groups by reason, and all of them, or those that match a filter, by partition and offset.
mod groups;

use app::operators::dead_letters::{DeadLetter, DeadLetterPage};
use app::operators::dead_letters_by_topic::{DeadLettersByTopic, WaitingDeadLetters};
use domain::Timestamp;
use maud::{Markup, html};

use crate::admin::dead_letters;
use crate::admin::filters::dead_letter_filter;
use crate::console::form::{self, select_field};
use crate::console::format::grouped;
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
const FIELDS: [&str; 7] = ["key", "type", "failureType", "olderThan", "redriven", "after", "topic"];

/// Parameter of the list by partition and offset that begins with the first dead letter: a position in `after` is itself left out.
const FROM_FIRST: (&str, &str) = ("list", "all");

/// The filter's parameters by [`FIELDS`], as the query string contains them.
pub(crate) type RawFilter<'a> = [(&'static str, &'a str); 7];

pub(crate) fn raw_filter<'a>(query: &'a Query<'_>) -> Result<RawFilter<'a>, Problem> {
    form::raw_values(query, FIELDS)
}

/// The same filter with another `after`.
pub(crate) fn after<'a>(raw: &RawFilter<'a>, after: &'a str) -> RawFilter<'a> {
    let mut other = *raw;
    other[5].1 = after;
    other
}

/// The parameter of the topic, which links to other pages keep.
pub(crate) fn topic<'a>(raw: &RawFilter<'a>) -> (&'static str, &'a str) {
    raw[6]
}

/// Whether a dead letter may not match. Those that do are found by offset: the latest ones alone may not have any.
fn has_conditions(raw: &RawFilter<'_>) -> bool {
    raw[..5].iter().any(|(_, value)| !value.is_empty())
}

/// The filter under the names of the command line's options.
pub(crate) fn command_options<'a>(raw: &RawFilter<'a>) -> RawFilter<'a> {
    let names = ["key", "type", "failure", "older-than", "redriven", "after", "topic"];
    let mut options = *raw;
    options.iter_mut().zip(names).for_each(|(option, name)| option.0 = name);
    options
}

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let query = context.query();
    // The form shows the entered values of an invalid filter again, with the error.
    let (raw, filter) = match raw_filter(&query).and_then(|raw| Ok((raw, dead_letter_filter(&query)?))) {
        Ok(filter) => filter,
        Err(problem) => return refused(&context, &query, &problem),
    };
    let (dead_letters, now) = (dead_letters::dead_letters(&context, &query)?, context.state.operations.now());
    let list = if raw[5].1.is_empty() && !has_conditions(&raw) && query.non_empty(FROM_FIRST.0)?.is_none() {
        let latest = dead_letters.latest(LATEST_MAX).await?;
        html! { (groups::list(&latest, topic(&raw), now)) @if !latest.is_complete { (older_note(&raw)) } }
    } else {
        by_offset(&dead_letters.list(&filter, PAGE_SIZE).await?, &raw, now)
    };
    // Counting reads the topics, so a page of the only topic does without.
    let waiting = context.state.dead_letter_counts.waiting(several_topics(&context), now).await;
    let [key, event_type, failure, age, ..] = raw;
    let main = html! {
        (waiting_by_topic(waiting.as_deref().unwrap_or_default(), dead_letters.topic()))
        (filter_form(&context, &raw))
        (list)
        p { a href=(link("/console/dlt/redrive", &[key, event_type, failure, age, topic(&raw)])) { "Redrive all that match…" } " The next page counts them first." }
        p class="quiet" { a href="/actuator/metrics/kafka.consumer.dlq.count" { "kafka.consumer.dlq.count" } }
    };
    let (path, command) = (link("/admin/dlt", &raw), shell_command("posthaste dlt list", &command_options(&raw)));
    layout::show(&context, &page(main, &path, &command))
}

/// The page of an invalid filter: its form with the entered texts, and the errors.
fn refused(context: &RequestContext, query: &Query<'_>, problem: &Problem) -> RouteResult {
    let raw = FIELDS.map(|name| (name, query.non_empty(name).ok().flatten().unwrap_or_default()));
    let main = html! { (filter_form(context, &raw)) (layout::problem_notice(problem)) };
    layout::show_refused(context, &page(main, "/admin/dlt", "posthaste dlt list"), problem)
}

fn page<'a>(main: Markup, path: &'a str, command: &'a str) -> Page<'a> {
    Page { tab: "Dead letters", refreshes: false, title: "Dead letters", main, path, command }
}

/// The dead letters by topic, where there are several topics.
fn several_topics(context: &RequestContext) -> Option<&DeadLettersByTopic> {
    context.state.dead_letters.as_deref().filter(|by_topic| by_topic.has_others())
}

/// The topics whose dead letters wait, unless the shown one is the only one.
fn waiting_by_topic(waiting: &[WaitingDeadLetters], shown: &str) -> Markup {
    html! {
        @if waiting.iter().any(|of| of.topic != shown) {
            h2 { "Not sent back yet" }
            ul class="counts" {
                @for WaitingDeadLetters { topic, waiting, more } in waiting {
                    li class="bad" {
                        a href=(link("/console/dlt", &[("topic", topic)])) aria-current=[(topic == shown).then_some("true")] { (topic) }
                        " " strong { (grouped(*waiting)) @if *more { "+" } }
                    }
                }
            }
        }
    }
}

fn filter_form(context: &RequestContext, raw: &RawFilter<'_>) -> Markup {
    html! {
        form method="get" action="/console/dlt" class="filter" role="search" {
            (filter_fields(context, raw)) (select_field("Redriven", "redriven", &["true", "false"], raw[4].1)) button { "Show" }
        }
    }
}

/// The topic, where there are several, and the conditions.
pub(crate) fn filter_fields(context: &RequestContext, raw: &RawFilter<'_>) -> Markup {
    let [(_, key), (_, event_type), (_, failure), (_, age), ..] = *raw;
    html! {
        @if let Some(by_topic) = several_topics(context) {
            label { "Topic "
                select name="topic" {
                    @for name in by_topic.topics() { option value=(name) selected[name == topic(raw).1] { (name) } }
                }
            }
        }
        (form::failure_filter_fields(key, event_type, failure, age))
    }
}

fn older_note(raw: &RawFilter<'_>) -> Markup {
    html! { p { "These are the latest. " a href=(link("/console/dlt", &[topic(raw), FROM_FIRST])) { "All, by partition and offset" } } }
}

/// One page of the list by partition and offset, which reaches every dead letter.
fn by_offset(page: &DeadLetterPage, raw: &RawFilter<'_>, now: Timestamp) -> Markup {
    let next = page.next.map(|next| next.to_string());
    let all: Vec<&DeadLetter> = page.dead_letters.iter().collect();
    let caption = match (all.is_empty(), &next) {
        (false, _) => "Dead letters by partition and offset",
        (true, None) => "No dead letters match",
        (true, Some(_)) => "No dead letter up to here matches; the next page continues",
    };
    html! {
        (groups::table(caption, &all, topic(raw), now))
        p class="pages" {
            @if !has_conditions(raw) { a href=(link("/console/dlt", &[topic(raw)])) { "The latest" } " " }
            @else if !raw[5].1.is_empty() { a href=(link("/console/dlt", &after(raw, ""))) { "First page" } " " }
            @if let Some(next) = &next { a rel="next" href=(link("/console/dlt", &after(raw, next))) { "Next page" } }
        }
    }
}
