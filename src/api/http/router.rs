//! The routes of a surface, registered in an actix app.
use std::sync::Arc;

use actix_web::web::{self, ServiceConfig};

use crate::admin::routes as admin;
use crate::console::routes as console;
use crate::health::{actuator, metrics, probes};
use crate::http::options::Surface;
use crate::http::pipeline;
use crate::openapi::ui;
use crate::orders::routes as orders;
use crate::request::route::Resource;
use crate::state::HttpState;
use crate::topics::routes as topics;
use crate::topics::webhooks::routes as webhooks;

/// Registers the routes of a surface in an actix app. [`crate::serve`] calls this.
pub fn configure(state: Arc<HttpState>, surface: Surface) -> impl FnOnce(&mut ServiceConfig) {
    move |app| {
        for resource in resources(surface, state.options.orders_enabled) {
            let state = Arc::clone(&state);
            let pattern = resource.pattern.unwrap_or(resource.template);
            let handler = move |request, payload| {
                pipeline::handle_request(Arc::clone(&state), Arc::clone(&resource), request, payload)
            };
            app.service(web::resource(pattern).default_service(web::to(handler)));
        }
        let has_console = surface != Surface::Public;
        let unknown_route =
            move |request, payload| pipeline::handle_unknown_route(Arc::clone(&state), has_console, request, payload);
        app.default_service(web::to(unknown_route));
    }
}

/// Every resource of a surface. The order matters: the first pattern that matches wins.
fn resources(surface: Surface, has_orders: bool) -> Vec<Arc<Resource>> {
    let mut resources = Vec::new();
    if surface != Surface::Admin {
        if has_orders {
            resources.extend(orders::resources());
        }
        resources.extend(topics::resources());
    }
    if surface != Surface::Public {
        resources.extend(admin::resources());
        resources.extend(webhooks::resources());
        resources.extend(console::resources());
        resources.extend(actuator::operator_resources());
        resources.extend(ui::pages());
    }
    resources.extend(probes::resources());
    resources.extend(metrics::resources());
    resources.extend(actuator::resources());
    resources.extend(ui::document());
    resources.into_iter().map(Arc::new).collect()
}
