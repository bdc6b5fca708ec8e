//! `POST /events`: other services put their events into the outbox.
mod attribute_header;
mod cloud_events;
mod event_values;
mod json_event;

use std::collections::BTreeSet;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use app::commands::publish_events::fingerprint;
use app::dispatch::{AcceptedEvent, EventsPublished, IdempotencyKey, PublishEvents, SubmittedEvent};
use app::error::CommandError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ErrorCode, Problem, ProblemBody};
use crate::request::context::RequestContext;
use crate::request::headers::single_value;
use crate::request::idempotency_key::idempotency_key;
use crate::request::json;
use crate::request::media_types::{is_json, is_unencoded};
use crate::request::query::Query;
use crate::request::response::{AsText, RouteResult, json_response};
pub(crate) use json_event::EventsBody;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The media types of CloudEvents in structured mode: one, and a batch.
const CLOUD_EVENTS: [&str; 2] = ["application/cloudevents+json", "application/cloudevents-batch+json"];
/// Most events of a request: a batch holds the locks of its keys until it commits.
const EVENTS_MAX: usize = 1_000;

/// The events of a request, in its order.
#[derive(Serialize, ToSchema)]
#[schema(as = PublishedEvents)]
pub(crate) struct PublishedBody {
    events: Vec<PublishedEventBody>,
}

/// An event of a request.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PublishedEvent)]
pub(crate) struct PublishedEventBody {
    /// The id that the event has in the outbox, in the record and in every consumer's inbox.
    #[schema(value_type = String, format = "uuid")]
    event_id: AsText<domain::EventId>,
    /// Whether the event was published before; it is left as it is.
    duplicate: bool,
}

/// Publish events
///
/// All events of a request are committed together or not at all. A relay sends them: once, and those of one key and topic in the order of
/// their commits. An event with an id that was published before is published once. Forms: a JSON object or an array of them; a CloudEvent in
/// structured mode (`application/cloudevents+json`), a batch of them (`application/cloudevents-batch+json`), or one in binary mode
/// (`ce-` headers and any content type). CloudEvents name their topic in the query, and their key in `partitionkey` or `subject`.
#[utoipa::path(post, path = "/events", tag = "topics", operation_id = "publishEvents", security(("bearer" = [])),
    params(
        ("topic" = Option<String>, Query, max_length = 249, pattern = "^[A-Za-z0-9._-]*$", description = "The topic of CloudEvents; events in JSON name their own"),
        ("Idempotency-Key" = Option<String>, Header, max_length = 128,
         description = "Identifies this request across retries, quoted or bare; `X-Idempotency-Key` is the same"),
        ("X-Request-Id" = Option<String>, Header, description = "Carried on with the events when it matches `[A-Za-z0-9._-]{1,128}`, else replaced"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context, passed on with the events"),
    ),
    request_body(content = EventsBody<'_>, content_type = "application/json",
        example = json!({"topic": "customers", "key": "7", "type": "CustomerMoved", "payload": {"street": "Main Street 12"}})),
    responses(
        (status = 201, description = "The events are in the outbox", body = PublishedBody, headers(
            ("Idempotent-Replayed" = bool, description = "Present when an earlier request with this key published them"))),
        (status = 400, description = "Not a valid event or key", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 409, description = "The embedded broker has as many topics as permitted", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 415, description = "Not a form of events", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 422, description = "The key was used with other events", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 501, description = "Not without an outbox", body = ProblemBody<'_>, content_type = "application/problem+json"),
    ))]
pub(crate) async fn publish(context: RequestContext) -> RouteResult {
    let own_topics = context.state.options.own_topics.as_ref().ok_or_else(Problem::no_outbox)?;
    let events = events(&context)?;
    refuse_own_topics(&events, own_topics)?;
    let key = idempotency_key(context.headers())?;
    let idempotency_key = key.map(|key| IdempotencyKey { key, fingerprint: fingerprint(&events) });
    let subject = context.identity()?.subject.clone();
    let (span, request_id) = (context.parent_span(), Some(Arc::clone(&context.request_id)));
    let permit = context.state.concurrency_limiters.changes.acquire().await?;
    admit_topics(&context, &events).await?;
    let topics: Vec<Arc<str>> = events.iter().map(|event| Arc::clone(&event.topic)).collect();
    let command = PublishEvents { subject, events, idempotency_key, span, request_id };
    let published = context.state.dispatch.publish(command, context.time_left()).await;
    if let Some(reads) = &context.state.topic_reads {
        reads.release_topics(&Vec::from_iter(unwritten(&topics, &published)));
    }
    permit.release(matches!(&published, Ok(published) if !published.replayed));
    Ok(response(&published?))
}

/// The relay creates a topic with its first record, and could only park the events of one for which there is no room.
async fn admit_topics(context: &RequestContext, events: &[SubmittedEvent]) -> Result<(), Problem> {
    let Some(topics) = &context.state.topic_reads else { return Ok(()) };
    let names: BTreeSet<&str> = events.iter().map(|event| &*event.topic).collect();
    Ok(topics.admit_topics(&Vec::from_iter(names)).await?)
}

/// The topics of the events for which the command has certainly written nothing.
fn unwritten<'a>(topics: &'a [Arc<str>], published: &Result<EventsPublished, CommandError>) -> BTreeSet<&'a str> {
    let all = topics.iter().map(|topic| &**topic).collect();
    match published {
        Err(CommandError::Unknown(_)) => BTreeSet::new(),
        Err(_) => all,
        Ok(published) => {
            let new = topics.iter().zip(&published.events).filter(|(_, event)| event.is_new);
            let written: BTreeSet<&str> = new.map(|(topic, _)| &**topic).collect();
            all.difference(&written).copied().collect()
        }
    }
}

fn response(published: &EventsPublished) -> actix_web::HttpResponse {
    let event = |event: &AcceptedEvent| PublishedEventBody { event_id: AsText(event.id), duplicate: !event.is_new };
    let body = PublishedBody { events: published.events.iter().map(event).collect() };
    let mut response = json_response(StatusCode::CREATED, &body);
    if published.replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// The events of the request, in any of the accepted forms.
fn events(context: &RequestContext) -> Result<Vec<SubmittedEvent>, Problem> {
    let (headers, trace) = (context.headers(), context.trace());
    let content_type = single_value(headers, CONTENT_TYPE.as_str());
    let query = context.query();
    // The media type decides: a CloudEvent in structured mode may repeat its attributes in headers.
    if CLOUD_EVENTS.iter().any(|media_type| is_unencoded(headers, media_type)) {
        let topic = query_topic(&query)?;
        return each(&context.body, |path, member| cloud_events::structured(path, member, &topic, trace.clone()));
    }
    if cloud_events::is_binary(headers) {
        let topic = query_topic(&query)?;
        return Ok(vec![cloud_events::binary(headers, content_type, &context.body, &topic, trace)?]);
    }
    if is_json(headers) {
        if query.get("topic")?.is_some() {
            return Err(Problem::field("topic", "is a member of each event in JSON, not a parameter of the query"));
        }
        return each(&context.body, |path, member| json_event::read(path, member, trace.clone()));
    }
    let message = "the body must be application/json, application/cloudevents+json or application/cloudevents-batch+json \
                   without a content encoding, or a CloudEvent in binary mode (with the header ce-specversion)";
    Err(Problem::new(ErrorCode::UnsupportedMediaType, message))
}

/// Reads every element; `path` is the prefix of field names in errors.
fn each<'a>(
    body: &'a [u8],
    read: impl Fn(&str, json::JsonMember<'a>) -> Result<SubmittedEvent, Problem>,
) -> Result<Vec<SubmittedEvent>, Problem> {
    match json::elements(body)? {
        json::Elements::One(member) => Ok(vec![read("", member)?]),
        json::Elements::Many(members) if members.len() > EVENTS_MAX => {
            Err(Problem::bad_request(format!("a request has at most {EVENTS_MAX} events")))
        }
        json::Elements::Many(members) => {
            members.into_iter().enumerate().map(|(index, member)| read(&format!("[{index}]."), member)).collect()
        }
    }
}

fn query_topic(query: &Query<'_>) -> Result<Arc<str>, Problem> {
    query.reject_unknown(&["topic"])?;
    let topic =
        query.non_empty("topic")?.ok_or_else(|| Problem::field("topic", "is required in the query of CloudEvents"))?;
    event_values::topic("topic", topic)
}

/// The orders' topics have the orders' contract, and numbers that follow the orders' versions.
fn refuse_own_topics(events: &[SubmittedEvent], own_topics: &[String]) -> Result<(), Problem> {
    match events.iter().find(|event| own_topics.iter().any(|own| **own == *event.topic)) {
        None => Ok(()),
        Some(event) => {
            Err(Problem::field("topic", format!("must not be {}, which this service writes itself", event.topic)))
        }
    }
}
