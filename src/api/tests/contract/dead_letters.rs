//! The admin routes of the dead letters.
use std::sync::atomic::Ordering::SeqCst;

use kit::Backend;
use ports::broker::Record;
use serde_json::{Value, json};

use crate::support::fake_ports::KEY;
use crate::support::test_server::*;

/// Appends dead letters of one key to those of the orders as a consumer does, and returns their partition.
pub async fn dead_letter_records(server: &TestServer, count: u64) -> u32 {
    dead_letter_records_of(server, "order.events", count).await
}

/// Appends dead letters of one key to those of a topic, and returns their partition.
pub async fn dead_letter_records_of(server: &TestServer, topic: &str, count: u64) -> u32 {
    let mut partition = 0;
    for n in 0..count {
        let headers: [(&str, &[u8]); 10] = [
            ("ce_id", "0197a1f0-0000-7000-8000-000000000001".as_bytes()),
            ("ce_type", "ORDER_CREATED".as_bytes()),
            ("kafka_original-topic", topic.as_bytes()),
            ("kafka_original-partition", &7_i32.to_be_bytes()),
            ("kafka_original-offset", &42_i64.to_be_bytes()),
            ("kafka_original-timestamp", &1_000_i64.to_be_bytes()),
            ("kafka_exception-fqcn", "posthaste.HandlerFault".as_bytes()),
            ("kafka_exception-message", "not now".as_bytes()),
            ("retry_topic-attempts", &6_i32.to_be_bytes()),
            ("x-failure-type", if n % 2 == 0 { "SYSTEM" } else { "VALIDATION" }.as_bytes()),
        ];
        let record = Record {
            topic: format!("{topic}-dlt").into(),
            key: KEY.into(),
            headers: headers.into_iter().collect(),
            value: format!(r#"{{"n":{n}}}"#).into_bytes().into(),
            timestamp: domain::Timestamp::from_millis(NOW - 60_000),
        };
        partition = server.broker.broker().append(vec![record]).await.expect("appended")[0].partition;
    }
    partition
}

async fn read(server: &TestServer, path: &str) -> TestResponse {
    server.send(get(&format!("/admin/dlt{path}")).insert_header(admin())).await
}

async fn command(server: &TestServer, path: &str, body: &str) -> TestResponse {
    server.send(post(&format!("/admin/dlt{path}"), body).insert_header(admin())).await
}

#[actix_web::test]
async fn a_dead_letter_contains_its_original_position_and_failure() {
    let server = TestServer::new();
    let partition = dead_letter_records(&server, 1).await;

    let dead_letter = read(&server, &format!("/{partition}/0")).await.json();

    assert_eq!((&dead_letter["topic"], &dead_letter["key"]), (&json!("order.events-dlt"), &json!(KEY)));
    assert_eq!(
        (&dead_letter["partition"], &dead_letter["offset"], &dead_letter["attempts"]),
        (&json!(partition), &json!(0), &json!(5))
    );
    assert_eq!((&dead_letter["type"], &dead_letter["failureType"]), (&json!("ORDER_CREATED"), &json!("SYSTEM")));
    assert_eq!(
        (&dead_letter["exception"], &dead_letter["reason"]),
        (&json!("posthaste.HandlerFault"), &json!("not now"))
    );
    let original =
        json!({"topic": "order.events", "partition": 7, "offset": 42, "timestamp": "1970-01-01T00:00:01.000Z"});
    assert_eq!(
        (&dead_letter["original"], &dead_letter["value"], &dead_letter["redriven"]),
        (&original, &json!({"n": 0}), &Value::Null)
    );
    assert_eq!(dead_letter["headers"]["kafka_original-offset"], "0x000000000000002a");
    assert_eq!(dead_letter["timestamp"], "2026-01-31T11:59:00.120Z");
    for nowhere in ["/0/99", "/99/0"] {
        read(&server, nowhere).await.problem(404, "NOT_FOUND");
    }
    for bad in ["/x/0", "/0/x", "/-1/0", "/0/+1"] {
        read(&server, bad).await.problem(400, "BAD_REQUEST");
    }
}

#[actix_web::test]
async fn dead_letters_are_listed_filtered_and_paged() {
    let server = TestServer::new();
    let partition = dead_letter_records(&server, 5).await;
    let count = async |query: &str| read(&server, query).await.json()["letters"].as_array().map(Vec::len);

    assert_eq!(count("").await, Some(5));
    assert_eq!(count("?failureType=SYSTEM&olderThan=1m").await, Some(3));
    assert_eq!(count("?olderThan=2m").await, Some(0));
    assert_eq!(count(&format!("?key={KEY}&type=ORDER_CREATED&redriven=false")).await, Some(5));
    assert_eq!(count("?key=other").await, Some(0));
    assert_eq!(count("?redriven=true").await, Some(0));
    let first = read(&server, "?limit=3").await.json();
    let next = first["next"].as_str().expect("there is a next page").to_owned();
    assert_eq!(next, format!("{partition}/2@{NOW}"));
    assert_eq!(count(&format!("?after={partition}/2")).await, Some(2), "a position is a cursor, too");
    assert_eq!(
        count(&format!("?after={partition}/2@5")).await,
        Some(0),
        "all records were dead-lettered after the time in the cursor"
    );
    let second = read(&server, &format!("?limit=3&after={next}")).await.json();
    assert_eq!((second["letters"].as_array().map(Vec::len), &second["next"]), (Some(2), &Value::Null));
    for bad in ["after=x", "after=1", "failureType=x", "olderThan=5", "redriven=1", "limit=x"] {
        read(&server, &format!("?{bad}")).await.problem(400, "BAD_REQUEST");
    }
}

#[actix_web::test]
async fn dead_letters_are_redriven_once_with_operator_and_reason() {
    let server = TestServer::new();
    let partition = dead_letter_records(&server, 4).await;
    let sent = async |body: Value| command(&server, "/redrive", &body.to_string()).await.json();

    let dry = command(&server, "/redrive", "").await.json();
    assert_eq!(dry, json!({"dryRun": true, "matched": 4, "redriven": 0, "next": null}));
    let one =
        command(&server, &format!("/{partition}/1/redrive"), r#"{"dryRun":false,"reason":"by hand"}"#).await.json();
    assert_eq!((&one["redriven"]["by"], &one["redriven"]["reason"]), (&json!("root"), &json!("by hand")));
    assert_eq!(one["redriven"]["arrived"], true);
    command(&server, &format!("/{partition}/1/redrive"), r#"{"dryRun":false}"#).await.problem(409, "CONFLICT");
    let system = sent(json!({"failureType": "SYSTEM", "dryRun": false, "reason": "fixed"})).await;
    assert_eq!((&system["matched"], &system["redriven"]), (&json!(2), &json!(2)));
    let rest =
        sent(json!({"key": KEY, "type": "ORDER_CREATED", "olderThan": "5s", "limit": 10, "dryRun": false})).await;
    assert_eq!((&rest["matched"], &rest["redriven"]), (&json!(1), &json!(1)));
    assert_eq!(sent(json!({"dryRun": false})).await["matched"], 0);

    let back = server.broker.topics().read("order.events", partition, 0, 10).await.expect("read");
    let values: Vec<_> = back.iter().map(|one| String::from_utf8_lossy(&one.record.value).into_owned()).collect();
    assert_eq!(values, [r#"{"n":1}"#, r#"{"n":0}"#, r#"{"n":2}"#, r#"{"n":3}"#]);
    assert_eq!(back[0].record.headers.iter().last(), Some(("x-redriven-by", b"root".as_slice())));
    command(&server, "/0/99/redrive", "").await.problem(404, "NOT_FOUND");
    for bad in [r#"{"limit":0}"#, r#"{"after":"x"}"#, r#"{"failureType":"x"}"#, r#"{"key":1}"#, r#"{"dryRun":"no"}"#] {
        command(&server, "/redrive", bad).await.problem(400, "BAD_REQUEST");
    }
}

#[actix_web::test]
async fn later_dead_letters_of_a_key_wait_for_one_that_another_redrive_has_reserved() {
    let server = TestServer::new();
    dead_letter_records(&server, 3).await;
    server.redrives.confirmations_left.store(0, SeqCst);
    let body =
        |limit: u32, rate: Option<u32>| json!({"dryRun": false, "reason": "fixed", "limit": limit, "rate": rate});
    assert_eq!(
        command(&server, "/redrive", &body(1, None).to_string()).await.status,
        500,
        "the first is sent unconfirmed"
    );
    server.redrives.confirmations_left.store(u32::MAX, SeqCst);

    for rate in [None, Some(1_000)] {
        let report = command(&server, "/redrive", &body(2, rate).to_string()).await.json();

        assert_eq!(report, json!({"dryRun": false, "matched": 2, "redriven": 0, "held": 2, "next": null}), "{rate:?}");
    }
}

#[actix_web::test]
async fn dead_letters_of_another_topic_are_apart_and_return_to_it() {
    let server = TestServer::new();
    let partition = dead_letter_records_of(&server, "invoices", 3).await;
    dead_letter_records(&server, 1).await;
    let one = format!("/{partition}/1");

    let listed = read(&server, "?topic=invoices").await.json();
    assert_eq!(listed["letters"].as_array().map(Vec::len), Some(3));
    assert_eq!(listed["letters"][1], read(&server, &format!("{one}?topic=invoices")).await.json());
    assert_eq!(listed["letters"][1]["topic"], "invoices-dlt");
    assert_eq!(read(&server, "?topic=").await.json()["letters"].as_array().map(Vec::len), Some(1), "of the orders");

    let body = r#"{"dryRun":false,"reason":"fixed"}"#;
    let sent = command(&server, &format!("{one}/redrive?topic=invoices"), body).await.json();
    assert_eq!((&sent["redriven"]["by"], &sent["redriven"]["arrived"]), (&json!("root"), &json!(true)));
    command(&server, &format!("{one}/redrive?topic=invoices"), body).await.problem(409, "CONFLICT");
    let rest = command(&server, "/redrive?topic=invoices", body).await.json();
    assert_eq!((&rest["matched"], &rest["redriven"]), (&json!(2), &json!(2)));

    let back = server.broker.topics().read("invoices", partition, 0, 10).await.expect("read");
    let values: Vec<_> = back.iter().map(|one| String::from_utf8_lossy(&one.record.value).into_owned()).collect();
    assert_eq!(values, [r#"{"n":1}"#, r#"{"n":0}"#, r#"{"n":2}"#]);
    let waiting = command(&server, "/redrive", "").await.json();
    assert_eq!(waiting["matched"], 1, "that of the orders was not touched");
    for path in ["?topic=shop", "?topic=invoices-dlt", "/0/0?topic=shop"] {
        let unknown = read(&server, path).await.problem(404, "NOT_FOUND");
        assert!(unknown["detail"].as_str().is_some_and(|text| text.contains("order.events, invoices")), "{unknown}");
    }
    for path in ["/redrive?topic=shop", "/0/0/redrive?topic=shop"] {
        command(&server, path, body).await.problem(404, "NOT_FOUND");
    }
}

#[actix_web::test]
async fn without_a_broker_dead_letter_routes_return_404() {
    let server = TestServer::with_config(TestConfig { broker: false, ..TestConfig::default() });

    read(&server, "").await.problem(404, "NOT_FOUND");
    command(&server, "/redrive", "").await.problem(404, "NOT_FOUND");
}
