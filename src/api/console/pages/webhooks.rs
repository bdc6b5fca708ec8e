//! The webhooks, and one of them with its latest deliveries and the actions on it.
pub(crate) mod changes;
pub(crate) mod dead_letters;
mod webhook_form;

use app::consume::webhooks::WebhookValues;
use app::port_types::{AttemptOutcome, Webhook, WebhookDelivery};
use domain::Timestamp;
use maud::{Markup, html};

use crate::console::form;
use crate::console::format::{duration, or_dash, pluralize, relative_time};
use crate::console::layout::{self, Page};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;
use crate::topics::webhooks::bodies::webhook_id;
use crate::topics::webhooks::limits::log_change;
use crate::topics::webhooks::lookups::webhooks;

const TAB: &str = "Webhooks";

pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let now = context.state.operations.now();
    let main = match &context.state.webhooks {
        None => html! { p class="empty" { (Problem::no_webhooks().message()) } },
        Some(webhooks) => html! {
            p { a href="/console/webhooks/new" { "New webhook…" } " subscribes an endpoint to topics." }
            (table(&webhooks.list().await?, now))
        },
    };
    let page =
        Page { tab: TAB, refreshes: true, title: TAB, main, path: "/webhooks", command: "posthaste webhook list" };
    layout::show(&context, &page)
}

fn table(found: &[(Webhook, Option<WebhookDelivery>)], now: Timestamp) -> Markup {
    if found.is_empty() {
        return html! { p class="empty" { "No endpoint is subscribed." } };
    }
    html! {
        div class="wide" { table class="cards" {
            caption { (pluralize(found.len() as u64, "webhook", "webhooks")) }
            thead { tr { @for name in ["Endpoint", "State", "Topics", "Last delivery", "When"] { th scope="col" { (name) } } } }
            tbody {
                @for (webhook, last) in found {
                    tr {
                        th scope="row" { a href={ "/console/webhooks/" (webhook.id) } { (webhook.url) } }
                        td data-label="State" { (state(webhook)) }
                        td data-label="Topics" { (webhook.topics.join(", ")) }
                        td data-label="Last delivery" { (or_dash(last.as_ref().map(|last| last.outcome.as_str()))) }
                        td data-label="When" { @match last { Some(last) => (relative_time(last.at, now)), None => "–" } }
                    }
                }
            }
        } }
    }
}

fn state(webhook: &Webhook) -> &'static str {
    match (webhook.active, &webhook.disabled_reason) {
        (true, _) => "active",
        (false, Some(_)) => "disabled",
        (false, None) => "inactive",
    }
}

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let (actions, id) = (webhooks(&context)?, webhook_id(&context)?);
    let (webhook, deliveries) = (actions.find(id).await?, actions.deliveries(id).await?);
    let switch = if webhook.active { "deactivate" } else { "activate" };
    let action = |name: &str, label: &str| {
        html! { form method="post" action={ "/console/webhooks/" (id) "/" (name) } class="act" { (form::csrf_field(&context)) button { (label) } } }
    };
    let main = html! {
        section class="card" { (facts(&webhook, context.state.operations.now())) }
        section class="card" { (deliveries_table(&deliveries, context.state.operations.now())) }
        h2 { "Actions" }
        (action("test", "Send a test event"))
        (action(switch, if webhook.active { "Deactivate" } else { "Activate" }))
        (action("rotate", "Replace the secret"))
        p { "The former secret signs as well for a time. " a href={ "/console/webhooks/" (id) "/dead-letters" } { "Dead letters" } " · "
            a href={ "/console/webhooks/" (id) "/change" } { "Change" } " · " a href={ "/console/webhooks/" (id) "/delete" } { "Delete…" } }
        p { a href="/console/webhooks" { "Back to the webhooks" } }
    };
    let (path, command) = (format!("/webhooks/{id}/deliveries"), format!("posthaste webhook deliveries {id}"));
    layout::show(&context, &Page { tab: TAB, refreshes: true, title: "Webhook", main, path: &path, command: &command })
}

fn facts(webhook: &Webhook, now: Timestamp) -> Markup {
    let fact = |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td { (value) } } };
    let types = if webhook.types.is_empty() { "all".to_owned() } else { webhook.types.join(", ") };
    html! {
        div class="wide" { table class="facts" {
            caption { "Details" }
            tbody {
                (fact("Endpoint", html! { (webhook.url) }))
                (fact("State", html! { (state(webhook)) @if let Some(reason) = &webhook.disabled_reason { ": " (reason) } }))
                (fact("Topics", html! { (webhook.topics.join(", ")) }))
                (fact("Types", html! { (types) }))
                (fact("Order", html! { @if webhook.ordered { "the events of a key wait for each other" } @else { "none" } }))
                (fact("Description", html! { (webhook.description) }))
                (fact("Created", relative_time(webhook.created_at, now)))
                (fact("Changed", relative_time(webhook.updated_at, now)))
            }
        } }
    }
}

fn deliveries_table(deliveries: &[WebhookDelivery], now: Timestamp) -> Markup {
    if deliveries.is_empty() {
        return html! { p class="empty" { "No event was sent yet." } };
    }
    html! {
        div class="wide" { table class="cards" {
            caption { "Latest deliveries, newest first" }
            thead { tr { @for name in ["When", "Outcome", "Status", "Attempt", "Type", "Key", "Duration", "Error"] { th scope="col" { (name) } } } }
            tbody {
                @for delivery in deliveries {
                    tr {
                        td data-label="When" { (relative_time(delivery.at, now)) }
                        td data-label="Outcome" { @if delivery.outcome == AttemptOutcome::Delivered { "delivered" } @else { strong { (delivery.outcome.as_str()) } } }
                        td data-label="Status" { @match delivery.status { Some(status) => (status), None => "–" } }
                        td data-label="Attempt" { (delivery.attempt) }
                        td data-label="Type" { (delivery.event_type) }
                        td data-label="Key" { code { (delivery.key) } }
                        td data-label="Duration" { (duration(delivery.duration)) }
                        td data-label="Error" { (or_dash(delivery.error.as_deref())) }
                    }
                }
            }
        } }
    }
}

pub(crate) async fn test(context: RequestContext) -> RouteResult {
    let id = webhook_id(&context)?;
    let report = webhooks(&context)?.test(id).await?;
    let note = match report.error {
        None => "The endpoint accepted the test event.".to_owned(),
        Some(error) => format!("The endpoint did not accept the test event: {error}."),
    };
    Ok(layout::see_other_with_flash(&context, &format!("/console/webhooks/{id}"), note))
}

pub(crate) async fn activate(context: RequestContext) -> RouteResult {
    set_active(context, true, "The webhook is active; events that have waited are delivered.").await
}

pub(crate) async fn deactivate(context: RequestContext) -> RouteResult {
    set_active(context, false, "The webhook is inactive; its events wait.").await
}

async fn set_active(context: RequestContext, active: bool, note: &str) -> RouteResult {
    let id = webhook_id(&context)?;
    let values = WebhookValues { active: Some(active), ..WebhookValues::default() };
    webhooks(&context)?.change(id, values).await?;
    log_change(&context, if active { "activate" } else { "deactivate" }, id)?;
    Ok(layout::see_other_with_flash(&context, &format!("/console/webhooks/{id}"), note.to_owned()))
}
