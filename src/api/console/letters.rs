//! The dead letters: what consumers, or the relay, set aside.
use app::contract::rfc3339;
use app::operators::dead_letters::{DeadLetter, DeadLetterPage};
use domain::Timestamp;
use maud::{Markup, html};

use super::form::{self, choice};
use super::links::{command, link};
use super::page::{self, Page};
use super::words::{or_dash, state, when};
use crate::admin::dlt;
use crate::call::Call;
use crate::error::Problem;
use crate::query::Query;
use crate::route::Answer;

/// Letters of a page.
const LETTERS: u32 = 50;
const FIELDS: [&str; 6] = ["key", "type", "failureType", "olderThan", "redriven", "after"];

/// The filter as it was written.
pub(super) type Asked<'a> = [(&'static str, &'a str); 6];

pub(super) fn asked<'a>(query: &'a Query<'_>) -> Result<Asked<'a>, Problem> {
    form::asked(query, FIELDS)
}

/// The same filter, behind another place.
pub(super) fn behind<'a>(asked: &Asked<'a>, after: &'a str) -> Asked<'a> {
    let mut other = *asked;
    other[5].1 = after;
    other
}

/// The command's options, under its own names.
pub(super) fn options<'a>(asked: &Asked<'a>) -> Asked<'a> {
    let names = ["key", "type", "failure", "older-than", "redriven", "after"];
    let mut options = *asked;
    options.iter_mut().zip(names).for_each(|(option, name)| option.0 = name);
    options
}

pub(super) async fn show(call: Call) -> Answer {
    let query = call.query();
    let (asked, filter) = (asked(&query)?, dlt::filter(&query)?);
    let page = dlt::letters(&call)?.list(&filter, LETTERS).await?;
    let [key, kind, failure, age, ..] = asked;
    let main = html! {
        form method="get" action="/console/dlt" class="filter" { (fields(&asked)) (choice("Sent back", "redriven", &["true", "false"], asked[4].1)) button { "Show" } }
        (list(&page, &asked, call.state.operations.now()))
        p { a href=(link("/console/dlt/redrive", &[key, kind, failure, age])) { "Send back all that match…" } " They are counted first." }
        p { a href="/actuator/metrics/kafka.consumer.dlq.count" { "kafka.consumer.dlq.count" } }
    };
    let (path, command) = (link("/admin/dlt", &asked), command("posthaste dlt list", &options(&asked)));
    page::show(
        &call,
        &Page { tab: "Dead letters", fresh: false, title: "Dead letters", main, path: &path, command: &command },
    )
}

/// The fields of the filter.
pub(super) fn fields(asked: &Asked<'_>) -> Markup {
    let [(_, key), (_, kind), (_, failure), (_, age), ..] = *asked;
    form::failed_fields(key, kind, failure, age)
}

fn list(page: &DeadLetterPage, asked: &Asked<'_>, now: Timestamp) -> Markup {
    let next = page.next.map(|next| next.to_string());
    html! {
        div class="wide" { table {
            caption { @if page.dead_letters.is_empty() { "No such letters" } @else { "Letters by partition and offset" } }
            thead { tr { @for name in ["Letter", "State", "Type", "Key", "Failure", "Reason", "Attempts", "Set aside"] { th scope="col" { (name) } } } }
            tbody { @for letter in &page.dead_letters { (row(letter, now)) } }
        } }
        p class="pages" {
            @if !asked[5].1.is_empty() { a href=(link("/console/dlt", &behind(asked, ""))) { "First page" } " " }
            @if let Some(next) = &next { a rel="next" href=(link("/console/dlt", &behind(asked, next))) { "Next page" } }
        }
    }
}

fn row(letter: &DeadLetter, now: Timestamp) -> Markup {
    let (position, record) = (&letter.delivery.position, &letter.delivery.record);
    let place = format!("{}/{}", position.partition, position.offset);
    html! {
        tr {
            th scope="row" { a href={ "/console/dlt/" (place) } { (place) } }
            td { (standing(letter)) }
            td { (or_dash(letter.kind())) }
            td { code { (record.key) } }
            td { (or_dash(letter.failure_type().map(|failure| failure.as_str()))) }
            td { (or_dash(letter.reason())) }
            td class="number" { @match letter.attempts() { Some(attempts) => (attempts), None => "–" } }
            td { (when(record.timestamp, now)) }
        }
    }
}

/// Whether a letter went back.
pub(super) fn standing(letter: &DeadLetter) -> Markup {
    html! {
        @match &letter.redrive {
            None => (state("dead")),
            Some(redriven) if redriven.confirmed => { "sent back by " (redriven.audit.operator) " at " (rfc3339(redriven.at)) }
            Some(redriven) => { "in the hand of " (redriven.audit.operator) " since " (rfc3339(redriven.at)) }
        }
    }
}
