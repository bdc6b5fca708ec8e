//! `POST /events`: the forms of events, and what is refused.
use std::time::Duration;

use actix_web::http::header::CONTENT_TYPE;
use actix_web::test::TestRequest;
use app::error::CommandError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::EventId;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::test_server::{HeaderPair, TestResponse, TestServer, bearer, claims, mint};

const JSON: &str = "application/json";
const CLOUD_EVENT: &str = "application/cloudevents+json";
const ID: &str = "0190163d-8694-739b-aea5-966c26f8ad91";

fn publisher() -> HeaderPair {
    bearer(&mint(&claims("shop", json!(["PUBLISHER"]))))
}

async fn publish(server: &TestServer, uri: &str, content_type: &str, body: impl Into<Vec<u8>>) -> TestResponse {
    let request = TestRequest::post().uri(uri).insert_header(publisher()).insert_header((CONTENT_TYPE, content_type));
    server.send(request.set_payload(body.into())).await
}

fn event() -> Value {
    json!({"topic": "customers", "key": "7", "type": "CustomerMoved", "payload": {"street": "Main Street 12"}})
}

/// The event with these members; a null removes one.
fn event_with(members: Value) -> Value {
    let mut event = event();
    for (name, value) in members.as_object().expect("an object").clone() {
        if value.is_null() {
            event.as_object_mut().expect("an object").remove(&name);
        } else {
            event[name] = value;
        }
    }
    event
}

#[actix_web::test]
async fn an_event_in_json_is_published_as_it_was_written() {
    let server = TestServer::new();
    // The text of the payload is the value of the record: neither order nor form of a number may change.
    let body = format!(
        r#"{{"topic": "customers", "key": "müller/7", "type": "CustomerMoved", "payload": {{"b": 1.50, "a": [ ]}},
             "headers": {{"tenant": "blue"}}, "contentType": "application/vnd.shop+json", "eventId": "{ID}"}}"#
    );

    let reply = publish(&server, "/events", JSON, body).await;

    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(reply.json(), json!({"events": [{"eventId": ID, "duplicate": false}]}));
    let command = server.dispatch.published.lock()[0].clone();
    let event = &command.events[0];
    assert_eq!(
        (&*event.topic, event.key.to_string().as_str(), &*event.event_type),
        ("customers", "müller/7", "CustomerMoved")
    );
    assert_eq!(&*event.payload, br#"{"b": 1.50, "a": [ ]}"#);
    assert_eq!(event.headers.to_json().as_deref(), Some(r#"{"tenant":"blue"}"#));
    assert_eq!(event.content_type.as_deref(), Some("application/vnd.shop+json"));
    assert_eq!(command.subject.as_str(), "shop");
}

#[actix_web::test]
async fn an_array_is_a_batch_and_base64_is_a_value_of_bytes() {
    let server = TestServer::new();
    let bytes =
        event_with(json!({"payload": null, "payloadBase64": STANDARD.encode([0, 159]), "contentType": "image/png"}));

    let reply = publish(&server, "/events", JSON, json!([event(), bytes]).to_string()).await;

    assert_eq!((reply.status, reply.json()["events"].as_array().map(Vec::len)), (201, Some(2)));
    let command = server.dispatch.published.lock()[0].clone();
    assert_eq!(&*command.events[1].payload, [0, 159]);
}

#[actix_web::test]
async fn values_that_the_relay_would_park_are_refused_by_name() {
    let server = TestServer::new();
    let cases = [
        (json!({"topic": "a/b"}), "topic"),
        (json!({"topic": null}), "topic"),
        (json!({"topic": "order.events"}), "topic"),
        (json!({"key": ""}), "key"),
        (json!({"key": "k".repeat(1_025)}), "key"),
        (json!({"key": 7}), "key"),
        (json!({"type": "a\nb"}), "type"),
        (json!({"payload": null}), "payload"),
        (json!({"payloadBase64": "AA=="}), "payload"),
        (json!({"payload": null, "payloadBase64": "A"}), "payloadBase64"),
        (json!({"headers": {"ce_id": "1"}}), "headers"),
        (json!({"headers": {"tenant": 7}}), "headers"),
        (json!({"headers": {"tenant": "\u{0}"}}), "headers"),
        (json!({"contentType": ""}), "contentType"),
        (json!({"eventId": "7"}), "eventId"),
        (json!({"payload": "p".repeat(983_040)}), "payload"),
        (json!({"kind": "x"}), "the event"),
    ];
    for (members, field) in cases {
        let reply = publish(&server, "/events", JSON, event_with(members.clone()).to_string()).await;
        let problem = reply.problem(400, "BAD_REQUEST");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
    let second = json!([event(), event_with(json!({"key": ""}))]).to_string();
    let problem = publish(&server, "/events", JSON, second).await.problem(400, "BAD_REQUEST");
    assert_eq!(problem["errors"][0]["field"], "[1].key");
    let named_twice = publish(&server, "/events?topic=customers", JSON, event().to_string()).await;
    assert_eq!(named_twice.problem(400, "BAD_REQUEST")["errors"][0]["field"], "topic");
    let many = vec![event(); 1_001];
    publish(&server, "/events", JSON, json!(many).to_string()).await.problem(400, "BAD_REQUEST");
    assert!(server.dispatch.published.lock().is_empty());
}

#[actix_web::test]
async fn events_of_one_topic_too_many_are_refused_together() {
    let server = TestServer::new();
    let events = json!([event(), event_with(json!({"topic": "one-too-many"}))]).to_string();

    let problem = publish(&server, "/events", JSON, events).await.problem(409, "CONFLICT");

    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("there are 1000 topics")), "{problem}");
    assert!(server.dispatch.published.lock().is_empty());
}

#[actix_web::test]
async fn topics_for_which_nothing_was_written_are_released() {
    let server = TestServer::new();
    let two = json!([event(), event_with(json!({"topic": "invoices"}))]).to_string();
    let released = async |failure: CommandError| {
        *server.dispatch.fails.lock() = Some(failure);
        let reply = publish(&server, "/events", JSON, two.clone()).await;
        (reply.status, std::mem::take(&mut *server.topic_log.released.lock()))
    };

    let both = || vec!["customers".to_owned(), "invoices".to_owned()];
    assert_eq!(released(CommandError::KeyReused).await, (422, both()));
    assert_eq!(released(CommandError::Busy).await, (503, both()));
    assert_eq!(released(CommandError::Unknown("no reply".to_owned())).await, (500, Vec::new()), "they may be written");
    assert_eq!(publish(&server, "/events", JSON, two.clone()).await.status, 201);
    assert_eq!(*server.topic_log.released.lock(), Vec::<String>::new());
    server.dispatch.known_events.lock().push(EventId::parse(ID).expect("a UUID"));
    let twice = json!([event_with(json!({"eventId": ID})), event_with(json!({"topic": "invoices"}))]).to_string();
    assert_eq!(publish(&server, "/events", JSON, twice).await.status, 201);
    assert_eq!(*server.topic_log.released.lock(), ["customers"], "a duplicate is not written");
}

/// The server drops the future of a request when its client disconnects.
#[actix_web::test]
async fn topics_of_a_client_that_disconnected_are_released() {
    let server = TestServer::new();
    tokio::time::pause();
    *server.dispatch.is_paused.lock() = true;
    let request = publish(&server, "/events", JSON, event().to_string());

    let gone = timeout(Duration::from_millis(100), request).await;

    assert!(gone.is_err(), "the command waits in its mailbox");
    assert_eq!(*server.topic_log.released.lock(), Vec::<String>::new());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*server.topic_log.released.lock(), ["customers"], "the command has expired");
}

#[actix_web::test]
async fn a_cloud_event_in_structured_mode_is_published() {
    let server = TestServer::new();
    let body = json!({"specversion": "1.0", "id": "A-1", "source": "/shop", "type": "com.example.moved", "subject": "7",
        "time": "2026-11-24T05:00:00Z", "datacontenttype": "text/plain", "data": "Main Street", "priority": 3,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"});

    let first = publish(&server, "/events?topic=customers", CLOUD_EVENT, body.to_string()).await;
    let again =
        publish(&server, "/events?topic=customers", "application/cloudevents-batch+json", json!([body]).to_string())
            .await;

    assert_eq!((first.status, again.status), (201, 201), "{}", first.text());
    assert_eq!(first.json(), again.json(), "source and id identify an event");
    let event = server.dispatch.published.lock()[0].events[0].clone();
    assert_eq!(
        (event.key.to_string().as_str(), &*event.event_type, &*event.payload),
        ("7", "com.example.moved", &b"Main Street"[..])
    );
    let headers: Value = serde_json::from_str(&event.headers.to_json().expect("headers")).expect("JSON");
    let expected = json!({"x-ce-id": "A-1", "x-ce-source": "/shop", "x-ce-subject": "7", "x-ce-time": "2026-11-24T05:00:00Z",
        "x-ce-priority": "3"});
    assert_eq!(headers, expected);
    assert_eq!(event.content_type.as_deref(), Some("text/plain"));
    assert!(event.trace.is_some_and(|trace| trace.parent.ends_with("b7ad6b7169203331-01")));
}

#[actix_web::test]
async fn attributes_in_headers_do_not_make_a_structured_cloud_event_a_binary_one() {
    let server = TestServer::new();
    let event = |id: &str| json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "moved", "subject": "7", "data": 1});
    let send = async |content_type: &'static str, body: Value| {
        let headers =
            [("ce-specversion", "1.0"), ("ce-id", "h"), ("ce-source", "/h"), ("ce-type", "h"), ("ce-subject", "h")];
        let request = TestRequest::post().uri("/events?topic=customers").insert_header(publisher());
        let request = headers.into_iter().fold(request, |request, header| request.insert_header(header));
        server.send(request.insert_header((CONTENT_TYPE, content_type)).set_payload(body.to_string())).await
    };

    let one = send(CLOUD_EVENT, event("1")).await;
    let batch = send("Application/CloudEvents-Batch+JSON; charset=utf-8", json!([event("1"), event("2")])).await;

    assert_eq!((one.status, batch.status), (201, 201), "{} {}", one.text(), batch.text());
    let published: Vec<_> =
        server.dispatch.published.lock().iter().flat_map(|command| command.events.clone()).collect();
    let facts =
        published.iter().map(|event| (event.key.to_string(), event.event_type.to_string(), event.payload.to_vec()));
    assert_eq!(facts.collect::<Vec<_>>(), vec![("7".to_owned(), "moved".to_owned(), b"1".to_vec()); 3]);
    for unread in ["application/cloudevents+avro", "application/cloudevents+json; charset=latin1"] {
        send(unread, event("1")).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    }
}

/// A CloudEvent in binary mode.
fn binary_event(content_encoding: &'static str) -> TestRequest {
    let request = TestRequest::post().uri("/events?topic=customers").insert_header(publisher());
    let attributes = [
        ("ce-colour", "\"dark \\\"blue\\\"\""),
        ("ce-specversion", "1.0"),
        ("ce-id", ID),
        ("ce-source", "/shop"),
        ("ce-type", "com.example.moved"),
        ("ce-partitionkey", "M%C3%BCller"),
        ("content-type", "image/png"),
        ("content-encoding", content_encoding),
    ];
    attributes.into_iter().fold(request, |request, header| request.insert_header(header)).set_payload(vec![0, 159])
}

#[actix_web::test]
async fn a_body_with_a_content_encoding_is_refused_in_binary_mode_too() {
    let server = TestServer::new();

    server.send(binary_event("gzip")).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");

    assert!(server.dispatch.published.lock().is_empty());
}

#[actix_web::test]
async fn a_cloud_event_in_binary_mode_is_published() {
    let server = TestServer::new();

    let reply = server.send(binary_event("identity")).await;

    assert_eq!((reply.status, reply.json()["events"][0]["eventId"].clone()), (201, json!(ID)), "{}", reply.text());
    let event = server.dispatch.published.lock()[0].events[0].clone();
    assert_eq!((event.key.to_string().as_str(), &*event.payload), ("Müller", &[0, 159][..]));
    let headers: Value = serde_json::from_str(&event.headers.to_json().expect("headers")).expect("JSON");
    assert_eq!(headers["x-ce-colour"], "dark \"blue\"", "a quoted string is unescaped");
}

#[actix_web::test]
async fn cloud_events_that_miss_an_attribute_are_refused_by_name() {
    let server = TestServer::new();
    let event = json!({"specversion": "1.0", "id": "1", "source": "/shop", "type": "t", "subject": "7", "data": 1});
    for (name, value, field) in [
        ("specversion", json!("0.3"), "specversion"),
        ("id", json!(""), "id"),
        ("source", json!(null), "source"),
        ("type", json!(null), "type"),
        ("subject", json!(null), "partitionkey"),
        ("data_base64", json!("AA=="), "data"),
        ("extension", json!({}), "extension"),
    ] {
        let mut event = event.clone();
        event[name] = value;
        let reply = publish(&server, "/events?topic=customers", CLOUD_EVENT, event.to_string()).await;
        assert_eq!(reply.problem(400, "BAD_REQUEST")["errors"][0]["field"], field);
    }
    let reply = publish(&server, "/events", CLOUD_EVENT, event.to_string()).await;
    assert_eq!(reply.problem(400, "BAD_REQUEST")["errors"][0]["field"], "topic");
}

#[actix_web::test]
async fn events_need_the_role_of_a_publisher_and_a_known_form() {
    let server = TestServer::new();
    let body = event().to_string();
    let send = async |roles: Value, content_type: &'static str| {
        let request = TestRequest::post().uri("/events").insert_header(bearer(&mint(&claims("ann", roles))));
        server.send(request.insert_header((CONTENT_TYPE, content_type)).set_payload(body.clone())).await
    };

    send(json!(["USER", "CONSUMER"]), JSON).await.problem(403, "FORBIDDEN");
    assert_eq!(send(json!(["ADMIN"]), JSON).await.status, 201);
    send(json!(["PUBLISHER"]), "text/plain").await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
}
