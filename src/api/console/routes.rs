//! The route table of `/console`.
use crate::console::assets;
use crate::console::pages::{
    actors, audit, dead_letter, dead_letter_redrive, dead_letters, events, login, outbox, outbox_bulk, outbox_redrive,
    outbox_row, overview, webhooks,
};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;
use crate::request::route::{BodyKind, Endpoint, Handler, Resource, handler};

pub(crate) fn resources() -> Vec<Resource> {
    let page = |template, get| Resource::at(template).console().on(Endpoint::get(get).console());
    let action = |template, post| Resource::at(template).console().on(form(post));
    vec![
        page("/console", handler!(overview::show)),
        page("/console/actors", handler!(actors::show)),
        action("/console/actors/fault", handler!(actors::inject)),
        page("/console/actors/{path}", handler!(actors::actor_page::show)).matched_by("/console/actors/{path:.+}"),
        page("/console/outbox", handler!(outbox::show)),
        page("/console/outbox/redrive", handler!(outbox_redrive::count)).on(form(handler!(outbox_redrive::redrive))),
        page("/console/outbox/bulk", handler!(outbox_bulk::count)).on(form(handler!(outbox_bulk::change))),
        page("/console/outbox/matching", handler!(outbox_bulk::matching::count))
            .on(form(handler!(outbox_bulk::matching::change))),
        page("/console/outbox/{id}", handler!(outbox_row::show)),
        action("/console/outbox/{id}/retry", handler!(outbox_row::retry)),
        action("/console/outbox/{id}/park", handler!(outbox_row::park)),
        page("/console/dlt", handler!(dead_letters::show)),
        page("/console/dlt/redrive", handler!(dead_letter_redrive::count))
            .on(form(handler!(dead_letter_redrive::redrive))),
        page("/console/dlt/{partition}/{offset}", handler!(dead_letter::show)),
        action("/console/dlt/{partition}/{offset}/redrive", handler!(dead_letter::redrive)),
        page("/console/webhooks", handler!(webhooks::list)),
        page("/console/webhooks/new", handler!(webhooks::changes::new)).on(form(handler!(webhooks::changes::create))),
        page("/console/webhooks/{id}", handler!(webhooks::show)),
        page("/console/webhooks/{id}/change", handler!(webhooks::changes::edit))
            .on(form(handler!(webhooks::changes::change))),
        page("/console/webhooks/{id}/delete", handler!(webhooks::changes::confirm_delete))
            .on(form(handler!(webhooks::changes::delete))),
        action("/console/webhooks/{id}/rotate", handler!(webhooks::changes::rotate)),
        page("/console/webhooks/{id}/dead-letters", handler!(webhooks::dead_letters::list)),
        action(
            "/console/webhooks/{id}/dead-letters/{partition}/{offset}/redrive",
            handler!(webhooks::dead_letters::redrive),
        ),
        action("/console/webhooks/{id}/test", handler!(webhooks::test)),
        action("/console/webhooks/{id}/activate", handler!(webhooks::activate)),
        action("/console/webhooks/{id}/deactivate", handler!(webhooks::deactivate)),
        page("/console/audit", handler!(audit::show)),
        page("/console/events", handler!(events::show)),
        page("/console/events/stream", handler!(events::stream)),
        Resource::at("/console/login")
            .console()
            .on(Endpoint::get(handler!(login::show)).not_json().rate_limited())
            .on(Endpoint::post(handler!(login::log_in)).not_json().rate_limited().body_kind(BodyKind::Form)),
        action("/console/logout", handler!(login::log_out)),
        Resource::at("/console/console.css")
            .console()
            .on(Endpoint::get(handler!(assets::style)).not_json().rate_limited()),
        Resource::at("/console/console.js")
            .console()
            .on(Endpoint::get(handler!(assets::script)).not_json().rate_limited()),
        Resource::at("/console/theme.js")
            .console()
            .on(Endpoint::get(handler!(assets::theme)).not_json().rate_limited()),
        Resource::at("/console/favicon.svg")
            .console()
            .on(Endpoint::get(handler!(assets::favicon)).not_json().rate_limited()),
        Resource::at("/console/{unknown}")
            .matched_by("/console/{unknown:.*}")
            .console()
            .on(Endpoint::get(handler!(unknown_page)).not_json().rate_limited())
            .on(Endpoint::post(handler!(unknown_page)).not_json().rate_limited()),
    ]
}

fn form(handler: Handler) -> Endpoint {
    Endpoint::post(handler).console().body_kind(BodyKind::Form)
}

async fn unknown_page(_context: RequestContext) -> RouteResult {
    Err(Problem::not_found("no such page"))
}
