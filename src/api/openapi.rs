//! The OpenAPI 3.1 document, generated from the handlers and the shapes they answer with.
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, HeaderBuilder, OpenApi as Document, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use crate::{actuator, admin, error, health, orders};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "posthaste",
        description = "An order service around a transactional outbox. Errors are RFC 9457 problems that carry \
                       `code`, `message`, `requestId`, `timestamp` and `errors` as well. Times are RFC 3339 in UTC.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/", description = "This service")),
    tags(
        (name = "orders", description = "Place, read, move on, withdraw"),
        (name = "health", description = "Probes"),
        (name = "metrics", description = "Numbers"),
        (name = "admin", description = "Operators only"),
    ),
    paths(
        orders::create::create, orders::read::list, orders::pages::page, orders::read::find,
        orders::change::change_status, orders::change::cancel,
        health::livez, health::readyz, health::startupz,
        actuator::health, actuator::liveness, actuator::ready, actuator::component, actuator::info,
        actuator::metrics, actuator::prometheus, actuator::metric_names, actuator::metric,
        admin::actors::list, admin::actors::inject,
        admin::outbox::rows, admin::outbox::row, admin::outbox::retry, admin::outbox::park,
        admin::why::why, admin::redrive::redrive,
        admin::dlt::list, admin::dlt::find, admin::dlt::redrive, admin::dlt::redrive_one,
        admin::partitions::list, admin::events::stream,
    ),
    components(schemas(error::Envelope<'_>, error::FieldError)),
    modifiers(&Everywhere),
)]
struct Api;

/// What holds for every operation is said once, here.
struct Everywhere;

/// Refusals that any operation behind a token may answer with.
const REFUSALS: [(&str, &str); 11] = [
    ("401", "No token that holds"),
    ("403", "The token's roles do not allow this"),
    ("406", "Accept excludes JSON"),
    ("408", "The body did not arrive in time"),
    ("413", "The body is larger than 1 MiB"),
    ("414", "The target is longer than 8 KiB"),
    ("415", "The body is no plain application/json"),
    ("431", "The headers are larger than 64 KiB"),
    ("429", "Too many requests; come back after Retry-After seconds"),
    ("500", "The outcome is not known"),
    ("503", "Nothing was changed; come back after Retry-After seconds"),
];

impl Modify for Everywhere {
    fn modify(&self, document: &mut Document) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        for (path, item) in &mut document.paths.paths {
            let answers_json = path != "/admin/events" && path != "/actuator/prometheus";
            let operations = [&mut item.get, &mut item.post, &mut item.patch];
            for operation in operations.into_iter().flatten() {
                let (takes_body, open) = (operation.request_body.is_some(), operation.security.is_none());
                for (status, description) in REFUSALS {
                    let holds = match status {
                        "408" | "413" | "415" => takes_body,
                        "406" => answers_json && (!open || path.starts_with("/actuator/")),
                        "414" | "431" => true,
                        _ => !open,
                    };
                    if holds {
                        let known = operation.responses.responses.entry(status.to_owned());
                        known.or_insert_with(|| refusal(status, description));
                    }
                }
            }
        }
    }
}

fn refusal(status: &str, description: &str) -> RefOr<utoipa::openapi::Response> {
    let content = Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
    let mut response = ResponseBuilder::new().description(description).content("application/problem+json", content);
    if matches!(status, "429" | "503") {
        let seconds = HeaderBuilder::new().description(Some("Seconds")).build();
        response = response.header("Retry-After", seconds);
    }
    RefOr::T(response.build())
}

/// The document, in pretty JSON.
pub fn openapi_json() -> String {
    let mut document = Api::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.to_pretty_json().expect("the document is plain data")
}
