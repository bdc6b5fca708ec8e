//! Redrives dead letters in two steps: a count, then a redrive of no more than the counted ones, with a reason.
use app::operators::dead_letters::RedriveReport;
use maud::{Markup, html};

use crate::admin::dead_letters;
use crate::admin::filters::dead_letter_filter;
use crate::admin::live_events::log_if_changed;
use crate::admin::operator_body::{LIMIT_MAX, paced_redrive};
use crate::console::form::{self, hidden_fields};
use crate::console::format::pluralize;
use crate::console::layout::{self, Page};
use crate::console::links::{link, shell_command};
use crate::console::pages::dead_letters::{RawFilter, after, command_options, filter_fields, raw_filter, topic};
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

pub(crate) async fn count(context: RequestContext) -> RouteResult {
    let query = context.query();
    let (raw, filter) = (raw_filter(&query)?, dead_letter_filter(&query)?);
    let dead_letters = dead_letters::dead_letters(&context, &query)?;
    let sent = dead_letters.count(&filter, LIMIT_MAX).await?;
    let main = html! {
        form method="get" action="/console/dlt/redrive" class="filter" { (filter_fields(&context, &raw)) button { "Count" } }
        (confirmation(&context, &raw, &sent))
        p { a href=(link("/console/dlt", &[topic(&raw)])) { "Back to the dead letters" } }
    };
    let command = shell_command("posthaste dlt redrive --dry-run", &command_options(&raw));
    let path = link("/admin/dlt", &raw);
    layout::show(
        &context,
        &Page {
            tab: "Dead letters",
            refreshes: false,
            title: "Redrive dead letters",
            main,
            path: &path,
            command: &command,
        },
    )
}

fn confirmation(context: &RequestContext, raw: &RawFilter<'_>, sent: &RedriveReport) -> Markup {
    html! {
        p class="verdict" {
            @if sent.next.is_some() { "At least " }
            strong { (sent.matched) } @if sent.matched == 1 { " dead letter matches" } @else { " dead letters match" }
            ", not redriven before. Nothing was changed."
        }
        @if sent.matched > 0 {
            form method="post" action="/console/dlt/redrive" class="act" {
                (form::csrf_field(context)) (hidden_fields(raw)) input type="hidden" name="matched" value=(sent.matched);
                (form::rate_field()) " " (form::reason_field()) " " button { "Redrive these dead letters" }
            }
        }
    }
}

pub(crate) async fn redrive(context: RequestContext) -> RouteResult {
    let form = form::read(&context.body)?;
    let (raw, filter) = (raw_filter(&form)?, dead_letter_filter(&form)?);
    let (reason, limit) = (form::reason(&form)?, form::matched_count(&form)?);
    let audit = dead_letters::audit(&context, reason)?;
    let dead_letters = dead_letters::dead_letters(&context, &form)?;
    let redrive = paced_redrive(&context, limit.into(), form::pace(&form)?);
    let result = redrive.dead_letters(dead_letters, &filter, &audit).await;
    log_if_changed(&context.state, &result, &audit, "send back", &link("dead letters", &raw));
    let sent = result?;
    if sent.redriven > 0 {
        dead_letters::log_redrive(&audit, dead_letters.topic(), sent.redriven);
    }
    context.state.dead_letter_counts.clear();
    let mut note = pluralize(sent.redriven, "dead letter was", "dead letters were") + " sent back to the topic.";
    if let Some(unsent_summary) = sent.unsent_summary() {
        note += &format!(" {unsent_summary}");
    }
    // The next count starts where this redrive ended: records that were dead-lettered again since are skipped.
    let next = sent.next.filter(|_| sent.redriven > 0).map(|next| next.to_string());
    let to = match &next {
        Some(next) => link("/console/dlt/redrive", &after(&raw, next)),
        None => link("/console/dlt", &[topic(&raw)]),
    };
    Ok(layout::see_other_with_flash(&context, &to, note))
}
