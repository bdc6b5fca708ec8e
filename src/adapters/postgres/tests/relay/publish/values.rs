//! Values of an event that a writer may give.
use postgres::{Postgres, migrate};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::relay::publish::{TRACE, numbers};
use crate::support::Database;

/// A collation other than the default one and "C", and one under which texts that differ in case are equal.
const COLLATIONS: &str = "CREATE COLLATION swedish (provider = icu, locale = 'sv');
    CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";

async fn columns(client: &Client, column: &str) -> Vec<Option<String>> {
    let text = format!("SELECT {column}::text FROM outbox_event ORDER BY id");
    client.query(&text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn values_of_any_collation_are_published() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(COLLATIONS).await.unwrap();
    for (key, collation) in [("å", "swedish"), ("b", "any_case")] {
        let one = format!(
            "SELECT posthaste.publish('customers' COLLATE {collation}, k COLLATE {collation}, 'moved' COLLATE {collation}, '{{}}',
               content_type => 'Application/JSON' COLLATE {collation}, event_id => id) FROM (VALUES ('{key}')) AS keys (k)"
        );
        let own_id = one.replace("event_id => id", "event_id => gen_random_uuid()");
        let usual = one.replace(", event_id => id", "");
        let arrays = format!(
            "SELECT posthaste.publish_all(ARRAY['customers', 'customers'] COLLATE {collation}, ARRAY['{key}', '{key}'] COLLATE {collation},
               ARRAY['moved', 'moved'] COLLATE {collation}, ARRAY['x', 'x']::bytea[])"
        );
        for text in [&usual, &usual, &own_id, &own_id, &arrays, &arrays] {
            client.batch_execute(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
        assert_eq!(numbers(&client, key).await, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
    let mixed = "SELECT posthaste.publish_all(ARRAY['customers', 'customers'] COLLATE any_case, ARRAY['C', 'c'] COLLATE any_case,
           ARRAY['moved', 'moved'] COLLATE any_case, ARRAY['x', 'x']::bytea[])";
    client.batch_execute(mixed).await.unwrap();
    assert_eq!((numbers(&client, "C").await, numbers(&client, "c").await), (vec![1], vec![1]), "two keys");
    let types = columns(&client, "content_type").await;
    assert_eq!(types.iter().flatten().count(), 8, "a content type is kept as it was given");
}

#[tokio::test]
async fn null_headers_of_a_json_batch_are_none() {
    let database = Database::migrated().await;
    let client = database.client().await;
    let batch = r#"SELECT posthaste.publish_all('[{"topic": "t", "key": "k", "type": "t", "payload": 1, "headers": null, "contentType": null,
        "eventId": null}]')"#;

    let ids: Vec<Uuid> = client.query_one(batch, &[]).await.unwrap().get(0);

    assert_eq!((ids.len(), columns(&client, "headers").await), (1, vec![None]));
    let scalar = "SELECT posthaste.publish('t', 'k', 't', 'x'::text, headers => '7')";
    let refused = client.batch_execute(scalar).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("not a JSON object"), "{refused:?}");
}

#[tokio::test]
async fn trace_state_that_is_too_long_is_dropped() {
    let database = Database::migrated().await;
    let client = database.client().await;
    for length in [4_096, 4_097] {
        let headers = "jsonb_build_object('traceparent', $1::text, 'tracestate', $2::text)";
        let state = format!("a={}", "x".repeat(length - 2));
        let one = format!("SELECT posthaste.publish('t', 'k', 't', 'x'::text, headers => {headers})");
        let many = format!(
            "SELECT posthaste.publish_all(ARRAY['t'], ARRAY['k'], ARRAY['t'], ARRAY['x']::bytea[], ARRAY[{headers}])"
        );
        for text in [one, many] {
            client.query_one(&text, &[&TRACE, &state]).await.unwrap();
        }
    }

    let length = |length: &str| Some(length.to_owned());
    let kept = [length("4096"), length("4096"), None, None];
    assert_eq!(columns(&client, "octet_length(tracestate)").await, kept);
    assert!(columns(&client, "traceparent").await.iter().all(|parent| parent.as_deref() == Some(TRACE)));
}

#[tokio::test]
async fn header_of_the_relay_is_refused_in_a_database_of_any_collation() {
    // Before version 15 a database cannot have a collation of ICU.
    let any = Database::empty().await;
    let server = any.client().await;
    let version = "SELECT current_setting('server_version_num')::int4 >= 150000";
    if !server.query_one(version, &[]).await.unwrap().get::<_, bool>(0) {
        return;
    }
    let database = Database::with_turkish_locale().await;
    migrate(&database.options("a")).await.unwrap();
    let client = database.client().await;
    let lower: String = client.query_one("SELECT lower('ID')", &[]).await.unwrap().get(0);
    assert_ne!(lower, "id");

    for name in ["ID", "X-TENANT-ID", "X-REGION", "CE_ID", "X-DETOUR-ROUND", "RETRY_TOPIC-ATTEMPTS", "X-REDRIVEN-BY"] {
        let text = format!("SELECT posthaste.publish('t', 'k', 't', 'x'::bytea, headers => '{{\"{name}\": \"1\"}}')");
        let result = client.batch_execute(&text).await;
        assert_eq!(result.is_ok(), name == "X-TENANT-ID", "{name}: {result:?}");
    }
    assert_eq!(columns(&client, "headers").await, [Some("{\"X-TENANT-ID\": \"1\"}".into())]);
}

#[tokio::test]
async fn sessions_that_read_backslashes_as_escapes_publish_new_keys() {
    let database = Database::migrated().await;
    let client = database.client().await;
    client.batch_execute("SET standard_conforming_strings = off; SET escape_string_warning = off").await.unwrap();
    let publish = "SELECT posthaste.publish('customers', 'k', 'moved', 'x'::text)";
    let publish_all =
        r#"SELECT posthaste.publish_all('[{"topic": "customers", "key": "k2", "type": "t", "payload": 1}]')"#;
    for statement in [publish, publish, publish_all] {
        client.batch_execute(statement).await.expect(statement);
    }
    assert_eq!((numbers(&client, "k").await, numbers(&client, "k2").await), (vec![1, 2], vec![1]));
}

#[tokio::test]
async fn topics_that_only_the_service_writes_are_refused_from_its_start_on() {
    let database = Database::migrated().await;
    let client = database.client().await;
    let publish = |topic| format!("SELECT posthaste.publish('{topic}', 'k', 't', 'x'::text)");
    let publish_all = "SELECT posthaste.publish_all(ARRAY['ours', 'ours-dlt'], ARRAY['k', 'k'], ARRAY['t', 't'], ARRAY['x', 'x']::bytea[])";
    client.batch_execute(&publish("ours-dlt")).await.expect("no service has started, so no topic is known as internal");

    let mut options = database.options("a");
    options.internal_topics = vec!["ours-dlt".into(), "ours-retry-0".into()];
    let service = Postgres::open(options).await.expect("opened");

    for refused in [&publish("ours-dlt"), &publish("ours-retry-0"), publish_all] {
        let error = client.batch_execute(refused).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{refused}: {error}");
        assert!(error.message().contains("only the service writes this topic") && error.hint().is_some(), "{error:?}");
    }
    client.batch_execute(&publish("ours")).await.expect("a topic of another service");
    assert_eq!(numbers(&client, "k").await, [1, 1], "the event before the start, and the one after it");
    service.close().await.expect("closed");
}

#[tokio::test]
async fn topic_that_is_internal_no_more_continues_its_numbers() {
    let database = Database::migrated().await;
    let client = database.client().await;
    let publish = "SELECT posthaste.publish('ours-dlt', 'k', 't', 'x'::text)";
    let start = async |internal_topics: &[&str]| {
        let mut options = database.options("a");
        options.internal_topics = internal_topics.iter().map(|topic| (*topic).into()).collect();
        Postgres::open(options).await.expect("opened").close().await.expect("closed");
    };
    client.batch_execute(publish).await.expect("published");

    start(&["ours-dlt", "theirs-dlt"]).await;
    start(&["ours-dlt"]).await;
    client.batch_execute(publish).await.expect_err("internal");
    start(&["theirs-dlt"]).await;
    client.batch_execute(publish).await.expect("published");

    assert_eq!(numbers(&client, "k").await, [1, 2]);
    start(&["ours-dlt"]).await;
    client.batch_execute(publish).await.expect_err("internal again");
}

#[tokio::test]
async fn start_does_not_wait_for_a_transaction_that_publishes_to_an_internal_topic() {
    let database = Database::migrated().await;
    let (client, writer) = (database.client().await, database.client().await);
    let publish = |key| format!("SELECT posthaste.publish('ours-dlt', '{key}', 't', 'x'::text)");
    client.batch_execute(&(publish("free") + ";" + &publish("held"))).await.expect("published");
    let start = async || {
        let mut options = database.options("a");
        options.internal_topics = vec!["ours-dlt".into()];
        Postgres::open(options).await.expect("opened").close().await.expect("closed");
    };

    writer.batch_execute(&format!("BEGIN; {}", publish("held"))).await.expect("published");
    start().await;
    writer.batch_execute("COMMIT").await.expect("committed");

    client.batch_execute(&publish("free")).await.expect_err("internal");
    client.batch_execute(&publish("held")).await.expect("the relay parks it");
    assert_eq!(numbers(&client, "held").await, [1, 2, 3]);
    start().await;
    client.batch_execute(&publish("held")).await.expect_err("internal");
}
