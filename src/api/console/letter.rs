//! One dead letter: its journey, its headers, its value, and the way back.
use app::operators::dead_letters::DeadLetter;
use domain::Timestamp;
use maud::{Markup, html};

use super::form;
use super::letters::standing;
use super::page::{self, Page};
use super::words::{or_dash, when};
use crate::admin::dlt;
use crate::admin::letter::{headers, value};
use crate::call::Call;
use crate::route::Answer;

pub(super) async fn show(call: Call) -> Answer {
    let place = dlt::place(&call)?;
    let letter = dlt::letters(&call)?.find(place).await?;
    let main = html! {
        (facts(&letter, call.state.operations.now()))
        (contents(&letter))
        h2 { "What can be done" }
        @if letter.is_redriven() { p { "Nothing: it went back, and goes once." } } @else {
            form method="post" action={ "/console/dlt/" (place) "/redrive" } class="act" {
                (form::mark(&call)) p { "Sends it back to its topic, once." } (form::reason_field()) " " button { "Send back" }
            }
        }
        p { a href="/console/dlt" { "To the dead letters" } }
    };
    let (path, command) = (format!("/admin/dlt/{place}"), format!("posthaste dlt show {place}"));
    let title = format!("Dead letter {place}");
    page::show(&call, &Page { tab: "Dead letters", fresh: false, title: &title, main, path: &path, command: &command })
}

fn facts(letter: &DeadLetter, now: Timestamp) -> Markup {
    let record = &letter.delivery.record;
    let fact = |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td { (value) } } };
    html! {
        div class="wide" { table class="facts" {
            caption { "What is known" }
            tbody {
                (fact("State", standing(letter)))
                (fact("Type", html! { (or_dash(letter.kind())) }))
                (fact("Key", html! { code { (record.key) } }))
                (fact("Event", html! { code { (or_dash(letter.event_id())) } }))
                (fact("Failure", html! { (or_dash(letter.failure_type().map(|failure| failure.as_str()))) }))
                (fact("Exception", html! { code { (or_dash(letter.exception())) } }))
                (fact("Reason", html! { (or_dash(letter.reason())) }))
                (fact("Attempts", html! { @match letter.attempts() { Some(attempts) => (attempts), None => "–" } }))
                (fact("Set aside", when(record.timestamp, now)))
                @if let Some(origin) = letter.origin() {
                    (fact("Stood before in", html! {
                        (origin.topic)
                        @if let Some(partition) = origin.partition { ", partition " (partition) }
                        @if let Some(offset) = origin.offset { ", offset " (offset) }
                    }))
                }
                @if let Some(redriven) = &letter.redrive { (fact("Sent back because", html! { (redriven.audit.reason) })) }
            }
        } }
    }
}

fn contents(letter: &DeadLetter) -> Markup {
    let value = value(&letter.delivery);
    let value = value.as_str().map_or_else(|| format!("{value:#}"), str::to_owned);
    html! {
        div class="wide" { table {
            caption { "Headers" }
            thead { tr { th scope="col" { "Name" } th scope="col" { "Value" } } }
            tbody {
                @for (name, value) in headers(&letter.delivery) {
                    tr { th scope="row" { code { (name) } } td { code { (value.as_str().unwrap_or_default()) } } }
                }
            }
        } }
        h2 { "Value" }
        pre tabindex="0" { code { (value) } }
    }
}

pub(super) async fn redrive(call: Call) -> Answer {
    let (place, why) = (dlt::place(&call)?, form::reason(&form::read(&call.body)?)?);
    let audit = dlt::audit(&call, why)?;
    dlt::letters(&call)?.redrive_one(place, true, &audit).await?;
    dlt::tell(&audit, 1);
    form::tell(&audit.operator, "send back", &format!("dead letter {place}"), &audit.reason);
    Ok(page::see_with_note(&call, &format!("/console/dlt/{place}"), format!("Letter {place} went back to its topic.")))
}
