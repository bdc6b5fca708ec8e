//! One dead letter: its failure, its headers, its value, and its redrive.
use app::operators::dead_letters::DeadLetter;
use app::port_types::RedriveMode;
use domain::Timestamp;
use maud::{Markup, html};

use crate::admin::dead_letters;
use crate::admin::live_events::log_if_changed;
use crate::console::form;
use crate::console::format::{or_dash, relative_time};
use crate::console::layout::{self, Page};
use crate::console::links::{link, shell_command};
use crate::console::record_view::{header_table, value_view};
use crate::console::redrive_state::redrive_state;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let (position, query) = (dead_letters::position(&context)?, context.query());
    let dead_letters = dead_letters::dead_letters(&context, &query)?;
    let (dead_letter, topic) = (dead_letters.find(position).await?, dead_letters.topic());
    let (record, orders) = (&dead_letter.message.record, &context.state.options.order_topic);
    // Links keep the parameter as it is: without it they lead to the topic of the orders.
    let parameter = [("topic", query.non_empty("topic")?.unwrap_or_default())];
    let main = html! {
        section class="card" { (facts(&dead_letter, context.state.operations.now())) }
        section class="card" { (value_view(&record.value, orders.unframed(&dead_letter.message))) (header_table(&record.headers)) }
        h2 { "Actions" }
        @if dead_letter.is_redriven() { p { "None: the dead letter was redriven, which is possible once." } } @else {
            form method="post" action={ "/console/dlt/" (position) "/redrive" } class="act" {
                (form::csrf_field(&context)) (form::hidden_fields(&parameter))
                p { "Sends the record back to " (topic) ". This is possible once." }
                (form::reason_field()) " " button { "Redrive" }
            }
        }
        p { a href=(link("/console/dlt", &parameter)) { "Back to the dead letters" } }
    };
    let path = link(&format!("/admin/dlt/{position}"), &parameter);
    let command = shell_command(&format!("posthaste dlt show {position}"), &parameter);
    let title = format!("Dead letter {position} of {topic}");
    layout::show(
        &context,
        &Page { tab: "Dead letters", refreshes: false, title: &title, main, path: &path, command: &command },
    )
}

fn facts(dead_letter: &DeadLetter, now: Timestamp) -> Markup {
    let record = &dead_letter.message.record;
    let fact = |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td { (value) } } };
    html! {
        div class="wide" { table class="facts" {
            caption { "Details" }
            tbody {
                (fact("State", redrive_state(dead_letter)))
                (fact("Type", html! { (or_dash(dead_letter.event_type())) }))
                (fact("Key", html! { code { (record.key) } }))
                (fact("Event", html! { code { (or_dash(dead_letter.event_id())) } }))
                (fact("Failure", html! { (or_dash(dead_letter.failure_type().map(|failure| failure.as_str()))) }))
                (fact("Exception", html! { code { (or_dash(dead_letter.exception())) } }))
                (fact("Reason", html! { (or_dash(dead_letter.reason())) }))
                (fact("Attempts", html! { @match dead_letter.attempts() { Some(attempts) => (attempts), None => "–" } }))
                (fact("Dead-lettered", relative_time(record.timestamp, now)))
                @if let Some(origin) = dead_letter.origin() {
                    (fact("Original record", html! {
                        (origin.topic)
                        @if let Some(partition) = origin.partition { ", partition " (partition) }
                        @if let Some(offset) = origin.offset { ", offset " (offset) }
                    }))
                }
                @if let Some(redriven) = &dead_letter.redrive { (fact("Reason of the redrive", html! { (redriven.audit.reason) })) }
            }
        } }
    }
}

pub(crate) async fn redrive(context: RequestContext) -> RouteResult {
    let (position, form) = (dead_letters::position(&context)?, form::read(&context.body)?);
    let audit = dead_letters::audit(&context, form::reason(&form)?)?;
    let dead_letters = dead_letters::dead_letters(&context, &form)?;
    let result = dead_letters.redrive_one(position, RedriveMode::Execute, &audit).await;
    let on = format!("dead letter {position} of {}", dead_letters.topic());
    log_if_changed(&context.state, &result, &audit, "send back", &on);
    result?;
    dead_letters::log_redrive(&audit, dead_letters.topic(), 1);
    context.state.dead_letter_counts.clear();
    let parameter = [("topic", form.non_empty("topic")?.unwrap_or_default())];
    Ok(layout::see_other_with_flash(
        &context,
        &link(&format!("/console/dlt/{position}"), &parameter),
        format!("Dead letter {position} was sent back to its topic."),
    ))
}
