//! HTTP: routes, shapes, who asks, how often, and the only place where an error becomes a status (`error.rs`).
//!
//! Each request walks through `enter.rs`, which judges it in the contract's order, and leaves through `depart.rs`, which puts on
//! what every answer carries. What stands where is data, in `orders.rs`, `admin.rs`, `console.rs`, `health.rs`, `actuator.rs` and `docs.rs`.
#![warn(missing_docs)]

mod actuator;
mod admin;
pub mod auth;
mod body;
mod call;
mod conditions;
mod connection;
mod console;
mod context;
mod depart;
mod docs;
mod documents;
mod enter;
mod entrance;
mod error;
mod health;
mod idempotency;
mod json;
mod line;
mod listeners;
mod media;
mod names;
mod openapi;
mod options;
mod orders;
mod patience;
mod proxies;
mod query;
mod rate;
mod route;
mod server;
mod state;
mod waiting;

use std::sync::Arc;

use actix_web::web::{self, ServiceConfig};

pub use documents::{letter_document, partition_document, record_document, row_document, standing_document};
pub use listeners::Listeners;
pub use openapi::openapi_json;
pub use options::{Options, Surface};
pub use proxies::{NoNetwork, Proxies};
pub use server::{Bound, Service, serve, serve_on};
pub use state::{Parts, State};
pub use waiting::{Early, Waiting, wait_on};

/// Puts a surface's routes into an actix app. [`serve`] does this; tests do it themselves.
pub fn configure(state: Arc<State>, which: Surface) -> impl FnOnce(&mut ServiceConfig) {
    move |app| {
        for resource in route::table(which) {
            let state = Arc::clone(&state);
            let pattern = resource.pattern.unwrap_or(resource.template);
            let entrance =
                move |request, payload| enter::enter(Arc::clone(&state), Arc::clone(&resource), request, payload);
            app.service(web::resource(pattern).default_service(web::to(entrance)));
        }
        let nowhere = move |request| enter::unknown(Arc::clone(&state), request);
        app.default_service(web::to(nowhere));
    }
}
