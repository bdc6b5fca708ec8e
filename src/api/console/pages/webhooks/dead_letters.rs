//! The dead letters of a webhook one by one, each with its redrive.
use app::operators::dead_letters::{DeadLetter, DeadLetterPosition};
use app::port_types::{RedriveMode, Webhook};
use domain::{Timestamp, WebhookId};
use maud::{Markup, html};

use crate::admin::dead_letters;
use crate::admin::live_events::log_if_changed;
use crate::console::form;
use crate::console::format::{or_dash, relative_time};
use crate::console::layout::{self, Page};
use crate::console::redrive_state::redrive_state;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;
use crate::topics::webhooks::bodies::webhook_id;
use crate::topics::webhooks::dead_letters::{cursor, last_status};
use crate::topics::webhooks::lookups::webhooks;

/// Dead letters of a page.
const PAGE_SIZE: u32 = 50;

pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let (actions, id) = (webhooks(&context)?, webhook_id(&context)?);
    let webhook = actions.find(id).await?;
    let page = actions.dead_letters(id, cursor(&context.query())?, PAGE_SIZE).await?;
    let (now, next) = (context.state.operations.now(), page.next.map(|next| next.to_string()));
    let main = html! {
        p { "Events that " strong { (webhook.url) } " did not accept in all attempts." }
        @if page.dead_letters.is_empty() {
            p class="empty" { @if next.is_some() { "None among those examined so far." } @else { "No dead letters." } }
        } @else {
            (table(&context, &webhook, &page.dead_letters, now))
        }
        p class="pages" {
            @if let Some(next) = &next { a rel="next" href={ "/console/webhooks/" (id) "/dead-letters?after=" (next) } { "Next page" } }
        }
        p { a href={ "/console/webhooks/" (id) } { "Back to the webhook" } }
    };
    let (path, command) = (format!("/webhooks/{id}/dead-letters"), format!("posthaste webhook dead-letters {id}"));
    let title = "Dead letters of a webhook";
    layout::show(&context, &Page { tab: "Webhooks", refreshes: false, title, main, path: &path, command: &command })
}

fn table(context: &RequestContext, webhook: &Webhook, found: &[DeadLetter], now: Timestamp) -> Markup {
    html! {
        div class="wide" { table class="cards" {
            caption { "By partition and offset of their topic" }
            thead { tr { @for name in ["Dead letter", "State", "Type", "Key", "Last status", "Last failure", "Attempts", "When", "Redrive"] { th scope="col" { (name) } } } }
            tbody { @for dead_letter in found { (row(context, webhook.id, dead_letter, now)) } }
        } }
    }
}

fn row(context: &RequestContext, id: WebhookId, dead_letter: &DeadLetter, now: Timestamp) -> Markup {
    let position = dead_letter.position();
    html! {
        tr {
            th scope="row" { (position) }
            td data-label="State" { (redrive_state(dead_letter)) }
            td data-label="Type" { (or_dash(dead_letter.event_type())) }
            td data-label="Key" { code { (dead_letter.message.record.key) } }
            td class="number" data-label="Last status" { @match last_status(dead_letter) { Some(status) => (status), None => "–" } }
            td data-label="Last failure" { (or_dash(dead_letter.reason())) }
            td class="number" data-label="Attempts" { @match dead_letter.attempts() { Some(attempts) => (attempts), None => "–" } }
            td data-label="When" { (relative_time(dead_letter.message.record.timestamp, now)) }
            td data-label="Redrive" { @if dead_letter.is_redriven() { "–" } @else { (redrive_form(context, id, position)) } }
        }
    }
}

fn redrive_form(context: &RequestContext, id: WebhookId, position: DeadLetterPosition) -> Markup {
    html! {
        form method="post" action={ "/console/webhooks/" (id) "/dead-letters/" (position) "/redrive" } class="act" {
            (form::csrf_field(context)) (form::reason_field()) " " button aria-label={ "Redrive dead letter " (position) } { "Redrive" }
        }
    }
}

pub(crate) async fn redrive(context: RequestContext) -> RouteResult {
    let (actions, id, position) = (webhooks(&context)?, webhook_id(&context)?, dead_letters::position(&context)?);
    let audit = dead_letters::audit(&context, form::reason(&form::read(&context.body)?)?)?;
    let result = actions.redrive_one(id, position, RedriveMode::Execute, &audit).await;
    let on = format!("dead letter {position} of webhook {id}");
    log_if_changed(&context.state, &result, &audit, "send back", &on);
    result?;
    dead_letters::log_redrive(&audit, actions.shared_topic(), 1);
    let to = format!("/console/webhooks/{id}/dead-letters");
    Ok(layout::see_other_with_flash(&context, &to, format!("Dead letter {position} is delivered again.")))
}
