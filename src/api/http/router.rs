//! The routes of a surface, registered in an actix app.
use std::sync::Arc;

use actix_web::web::{self, ServiceConfig};

use crate::admin::routes as admin;
use crate::console::routes as console;
use crate::health::{actuator, metrics, probes};
use crate::http::pipeline;
use crate::openapi::ui;
use crate::options::Surface;
use crate::orders::routes as orders;
use crate::request::route::Resource;
use crate::state::HttpState;

/// Registers the routes of a surface in an actix app. [`crate::serve`] calls this.
pub fn configure(state: Arc<HttpState>, surface: Surface) -> impl FnOnce(&mut ServiceConfig) {
    move |app| {
        for resource in resources(surface) {
            let state = Arc::clone(&state);
            let pattern = resource.pattern.unwrap_or(resource.template);
            let handler = move |request, payload| {
                pipeline::handle_request(Arc::clone(&state), Arc::clone(&resource), request, payload)
            };
            app.service(web::resource(pattern).default_service(web::to(handler)));
        }
        let unknown_route =
            move |request, payload| pipeline::handle_unknown_route(Arc::clone(&state), request, payload);
        app.default_service(web::to(unknown_route));
    }
}

/// Every resource of a surface. The order matters: the first pattern that matches wins.
fn resources(surface: Surface) -> Vec<Arc<Resource>> {
    let mut resources = Vec::new();
    if surface != Surface::Admin {
        resources.extend(orders::resources());
    }
    if surface != Surface::Public {
        resources.extend(admin::resources());
        resources.extend(console::resources());
    }
    resources.extend(probes::resources());
    resources.extend(metrics::resources());
    resources.extend(actuator::resources());
    resources.extend(ui::resources());
    resources.into_iter().map(Arc::new).collect()
}
