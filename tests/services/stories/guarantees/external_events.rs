//! Events of another service: SQL writers with text keys in its own tables, `posthaste relay` on the same database, and Kafka.
use std::collections::BTreeMap;
use std::time::Duration;

use kit::wait::until;
use ports::broker::consumer_groups::ConsumerRecord;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::{Posthaste, command, finish, run};
use crate::oracle::sql_writers::{KEYS, SQL_CONTENT_TYPE, SQL_TYPE, SqlWriters, TENANT};

/// Longest wait for the relay after the writers have ended: a lease expires, and a partition is acquired.
const WAIT_MAX: Duration = Duration::from_secs(60);
const WRITERS: u8 = 6;
/// The writers continue until the relay was killed this often.
const KILLS: usize = 3;

fn header<'a>(message: &'a ConsumerRecord, name: &str) -> &'a str {
    message.record.text(name).unwrap_or_else(|| panic!("{name} is missing"))
}

#[test]
fn events_of_sql_writers_arrive_once_and_in_order_while_the_relay_is_killed() {
    let backend = Backend::new();
    let topic = backend.topic("customers");
    let settings = [("POSTHASTE__BROKER__TOPICS", topic.as_str())];
    let mut relay = Posthaste::start_command(&backend, "relay", &settings);
    let writers = SqlWriters::start(&backend, &topic, WRITERS, rand::random());
    let committed = || backend.database.rows("SELECT event_id, key FROM customer_change ORDER BY event_id");
    for _ in 0..KILLS {
        let before = committed().len();
        until("the writers go on", WAIT_MAX, || (committed().len() > before + 50).then_some(()));
        relay.kill();
        relay = Posthaste::start_command(&backend, "relay", &settings);
    }
    writers.finish();
    let expected = committed();

    until("nothing waits", WAIT_MAX, || relay.rows(&["PENDING", "IN_FLIGHT", "FAILED"]).is_empty().then_some(()));

    assert_eq!(relay.rows(&["PARKED"]), Vec::<Value>::new());
    let records = backend.read("customers");
    let mut published: Vec<Vec<String>> =
        records.iter().map(|one| vec![header(one, "ce_id").to_owned(), one.record.key.to_string()]).collect();
    published.sort();
    assert_eq!(published, expected, "each committed event once, and no other");
    let mut numbers: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for one in &records {
        let number = header(one, "x-sequence").parse().expect("a number");
        numbers.entry(&one.record.key).or_default().push(number);
        assert_eq!((header(one, "ce_type"), header(one, "tenant")), (SQL_TYPE, TENANT));
        assert_eq!((header(one, "content-type"), one.record.value.last()), (SQL_CONTENT_TYPE, Some(&255)));
    }
    assert_eq!(numbers.len(), KEYS.len());
    for (key, numbers) in numbers {
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{key}: {numbers:?}");
    }
}

#[test]
fn relay_serves_operators_and_no_orders() {
    let backend = Backend::new();
    let relay = Posthaste::start_command(&backend, "relay", &[]);
    let admin = relay.http.admin();

    let actors = relay.http.get("/admin/actors", Some(&admin));

    assert!(actors.text.contains("outbox-publisher"), "{}", actors.text);
    for name in ["order-aggregate", "pending-promoter", "consumer-0"] {
        assert!(!actors.text.contains(name), "{name} in {}", actors.text);
    }
    assert_eq!(relay.http.get("/orders", Some(&admin)).status, 404);
    let document = relay.http.get("/openapi.json", None).json();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.contains_key("/admin/outbox") && !paths.keys().any(|path| path.starts_with("/orders")), "{paths:?}");
    for path in ["/admin/outbox", "/admin/dlt", "/console", "/metrics"] {
        assert!(relay.http.get(path, Some(&admin)).status < 400, "{path}");
    }
    let listed = until("its topic exists", WAIT_MAX, || {
        Some(run(&backend, &["topic", "list"]).1).filter(|listed| listed.contains("relay-watermarks"))
    });
    assert!(!listed.contains("order.events"), "the topics of the orders are not created: {listed}");
    let doctor = || finish(command(&backend, &["doctor", "--json"]).env("POSTHASTE__ORDERS__ENABLED", "false"));
    until("the doctor misses no topic", WAIT_MAX, || doctor().1.contains("none missing").then_some(()));
    assert!(relay.stop().success());
}

#[test]
fn rows_of_an_adopted_table_arrive_in_kafka_as_debezium_would_send_them() {
    let backend = Backend::new();
    let topic = backend.topic("outbox.event.Order");
    let relay = Posthaste::start_command(&backend, "relay", &[("POSTHASTE__BROKER__TOPICS", topic.as_str())]);
    // The installation has a table `outbox` of its own.
    backend.database.rows("CREATE SCHEMA shop");
    backend.database.rows(
        "CREATE TABLE shop.outbox (id uuid NOT NULL, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
           type varchar(255) NOT NULL, payload jsonb)",
    );
    let adopt = ["adopt", "--table", "shop.outbox", "--topic", &backend.topic("outbox.event.${routedByValue}")];

    let (code, _, stderr) = run(&backend, &adopt);

    assert_eq!(code, 0, "{stderr}");
    backend.database.rows(
        "INSERT INTO shop.outbox VALUES ('406c07f3-26f0-4eea-a50c-109940068000', 'Order', '7', 'OrderCreated', '{\"id\": 7}')",
    );
    let records =
        until("the event arrives", WAIT_MAX, || Some(backend.read("outbox.event.Order")).filter(|all| !all.is_empty()));
    let one = &records[0];
    assert_eq!((records.len(), &*one.record.key, &*one.record.value), (1, "7", &b"{\"id\": 7}"[..]));
    assert_eq!(header(one, "id"), "406c07f3-26f0-4eea-a50c-109940068000");
    assert_eq!((header(one, "ce_type"), header(one, "x-sequence")), ("OrderCreated", "1"));
    let (code, _, stderr) = run(&backend, &["adopt", "--table", "shop.outbox", "--release"]);
    assert_eq!((code, relay.rows(&["PARKED"])), (0, Vec::new()), "{stderr}");
    assert!(!stderr.contains("warning"), "{stderr}");
    backend.database.rows("CREATE TABLE shop.parted (LIKE shop.outbox) PARTITION BY LIST (type)");
    let (code, _, stderr) = run(&backend, &["adopt", "--table", "shop.parted", "--dry-run"]);
    assert!(code == 0 && stderr.contains("warning: shop.parted is partitioned"), "{stderr}");
}
