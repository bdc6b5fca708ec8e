//! `/console`: what operators see and do, in a browser. Pages are made here, whole; the one script only keeps them fresh.
mod actors;
mod assets;
mod back;
mod chart;
mod events;
mod form;
pub(crate) mod guard;
pub(crate) mod history;
mod letter;
mod letters;
mod links;
mod login;
mod outbox;
mod overview;
pub(crate) mod page;
mod redrive;
mod row;
pub(crate) mod session;
mod words;

use crate::call::Call;
use crate::error::Problem;
use crate::route::{Answer, Endpoint, Resource, Takes, handler};

pub(crate) fn resources() -> Vec<Resource> {
    let page = |template, get| Resource::at(template).console().on(Endpoint::get(get).console());
    let act = |template, post| Resource::at(template).console().on(form(post));
    vec![
        page("/console", handler!(overview::show)),
        page("/console/actors", handler!(actors::show)),
        act("/console/actors/fault", handler!(actors::inject)),
        page("/console/outbox", handler!(outbox::show)),
        page("/console/outbox/redrive", handler!(redrive::count)).on(form(handler!(redrive::redrive))),
        page("/console/outbox/{id}", handler!(row::show)),
        act("/console/outbox/{id}/retry", handler!(row::retry)),
        act("/console/outbox/{id}/park", handler!(row::park)),
        page("/console/dlt", handler!(letters::show)),
        page("/console/dlt/redrive", handler!(back::count)).on(form(handler!(back::redrive))),
        page("/console/dlt/{partition}/{offset}", handler!(letter::show)),
        act("/console/dlt/{partition}/{offset}/redrive", handler!(letter::redrive)),
        page("/console/events", handler!(events::show)),
        page("/console/events/stream", handler!(events::stream)),
        Resource::at("/console/login")
            .console()
            .on(Endpoint::get(handler!(login::show)).other().counted())
            .on(Endpoint::post(handler!(login::begin)).other().counted().takes(Takes::Form)),
        act("/console/logout", handler!(login::end)),
        Resource::at("/console/console.css").console().on(Endpoint::get(handler!(assets::style)).other().counted()),
        Resource::at("/console/console.js").console().on(Endpoint::get(handler!(assets::script)).other().counted()),
        Resource::at("/console/{unknown}")
            .matched_by("/console/{unknown:.*}")
            .console()
            .on(Endpoint::get(handler!(nowhere)).other().counted())
            .on(Endpoint::post(handler!(nowhere)).other().counted()),
    ]
}

fn form(handle: crate::route::Handler) -> Endpoint {
    Endpoint::post(handle).console().takes(Takes::Form)
}

async fn nowhere(_call: Call) -> Answer {
    Err(Problem::not_found("no such page"))
}
