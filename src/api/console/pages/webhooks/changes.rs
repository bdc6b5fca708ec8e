//! Creates, changes and deletes webhooks by forms, and replaces their secrets. A page shows a new secret once.
use actix_web::http::StatusCode;
use app::port_types::Webhook;
use maud::{Markup, html};

use super::webhook_form::WebhookForm;
use crate::console::form;
use crate::console::layout::{self, Page};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;
use crate::topics::webhooks::bodies::webhook_id;
use crate::topics::webhooks::limits::log_change;
use crate::topics::webhooks::lookups::webhooks;

const NEW: &str = "/console/webhooks/new";

fn page<'a>(title: &'a str, main: Markup, command: &'a str) -> Page<'a> {
    Page { tab: "Webhooks", refreshes: false, title, main, path: "/webhooks", command }
}

fn new_page(context: &RequestContext, fields: &WebhookForm, problem: Option<&Problem>) -> Page<'static> {
    let main = html! {
        @if let Some(problem) = problem { (layout::problem_notice(problem)) }
        form method="post" action=(NEW) class="stack" {
            (form::csrf_field(context)) (fields.fields(true)) button { "Create the webhook" }
        }
        p { a href="/console/webhooks" { "Back to the webhooks" } }
    };
    page("New webhook", main, "posthaste webhook create URL --topic TOPIC")
}

pub(crate) async fn new(context: RequestContext) -> RouteResult {
    let topics = webhooks(&context)?.own_topics().to_vec();
    let first = topics.first().map_or("", String::as_str);
    layout::show(&context, &new_page(&context, &WebhookForm::blank(first), None))
}

pub(crate) async fn create(context: RequestContext) -> RouteResult {
    let fields = WebhookForm::read(&form::read(&context.body)?)?;
    match created(&context, &fields).await {
        Ok(webhook) => show_secret(&context, StatusCode::CREATED, &webhook, "Webhook created"),
        Err(problem) => refused(&context, &new_page(&context, &fields, Some(&problem)), problem),
    }
}

async fn created(context: &RequestContext, fields: &WebhookForm) -> Result<Webhook, Problem> {
    let (topics, values) = (fields.topics()?, fields.values()?);
    let webhook = webhooks(context)?.create(topics, values, fields.start(), None, rand::random()).await?;
    log_change(context, "create", webhook.id)?;
    Ok(webhook)
}

/// The same page with the entered values where the operator can correct them; other problems have a page of their own.
fn refused(context: &RequestContext, page: &Page<'_>, problem: Problem) -> RouteResult {
    match problem.code.status() {
        StatusCode::BAD_REQUEST | StatusCode::CONFLICT => layout::show_refused(context, page, &problem),
        _ => Err(problem),
    }
}

/// A page with the signing key of a webhook, which no other page shows.
fn show_secret(context: &RequestContext, status: StatusCode, webhook: &Webhook, title: &str) -> RouteResult {
    let secret = webhook.secrets.first().map_or("", |secret| secret.text.as_str());
    let main = html! {
        p class="verdict" { "Requests to " (webhook.url) " are signed with this secret. It is not shown again: copy it now." }
        pre { code id="secret" { (secret) } }
        p { a href={ "/console/webhooks/" (webhook.id) } { "Continue to the webhook" } }
    };
    let command = format!("posthaste webhook rotate {}", webhook.id);
    layout::show_with_status(context, status, &page(title, main, &command))
}

fn change_page(context: &RequestContext, id: &str, fields: &WebhookForm, problem: Option<&Problem>) -> Markup {
    html! {
        @if let Some(problem) = problem {
            (layout::problem_notice(problem))
            @if problem.code.status() == StatusCode::CONFLICT { p { "The form shows the present values: make your changes again." } }
        }
        form method="post" action={ "/console/webhooks/" (id) "/change" } class="stack" {
            (form::csrf_field(context)) (fields.fields(false)) button { "Save" }
        }
        p { a href={ "/console/webhooks/" (id) } { "Back to the webhook" } }
    }
}

pub(crate) async fn edit(context: RequestContext) -> RouteResult {
    let id = webhook_id(&context)?;
    let webhook = webhooks(&context)?.find(id).await?;
    let main = change_page(&context, &id.to_string(), &WebhookForm::from_webhook(&webhook), None);
    layout::show(&context, &page("Change webhook", main, &format!("posthaste webhook change {id}")))
}

pub(crate) async fn change(context: RequestContext) -> RouteResult {
    let (actions, id) = (webhooks(&context)?, webhook_id(&context)?);
    let mut fields = WebhookForm::read(&form::read(&context.body)?)?;
    let changed = match fields.changed_values() {
        Ok(values) => actions.change(id, values).await.map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    if let Err(problem) = changed {
        let webhook = actions.find(id).await?;
        if problem.code.status() == StatusCode::CONFLICT {
            // The entered values would undo the other change.
            fields = WebhookForm::from_webhook(&webhook);
        }
        fields.keep_topics_of(&webhook);
        let main = change_page(&context, &id.to_string(), &fields, Some(&problem));
        let command = format!("posthaste webhook change {id}");
        return refused(&context, &page("Change webhook", main, &command), problem);
    }
    log_change(&context, "change", id)?;
    Ok(layout::see_other_with_flash(
        &context,
        &format!("/console/webhooks/{id}"),
        "The webhook was changed.".to_owned(),
    ))
}

/// Asks before a webhook is deleted.
pub(crate) async fn confirm_delete(context: RequestContext) -> RouteResult {
    let id = webhook_id(&context)?;
    let webhook = webhooks(&context)?.find(id).await?;
    let main = html! {
        p class="verdict" { "Events are no longer sent to " strong { (webhook.url) } ", and the log of its deliveries is deleted. Its dead letters stay in their topic. Nothing was changed." }
        form method="post" action={ "/console/webhooks/" (id) "/delete" } class="act" {
            (form::csrf_field(&context)) button { "Delete the webhook" }
        }
        p { a href={ "/console/webhooks/" (id) } { "Back to the webhook" } }
    };
    layout::show(&context, &page("Delete webhook", main, &format!("posthaste webhook delete {id}")))
}

pub(crate) async fn delete(context: RequestContext) -> RouteResult {
    let id = webhook_id(&context)?;
    webhooks(&context)?.delete(id).await?;
    log_change(&context, "delete", id)?;
    Ok(layout::see_other_with_flash(&context, "/console/webhooks", "The webhook was deleted.".to_owned()))
}

pub(crate) async fn rotate(context: RequestContext) -> RouteResult {
    let id = webhook_id(&context)?;
    let webhook = webhooks(&context)?.rotate(id, None, rand::random()).await?;
    log_change(&context, "rotate", id)?;
    show_secret(&context, StatusCode::OK, &webhook, "New secret")
}
