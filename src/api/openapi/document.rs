//! The OpenAPI 3.1 document, generated from the handlers and their bodies.
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, HeaderBuilder, OpenApi as Document, Ref, RefOr, ResponseBuilder, Schema};
use utoipa::{Modify, OpenApi};

use crate::admin::{actors, audit, dead_letters, diagnosis, live_events, outbox, partitions, redrive};
use crate::error::{FieldError, ProblemBody};
use crate::health::{actuator, metrics, probes};
use crate::orders::{change, create, page, read};
use crate::topics::webhooks::{changes, dead_letters as webhook_dead_letters, deliveries, lookups};
use crate::topics::{offsets, publish, record_body, records};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "posthaste",
        description = "An order service around a transactional outbox. Errors are RFC 9457 problems with the \
                       additional members `code`, `message`, `requestId`, `timestamp` and `errors`. Times are RFC 3339 in UTC.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/", description = "This service")),
    tags(
        (name = "orders", description = "Create, read, change and cancel orders"),
        (name = "topics", description = "Publish events, read topics without a broker's client, and commit the offsets of consumer groups"),
        (name = "webhooks", description = "Subscribe endpoints of other systems to topics"),
        (name = "health", description = "Probes and component health"),
        (name = "metrics", description = "Metrics of the process"),
        (name = "admin", description = "Operators only"),
    ),
    paths(
        create::create, read::list, page::page, read::find,
        change::change_status, change::cancel,
        publish::publish, records::read, offsets::find, offsets::commit,
        lookups::list, lookups::find, changes::create, changes::change, changes::delete, changes::rotate,
        deliveries::list, deliveries::test, deliveries::redrive,
        webhook_dead_letters::list, webhook_dead_letters::redrive,
        probes::livez, probes::readyz, probes::startupz,
        actuator::health, actuator::liveness, actuator::readiness_health, actuator::component,
        actuator::info,
        metrics::metrics, metrics::prometheus, metrics::metric_names, metrics::metric,
        actors::list, actors::inject,
        outbox::rows, outbox::row, outbox::retry, outbox::park,
        diagnosis::diagnose, redrive::redrive, audit::list,
        dead_letters::list, dead_letters::find, dead_letters::redrive, dead_letters::redrive_one,
        partitions::list, live_events::stream,
    ),
    components(schemas(ProblemBody<'_>, FieldError, record_body::TopicRecordBody<'_>, record_body::CursorLine)),
    modifiers(&CommonResponses, &NoNulls),
)]
struct ApiDocument;

/// Adds the error responses that most operations share.
struct CommonResponses;

/// Error responses by status; [`CommonResponses`] decides which operations have them.
const ERROR_RESPONSES: [(&str, &str); 11] = [
    ("401", "No valid token"),
    ("403", "The token's roles do not allow this"),
    ("406", "Accept excludes JSON"),
    ("408", "The body did not arrive in time"),
    ("413", "The body is larger than 1 MiB"),
    ("414", "The target is longer than 8 KiB"),
    ("415", "The body is not unencoded application/json"),
    ("431", "The headers are larger than 64 KiB"),
    ("429", "Too many requests; retry after Retry-After seconds"),
    ("500", "The outcome is unknown"),
    ("503", "Nothing was changed; retry after Retry-After seconds"),
];

impl Modify for CommonResponses {
    fn modify(&self, document: &mut Document) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        for (path, item) in &mut document.paths.paths {
            let other_formats = ["/admin/events", "/actuator/prometheus", "/topics/{topic}/records"];
            let returns_json = !other_formats.contains(&path.as_str());
            let operations = [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                let (takes_body, open) = (operation.request_body.is_some(), operation.security.is_none());
                for (status, description) in ERROR_RESPONSES {
                    let applies = match status {
                        "408" | "413" | "415" => takes_body,
                        "406" => returns_json && (!open || path.starts_with("/actuator/")),
                        "414" | "431" => true,
                        _ => !open,
                    };
                    if applies {
                        let response = operation.responses.responses.entry(status.to_owned());
                        response.or_insert_with(|| error_response(status, description));
                    }
                }
            }
        }
    }
}

/// Removes `null` from parameters and request bodies, which annotations write for what may be absent: the code refuses a null there.
struct NoNulls;

impl Modify for NoNulls {
    fn modify(&self, document: &mut Document) {
        for item in document.paths.paths.values_mut() {
            for operation in [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten() {
                let parameters = operation.parameters.iter_mut().flatten().filter_map(inline_value);
                parameters.filter_map(|parameter| parameter.schema.as_mut()).for_each(remove_null);
                let contents = operation
                    .request_body
                    .iter_mut()
                    .filter_map(inline_value)
                    .flat_map(|body| body.content.values_mut());
                contents.filter_map(inline_value).filter_map(|content| content.schema.as_mut()).for_each(remove_null);
            }
        }
    }
}

/// A value that is inline, not a reference; annotations write no references here.
fn inline_value<T>(part: &mut RefOr<T>) -> Option<&mut T> {
    match part {
        RefOr::T(part) => Some(part),
        RefOr::Ref(_) => None,
    }
}

fn remove_null(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::OneOf(choices)) => {
            choices.items.retain(|choice| !is_null(choice));
            if let [only] = choices.items.as_slice() {
                *schema = only.clone();
            }
        }
        RefOr::T(Schema::Object(object)) => {
            if let SchemaType::Array(types) = &mut object.schema_type {
                types.retain(|schema_type| *schema_type != Type::Null);
                if let [only] = types.as_slice() {
                    object.schema_type = only.clone().into();
                }
            }
        }
        _ => {}
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}

fn error_response(status: &str, description: &str) -> RefOr<utoipa::openapi::Response> {
    let content = Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
    let mut response = ResponseBuilder::new().description(description).content("application/problem+json", content);
    if matches!(status, "429" | "503") {
        let seconds = HeaderBuilder::new().description(Some("Seconds")).build();
        response = response.header("Retry-After", seconds);
    }
    RefOr::T(response.build())
}

/// The OpenAPI document as indented JSON.
pub fn openapi_json() -> String {
    to_json(&document())
}

/// The document of an instance that serves no orders.
pub(crate) fn openapi_json_without_orders() -> String {
    let mut document = document();
    document.paths.paths.retain(|path, _| !path.starts_with("/orders"));
    to_json(&document)
}

fn document() -> utoipa::openapi::OpenApi {
    let mut document = ApiDocument::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document
}

fn to_json(document: &utoipa::openapi::OpenApi) -> String {
    document.to_pretty_json().expect("the document is plain data")
}
