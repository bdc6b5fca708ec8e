//! Publishing from SQL: what a writer in any language relies on.
mod values;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use kit::clock::SeededRng;
use kit::wait::scaled;
use outbox::{EventKey, partition};
use ports::clock::Rng;
use ports::event_headers::EventHeaders;
use ports::outbox::{ClaimOutcome, ClaimedRow};
use ports::partitions::PartitionNo;
use ports::partitions::wake::{WakeChannel, WakeUp};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::relay::fixture::{RelayFixture, settle};
use crate::relay::migration_files::FILES;
use crate::support::{Database, PARTITIONS, connect, until};

pub const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub async fn publish(client: &Client, key: &str) -> Uuid {
    let text = "SELECT posthaste.publish('customers', $1, 'moved', '{\"street\": \"Main\"}')";
    client.query_one(text, &[&key]).await.unwrap().get(0)
}

/// The numbers of a key's events, in the order of their ids.
pub async fn numbers(client: &Client, key: &str) -> Vec<i64> {
    let text = "SELECT sequence FROM outbox_event WHERE coalesce(key_text, key::text) = $1 ORDER BY id";
    client.query(text, &[&key]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Texts of 0 to 40 characters of one to four bytes, and forms of UUIDs.
pub fn random_keys(seed: u64) -> Vec<String> {
    let rng = SeededRng::new(seed);
    let alphabet: Vec<char> = "abz019-_./ ÄßéЖ中🙂".chars().collect();
    let character = |_| alphabet[(rng.next_u64() % alphabet.len() as u64) as usize];
    let mut keys: Vec<String> = (0..400).map(|_| (0..rng.next_u64() % 41).map(character).collect::<String>()).collect();
    for _ in 0..100 {
        let uuid = Uuid::from_u64_pair(rng.next_u64(), rng.next_u64());
        keys.extend([uuid.to_string(), uuid.to_string().to_uppercase(), uuid.simple().to_string()]);
    }
    keys
}

#[tokio::test]
async fn rust_and_sql_compute_the_same_partition_and_group_of_a_key() {
    let database = Database::migrated().await;
    let keys = random_keys(7);
    let text = "SELECT outbox_murmur2(convert_to(k, 'UTF8')) % 64, outbox_key_group(k)
        FROM unnest($1::text[]) WITH ORDINALITY AS u (k, ordinal) ORDER BY ordinal";

    let rows = database.client().await.query(text, &[&keys]).await.unwrap();

    assert_eq!(rows.len(), keys.len());
    for (key, row) in keys.iter().zip(&rows) {
        let computed = (PartitionNo(row.get::<_, i64>(0) as u32), *row.get::<_, Uuid>(1).as_bytes());
        assert_eq!(computed, (partition::of_key(key, 64), EventKey::from_text(key).group()), "{key:?}");
    }
}

#[tokio::test]
async fn published_event_is_claimed_with_all_values_of_its_writer() {
    let fixture = RelayFixture::new().await;
    let text = "SELECT posthaste.publish(topic => 'customers', key => 'customer-7', type => 'moved', payload => '\\x00ff'::bytea,
        content_type => 'application/x-protobuf', headers => jsonb_build_object('tenant', 'blue', 'traceparent', $1::text,
          'tracestate', 'a=b', 'x-request-id', 'request-7'))";
    let event_id: Uuid = fixture.client.query_one(text, &[&TRACE]).await.unwrap().get(0);

    let of_key = partition::of_key("customer-7", PARTITIONS);
    let ClaimOutcome::Batch(batch) = fixture.claim(of_key.0 as usize).await else { panic!("the event is due") };

    let row = &batch.rows[0];
    assert_eq!((row.event_id.bytes(), &row.key), (*event_id.as_bytes(), &EventKey::from_text("customer-7")));
    assert_eq!((&*row.topic, &*row.event_type, row.sequence), ("customers", "moved", 1));
    assert_eq!(row.payload.as_deref(), Some(&[0_u8, 255][..]));
    assert_eq!(row.content_type.as_deref(), Some("application/x-protobuf"));
    assert_eq!(row.headers, EventHeaders::from_pairs([("tenant", "blue")]));
    let trace = row.trace.as_ref().unwrap();
    assert_eq!((&*trace.parent, trace.state.as_deref()), (TRACE, Some("a=b")));
    assert_eq!((row.request_id.as_deref(), &row.stamp), (Some("request-7"), &None));
    assert_eq!(event_id.get_version_num(), 7, "ids grow with time");
}

#[tokio::test]
async fn numbers_of_a_key_have_no_gap_after_rollbacks_and_savepoints() {
    let database = Database::migrated().await;
    let client = database.client().await;

    publish(&client, "a").await;
    client.batch_execute("BEGIN").await.unwrap();
    publish(&client, "a").await;
    client.batch_execute("ROLLBACK; BEGIN; SAVEPOINT s").await.unwrap();
    publish(&client, "a").await;
    client.batch_execute("ROLLBACK TO s").await.unwrap();
    publish(&client, "a").await;
    publish(&client, "b").await;
    client.batch_execute("SAVEPOINT t").await.unwrap();
    publish(&client, "a").await;
    client.batch_execute("RELEASE t; COMMIT").await.unwrap();
    client.batch_execute("SELECT posthaste.publish('other topic'::text || '', 'a', 'moved', 'x')").await.unwrap_err();

    assert_eq!((numbers(&client, "a").await, numbers(&client, "b").await), (vec![1, 2, 3], vec![1]));
}

#[tokio::test]
async fn numbers_count_the_events_of_a_key_in_each_topic() {
    let database = Database::migrated().await;
    let client = database.client().await;
    for topic in ["one", "two", "one"] {
        let text = "SELECT posthaste.publish($1, 'a', 'moved', '{}'::jsonb)";
        client.query_one(text, &[&topic]).await.unwrap();
    }

    let text = "SELECT topic, sequence FROM outbox_event ORDER BY id";
    let rows = client.query(text, &[]).await.unwrap();

    let found: Vec<(&str, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(found, [("one", 1), ("two", 1), ("one", 2)]);
}

#[tokio::test]
async fn batch_writes_its_events_in_their_order_and_each_key_has_its_numbers() {
    let database = Database::migrated().await;
    let client = database.client().await;
    publish(&client, "b").await;
    let batch = r#"[{"topic": "customers", "key": "b", "type": "first", "payload": {"n": 1}},
        {"topic": "customers", "key": "a", "type": "second", "payloadBase64": "AP8=", "contentType": "application/octet-stream"},
        {"topic": "customers", "key": "b", "type": "third", "payload": [], "headers": {"tenant": "blue"}}]"#;

    let ids: Vec<Uuid> =
        client.query_one("SELECT posthaste.publish_all($1::text::jsonb)", &[&batch]).await.unwrap().get(0);

    let text =
        "SELECT event_id, type, sequence, payload, headers::text FROM outbox_event WHERE type <> 'moved' ORDER BY id";
    let rows = client.query(text, &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, Uuid>(0)).collect::<Vec<_>>(), ids);
    let found: Vec<(&str, i64, &[u8])> = rows.iter().map(|row| (row.get(1), row.get(2), row.get(3))).collect();
    let expected: [(&str, i64, &[u8]); 3] =
        [("first", 2, b"{\"n\": 1}"), ("second", 1, &[0, 255]), ("third", 3, b"[]")];
    assert_eq!(found, expected);
    assert_eq!(rows[2].get::<_, Option<&str>>(4), Some("{\"tenant\": \"blue\"}"));
    let empty: Vec<Uuid> = client.query_one("SELECT posthaste.publish_all('[]')", &[]).await.unwrap().get(0);
    assert!(empty.is_empty());
}

#[tokio::test]
async fn known_event_id_is_returned_and_writes_nothing() {
    let database = Database::migrated().await;
    let (client, other) = (database.client().await, database.client().await);
    let id = Uuid::from_u128(7);
    let text = "SELECT posthaste.publish('customers', $2, 'moved', 'x'::text, event_id => $1)";
    client.batch_execute("BEGIN").await.unwrap();
    client.query_one(text, &[&id, &"a"]).await.unwrap();

    let concurrent = async { other.query_one(text, &[&id, &"b"]).await };
    let commit = async {
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until("the other writer waits", async || {
            (client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) > 0).then_some(())
        })
        .await;
        client.batch_execute("COMMIT").await.unwrap();
    };
    let (concurrent, ()) = futures::join!(concurrent, commit);
    let again = client.query_one(text, &[&id, &"a"]).await.unwrap();
    let batch = "SELECT posthaste.publish_all(ARRAY['customers', 'customers', 'customers'], ARRAY['a', 'b', 'b'], ARRAY['m', 'm', 'm'],
        ARRAY['x', 'x', 'x']::bytea[], event_ids => ARRAY[$1, $2, $2]::uuid[])";
    let ids = client.query_one(batch, &[&id, &Uuid::from_u128(8)]).await.unwrap();

    assert_eq!((concurrent.unwrap().get::<_, Uuid>(0), again.get::<_, Uuid>(0)), (id, id));
    assert_eq!(ids.get::<_, Vec<Uuid>>(0), [id, Uuid::from_u128(8), Uuid::from_u128(8)]);
    assert_eq!((numbers(&client, "a").await, numbers(&client, "b").await), (vec![1], vec![1]));
    publish(&client, "b").await;
    assert_eq!(numbers(&client, "b").await, [1, 2], "a lost race takes no number");
}

#[tokio::test]
async fn event_that_the_relay_would_park_is_refused_at_once() {
    let database = Database::migrated().await;
    let client = database.client().await;
    let cases = [
        ("'', 'k', 't', 'x'::text", "22023", "a topic cannot be named"),
        ("'a b', 'k', 't', 'x'::text", "22023", "a topic cannot be named"),
        ("repeat('t', 250), 'k', 't', 'x'::text", "22023", "a topic cannot be named"),
        ("'t', '', 't', 'x'::text", "22023", "the key"),
        ("'t', repeat('é', 513), 't', 'x'::text", "22023", "the key"),
        ("'t', E'a\\nb', 't', 'x'::text", "22023", "the key"),
        ("'t', 'k', '', 'x'::text", "22023", "the type"),
        ("'t', 'k', repeat('x', 1025), 'x'::text", "22023", "the type"),
        ("'t', 'k', NULL, 'x'::text", "22004", "NULL"),
        ("'t', 'k', 't', NULL::bytea", "22004", "NULL"),
        ("'t', 'k', 't', 'x'::text, content_type => NULL", "22004", "NULL"),
        ("'t', 'k', E'a\\u0085', 'x'::text", "22023", "the type"),
        ("'t', 'k', 't', repeat('x', 983041)", "54000", "983041 bytes"),
        ("'t', 'k', 't', 'x'::text, content_type => 'ä'", "22023", "content type"),
        ("'t', 'k', 't', 'x'::text, headers => '[]'", "22023", "not a JSON object"),
        ("'t', 'k', 't', 'x'::text, headers => '{\"a\": 1}'", "22023", "not a text"),
        ("'t', 'k', 't', 'x'::text, headers => '{\"a b\": \"1\"}'", "22023", "a header cannot be named"),
        ("'t', 'k', 't', 'x'::text, headers => '{\"CE_id\": \"1\"}'", "22023", "written by the relay"),
        ("'t', 'k', 't', 'x'::text, headers => '{\"X-Webhook\": \"1\"}'", "22023", "written by the relay"),
        ("'t', 'k', 't', 'x'::text, headers => '{\"X-Omitted-Value-Bytes\": \"1\"}'", "22023", "written by the relay"),
        ("'t', 'k', 't', 'x'::text, headers => '{\"X-Detour-Round\": \"1\"}'", "22023", "written by the relay"),
        ("'t', 'k', 't', 'x'::text, headers => '{\"x-redriven-by\": \"1\"}'", "22023", "written by the relay"),
        ("'t', 'k', 't', 'x'::text, headers => '{\"retry_topic-a\": \"1\"}'", "22023", "written by the relay"),
        ("'t', 'k', 't', 'x'::text, headers => jsonb_build_object('a', repeat('x', 16384))", "54000", "too large"),
    ];
    for of_known_key in [false, true] {
        if of_known_key {
            client.batch_execute("SELECT posthaste.publish('t', 'k', 't', 'x'::text)").await.unwrap();
        }
        for (arguments, code, part) in cases {
            let refused = client.batch_execute(&format!("SELECT posthaste.publish({arguments})")).await.unwrap_err();
            let error = refused.as_db_error().unwrap();
            assert_eq!(error.code().code(), code, "{arguments}: {error}");
            let named = error.message().contains(part) && (code == "22004" || error.hint().is_some());
            assert!(named, "{arguments}: {error:?}");
        }
    }
    assert_eq!(numbers(&client, "k").await, [1]);
    let longest =
        "SELECT posthaste.publish(repeat('t', 249), repeat('é', 512), repeat('x', 1024), repeat('x', 983040))";
    client.batch_execute(longest).await.unwrap();
    let batch = r#"SELECT posthaste.publish_all('[{"topic": "t", "key": "", "type": "t", "payload": 1}]')"#;
    assert!(client.batch_execute(batch).await.unwrap_err().as_db_error().unwrap().message().contains("the key"));
}

#[tokio::test]
async fn publisher_may_publish_and_read_nothing() {
    let database = Database::own().await;
    let client = database.client().await;
    let denied = |error: tokio_postgres::Error| error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE);

    client.batch_execute("SET ROLE posthaste_publisher").await.unwrap();
    publish(&client, "a").await;
    client
        .batch_execute(
            "SELECT posthaste.publish_all('[{\"topic\": \"t\", \"key\": \"k\", \"type\": \"t\", \"payload\": 1}]')",
        )
        .await
        .unwrap();
    for table in ["outbox_event", "outbox", "outbox_sequence", "orders", "installation"] {
        let refused = client.batch_execute(&format!("SELECT * FROM {table}")).await.unwrap_err();
        assert!(denied(refused), "{table}");
    }
    client.batch_execute("RESET ROLE").await.unwrap();
    let role = format!("{}_other", database.name);
    client.batch_execute(&format!("CREATE ROLE {role}; SET ROLE {role}")).await.unwrap();
    let refused = client.batch_execute("SELECT posthaste.publish('t', 'k', 't', 'x'::text)").await.unwrap_err();
    client.batch_execute(&format!("RESET ROLE; DROP ROLE {role}")).await.unwrap();

    assert!(denied(refused), "PUBLIC may not publish");
    assert_eq!(numbers(&client, "a").await, [1]);
}

#[tokio::test]
async fn functions_find_no_object_of_the_callers_search_path() {
    let database = Database::own().await;
    let client = database.client().await;
    let trap = "CREATE SCHEMA trap; CREATE TABLE trap.outbox_sequence (topic text); CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz
        LANGUAGE sql AS 'SELECT NULL::timestamptz'; SET search_path = trap, pg_catalog";
    client.batch_execute(trap).await.unwrap();

    publish(&client, "a").await;

    client.batch_execute("RESET search_path").await.unwrap();
    assert_eq!(numbers(&client, "a").await, [1]);
}

#[tokio::test]
async fn commit_wakes_the_relay_now_and_a_moment_later() {
    let database = Database::migrated().await;
    let (store, client) = (database.store("a").await, database.client().await);
    let all: Vec<WakeUp> = (0..PARTITIONS).map(|number| WakeUp::Due(PartitionNo(number))).collect();

    let quiet = scaled(Duration::from_millis(200));
    let no_wake_up = async || tokio::time::timeout(quiet, store.notified()).await.err();

    // Repeated, because a notification from before the store listens is lost, and a test that is paused between both wake-ups receives one.
    until("a wake-up at the commit, and another for the commits that sent no notification", async || {
        until("no wake-up is left", no_wake_up).await;
        publish(&client, "a").await;
        for _ in 0..2 {
            let woken = tokio::time::timeout(quiet, store.notified()).await.ok()?;
            assert_eq!(woken, all);
        }
        Some(())
    })
    .await;

    until("no wake-up is left", no_wake_up).await;
    client.batch_execute("BEGIN; SELECT posthaste.publish('t', 'k', 't', 'x'::text); ROLLBACK").await.unwrap();
    let woken = tokio::time::timeout(quiet, store.notified()).await;
    assert!(woken.is_err(), "a rollback wakes nothing");
}

/// One transaction of a writer: it commits, rolls back, or loses a part to a savepoint, at once or after a while. Keys in order, so that two
/// writers do not deadlock.
async fn write(client: &Client, rng: &SeededRng) {
    let first = rng.next_u64() % 5;
    let keys = [first, first + rng.next_u64() % 2];
    client.batch_execute("BEGIN").await.unwrap();
    for (index, key) in keys.into_iter().enumerate() {
        let lost = index == 1 && rng.next_u64().is_multiple_of(3);
        if lost {
            client.batch_execute("SAVEPOINT s").await.unwrap();
        }
        publish(client, &format!("key-{key}")).await;
        if lost {
            client.batch_execute("ROLLBACK TO s").await.unwrap();
        }
    }
    let (pause, end) = (rng.next_u64() % 12, rng.next_u64() % 4);
    if pause < 2 {
        client.batch_execute(&format!("SELECT pg_sleep({})", pause as f64 * 0.1 + 0.02)).await.unwrap();
    }
    client.batch_execute(if end == 0 { "ROLLBACK" } else { "COMMIT" }).await.unwrap();
}

/// Claims and settles all partitions once.
async fn relay(fixture: &mut RelayFixture, sent: &mut Vec<ClaimedRow>) {
    for partition in 0..PARTITIONS as usize {
        if let ClaimOutcome::Batch(batch) = fixture.claim(partition).await {
            fixture.fences[partition].counter = batch.token;
            fixture.fences[partition].counter = settle(&fixture.store, &fixture.fences[partition], &batch).await;
            sent.extend(batch.rows);
        }
    }
}

#[tokio::test]
async fn concurrent_writers_lose_nothing_and_keep_the_order_of_each_key() {
    let mut fixture = RelayFixture::new().await;
    let clients = join_all((0..6).map(|_| connect(&fixture.database.url))).await;
    let unrelated = fixture.database.client().await;
    unrelated.batch_execute("BEGIN; CREATE TABLE unrelated (x integer)").await.unwrap();
    let writers = tokio::spawn(join_all(clients.into_iter().enumerate().map(|(seed, client)| async move {
        let rng = SeededRng::new(seed as u64);
        for _ in 0..40 {
            write(&client, &rng).await;
        }
    })));
    let mut sent = Vec::new();

    while !writers.is_finished() {
        relay(&mut fixture, &mut sent).await;
    }
    writers.await.unwrap();
    relay(&mut fixture, &mut sent).await;
    relay(&mut fixture, &mut sent).await;

    let mut by_key: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in &sent {
        by_key.entry(row.key.to_string()).or_default().push(row.sequence);
    }
    let written: i64 = fixture.client.query_one("SELECT count(*) FROM outbox_event", &[]).await.unwrap().get(0);
    assert_eq!(sent.len() as i64, written, "every committed event was claimed");
    assert!(written > 100 && by_key.len() >= 5, "{written} events of {} keys", by_key.len());
    for (key, numbers) in by_key {
        let gapless: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert_eq!(numbers, gapless, "{key}");
    }
}

#[tokio::test]
async fn second_installation_has_the_functions_in_its_own_schema() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute("CREATE SCHEMA \"Second One\"; SET search_path = \"Second One\"").await.unwrap();
    for file in FILES {
        client.batch_execute(file.text).await.unwrap();
        if file.text.contains("CREATE TABLE installation") {
            client.batch_execute("INSERT INTO installation (partitions) VALUES (3)").await.unwrap();
        }
    }

    client.batch_execute("SELECT \"Second One\".publish('t', 'k', 't', 'x'::text)").await.unwrap();

    let functions: String = client.query_one("SELECT functions FROM installation", &[]).await.unwrap().get(0);
    assert_eq!((functions.as_str(), numbers(&client, "k").await), ("Second One", vec![1]));
    client.batch_execute("SET search_path = public").await.unwrap();
    assert_eq!(numbers(&client, "k").await, [] as [i64; 0], "the first installation got nothing");
    publish(&client, "k").await;
    assert_eq!(numbers(&client, "k").await, [1]);
}
