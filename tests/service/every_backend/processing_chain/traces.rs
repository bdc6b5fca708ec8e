//! Traces: the spans of one order from its request to its consumer, as a collector receives them, and what a collector that fails costs.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::collector::{CollectedSpan, Collector};
use crate::harness::endpoint::{Endpoint, EndpointResponse};
use crate::harness::http::{Response, tea_order};
use crate::harness::metrics::{await_metric, metric};
use crate::harness::process::{LONG_LEASE, Posthaste};

/// A new consumer group, and the retries of an export.
const WAIT_MAX: Duration = Duration::from_secs(60);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";
/// Numbers of the kinds of spans in OTLP.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
const PRODUCER: u64 = 4;
const CONSUMER: u64 = 5;

fn start(backend: &Backend, endpoint: &str, more: &[(&str, &str)]) -> Posthaste {
    Posthaste::start(backend, &[&[("POSTHASTE__TRACING__ENDPOINT", endpoint), LONG_LEASE], more].concat())
}

fn place_order(service: &Posthaste, headers: &[(&str, &str)]) -> Response {
    let created = service.http.post("/orders", &service.http.user(), headers, &tea_order(1));
    assert_eq!(created.status, 201, "{}", created.text);
    created
}

/// The only span of a trace with this name, as soon as it arrives.
#[track_caller]
fn span(collector: &Collector, trace: &str, name: &str) -> CollectedSpan {
    let of_trace = || collector.named(name).into_iter().filter(|span| span.trace_id == trace).collect::<Vec<_>>();
    let found = until(&format!("the span {name} of {trace}"), WAIT_MAX, || Some(of_trace()).filter(|s| !s.is_empty()));
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// The headers of the only record of an order.
fn record_headers(backend: &Backend, order: &Value) -> Value {
    let records: Vec<Value> = backend.events().into_iter().filter(|record| record["key"] == *order).collect();
    assert_eq!(records.len(), 1, "{records:?}");
    records[0]["headers"].clone()
}

#[test]
fn one_trace_runs_from_the_request_through_actor_commit_and_relay_to_the_consumer() {
    let (backend, collector) = (Backend::new(), Collector::start());
    let secret = [("POSTHASTE__TRACING__HEADERS", "authorization=Bearer hidden"), ("POSTHASTE__REGION__ID", "eu-1")];
    let service = start(&backend, &collector.endpoint(), &secret);
    let topic = backend.topic("order.events");

    let created = place_order(&service, &[("X-Request-Id", "place-1")]);

    let request = until("the request's span", WAIT_MAX, || collector.named("POST /orders").pop());
    let trace = request.trace_id.as_str();
    let [actor, commit] = ["OrderAggregate create", "store commit"].map(|name| span(&collector, trace, name));
    let publish = span(&collector, trace, &format!("publish {topic}"));
    let consume = span(&collector, trace, &format!("consume {topic}"));
    let order = &created.json()["id"];
    let kinds = [&request, &actor, &commit, &publish, &consume].map(|span| span.kind);
    assert_eq!(kinds, [SERVER, INTERNAL, CLIENT, PRODUCER, CONSUMER]);
    assert_eq!((request.parent.as_str(), &actor.parent, &commit.parent), ("", &request.span_id, &actor.span_id));
    assert_eq!((&publish.parent, &consume.parent), (&request.span_id, &request.span_id));
    let carried = &record_headers(&backend, order)["traceparent"];
    assert_eq!(*carried, format!("00-{trace}-{}-01", request.span_id), "the row stores the request's span");

    assert_eq!(
        (&request.attributes["http.route"], &request.attributes["posthaste.request_id"]),
        (&json!("/orders"), &json!("place-1"))
    );
    assert_eq!((request.number("http.response.status_code"), &actor.attributes["posthaste.order_id"]), (201.0, order));
    assert!(actor.number("posthaste.mailbox.wait_ms") >= 0.0 && publish.number("posthaste.token") >= 1.0);
    assert!(publish.number("posthaste.partition") >= 0.0 && publish.number("messaging.kafka.offset") >= 0.0);
    assert_eq!((publish.number("posthaste.attempt"), consume.number("posthaste.attempt")), (1.0, 1.0));
    for span in [&publish, &consume] {
        assert_eq!((&span.attributes["messaging.destination.name"], span.is_error), (&json!(topic), false));
        assert_eq!(span.attributes["messaging.kafka.message.key"], *order);
    }
    let resource = collector.resource();
    assert_eq!((&resource["service.name"], &resource["posthaste.region"]), (&json!("posthaste"), &json!("eu-1")));
    assert_eq!(collector.headers()["authorization"], "Bearer hidden");
    for private in ["Tea", "ann", service.http.user().as_str(), "hidden"] {
        assert!(!collector.text().contains(private), "{private} is in a span");
    }
    // The service counts spans after the collector has accepted them.
    await_metric(&service.http, "spans_exported_total", WAIT_MAX, |exported| exported >= 5.0);
}

#[test]
fn a_clients_trace_is_continued_and_its_headers_reach_the_record_unchanged() {
    let (backend, collector) = (Backend::new(), Collector::start());
    let service = start(&backend, &collector.endpoint(), &[]);
    let (parent, state) = (format!("00-{TRACE}-{CLIENT_SPAN}-01"), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
    let topic = backend.topic("order.events");

    let created = place_order(&service, &[("traceparent", &parent), ("tracestate", state)]);

    let request = span(&collector, TRACE, "POST /orders");
    let actor = span(&collector, TRACE, "OrderAggregate create");
    let publish = span(&collector, TRACE, &format!("publish {topic}"));
    let consume = span(&collector, TRACE, &format!("consume {topic}"));
    assert_eq!((request.parent.as_str(), &actor.parent), (CLIENT_SPAN, &request.span_id));
    assert_eq!((publish.parent.as_str(), consume.parent.as_str()), (CLIENT_SPAN, CLIENT_SPAN));
    let headers = record_headers(&backend, &created.json()["id"]);
    assert_eq!((&headers["traceparent"], &headers["tracestate"]), (&json!(parent), &json!(state)));
}

#[test]
fn traces_that_are_not_sampled_export_nothing_and_are_passed_on_unchanged() {
    let (backend, collector) = (Backend::new(), Collector::start());
    let service = start(&backend, &collector.endpoint(), &[("POSTHASTE__TRACING__SAMPLE_RATIO", "0")]);
    let unsampled = "00-11111111111111111111111111111111-2222222222222222-00";
    let sampled = format!("00-{TRACE}-{CLIENT_SPAN}-01");

    let without = place_order(&service, &[]);
    let malformed = place_order(&service, &[("traceparent", "00-nonsense"), ("tracestate", "a=1")]);
    let refused = place_order(&service, &[("traceparent", unsampled), ("tracestate", "a=1")]);
    service.drain();
    place_order(&service, &[("traceparent", &sampled)]);

    span(&collector, TRACE, &format!("consume {}", backend.topic("order.events")));
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace_id == TRACE), "{spans:?}");
    for created in [&without, &malformed] {
        let headers = record_headers(&backend, &created.json()["id"]);
        assert_eq!((&headers["traceparent"], &headers["tracestate"]), (&Value::Null, &Value::Null), "{headers}");
    }
    let headers = record_headers(&backend, &refused.json()["id"]);
    assert_eq!((&headers["traceparent"], &headers["tracestate"]), (&json!(unsampled), &json!("a=1")));
}

#[test]
fn events_of_other_services_and_calls_of_webhooks_are_spans_of_their_trace() {
    let (backend, collector) = (Backend::new(), Collector::start());
    let (endpoint, topic) = (Endpoint::start(EndpointResponse::Status(202)), backend.topic("customers"));
    let settings = [
        ("POSTHASTE__BROKER__TOPICS", topic.as_str()),
        ("POSTHASTE__WEBHOOKS__PRIVATE_ADDRESSES", "true"),
        ("POSTHASTE__WEBHOOKS__REFRESH", "200ms"),
    ];
    let service = start(&backend, &collector.endpoint(), &settings);
    let subscription = json!({"url": endpoint.url(), "topics": [topic]});
    let subscribed = service.http.post("/webhooks", &service.http.admin(), &[], &subscription);
    assert_eq!(subscribed.status, 201, "{}", subscribed.text);

    let event = json!({"topic": topic, "key": "7", "type": "CustomerMoved", "payload": {"street": "hidden"}});
    let parent = format!("00-{TRACE}-{CLIENT_SPAN}-01");
    let publisher = service.http.token("shop", "PUBLISHER");
    let accepted = service.http.post("/events", &publisher, &[("traceparent", &parent)], &event);

    assert_eq!(accepted.status, 201, "{}", accepted.text);
    let request = span(&collector, TRACE, "POST /events");
    let intake = span(&collector, TRACE, "EventIntake publish");
    let commit = span(&collector, TRACE, "store commit");
    let publish = span(&collector, TRACE, &format!("publish {topic}"));
    let call = span(&collector, TRACE, "deliver to webhook");
    assert_eq!((&intake.parent, &commit.parent), (&request.span_id, &intake.span_id));
    assert_eq!((publish.parent.as_str(), call.parent.as_str(), call.kind), (CLIENT_SPAN, CLIENT_SPAN, CLIENT));
    assert_eq!((intake.number("posthaste.events"), call.number("http.response.status_code")), (1.0, 202.0));
    assert_eq!(call.attributes["posthaste.webhook"], subscribed.json()["id"]);
    assert_eq!(endpoint.received()[0].headers["traceparent"], parent);
    for private in ["hidden", "street", endpoint.url().as_str(), "shop"] {
        assert!(!collector.text().contains(private), "{private} is in a span");
    }
}

#[test]
fn every_attempt_of_a_failing_handler_is_a_span_of_the_trace() {
    let (backend, collector) = (Backend::new(), Collector::start());
    let endpoint = Endpoint::start(EndpointResponse::Status(503));
    let url = endpoint.url();
    let settings = [
        ("POSTHASTE__CONSUMER__HANDLER__ORDER_CREATED", "post"),
        ("POSTHASTE__CONSUMER__URL__ORDER_CREATED", url.as_str()),
        ("POSTHASTE__CONSUMER__ATTEMPTS_MAX__ORDER_CREATED", "2"),
    ];
    let service = start(&backend, &collector.endpoint(), &settings);
    let topic = backend.topic("order.events");

    place_order(&service, &[("traceparent", &format!("00-{TRACE}-{CLIENT_SPAN}-01"))]);

    let first = span(&collector, TRACE, &format!("consume {topic}"));
    let second = span(&collector, TRACE, &format!("consume {topic}-retry-0"));
    for (span, attempt, outcome) in [(&first, 1.0, "retried"), (&second, 2.0, "dead_lettered")] {
        assert!(span.is_error && span.parent == CLIENT_SPAN, "{span:?}");
        assert_eq!((span.number("posthaste.attempt"), &span.attributes["error.type"]), (attempt, &json!(outcome)));
    }
}

#[test]
fn an_unavailable_collector_loses_only_spans_and_is_logged_once() {
    let (backend, address) = (Backend::new(), Collector::unused_address());
    let service = start(&backend, &format!("http://{address}"), &[("POSTHASTE__TRACING__QUEUE", "8")]);

    for _ in 0..20 {
        place_order(&service, &[]);
    }

    await_metric(&service.http, "spans_dropped_total{reason=\"queue\"}", WAIT_MAX, |dropped| dropped >= 1.0);
    await_metric(&service.http, "spans_dropped_total{reason=\"collector\"}", WAIT_MAX, |dropped| dropped >= 1.0);
    service.drain();
    let logged = until("the failure is logged", WAIT_MAX, || {
        Some(service.logged("span_export_failed").len()).filter(|lines| *lines > 0)
    });
    assert_eq!(logged, 1);
    assert_eq!(metric(&service.http, "spans_exported_total"), 0.0);

    let collector = Collector::start_at(address);
    until("spans are exported again", WAIT_MAX, || {
        place_order(&service, &[]);
        service.logged("span_export_recovered").pop()
    });
    let recovered = service.logged("span_export_recovered");
    assert!(recovered.len() == 1 && recovered[0]["dropped"].as_u64() >= Some(2), "{recovered:?}");
    assert!(!collector.spans().is_empty());

    collector.set_status(400);
    until("the refusal is logged", WAIT_MAX, || {
        place_order(&service, &[]);
        (service.logged("span_export_failed").len() == 2).then_some(())
    });
    let refused = service.logged("span_export_failed");
    assert!(refused[1]["error"].as_str().expect("text").contains("status 400"), "{refused:?}");
}

#[test]
fn a_stop_exports_the_spans_that_wait() {
    let (backend, collector) = (Backend::new(), Collector::start());
    let service = start(&backend, &collector.endpoint(), &[]);

    let orders: Vec<Response> = (0..5).map(|_| place_order(&service, &[])).collect();
    assert!(service.stop().success());

    let exported = collector.named("OrderAggregate create");
    let exported: Vec<&Value> = exported.iter().map(|span| &span.attributes["posthaste.order_id"]).collect();
    assert!(orders.iter().all(|order| exported.contains(&&order.json()["id"])), "{exported:?}");
    assert_eq!(collector.named("POST /orders").len(), 5);
}
