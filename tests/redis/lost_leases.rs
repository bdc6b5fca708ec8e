//! A lease that is lost in the middle of a batch: the process stops sending, another one takes over and sends the rest. Duplicates are at most
//! the records that were sent of the open batches, and consumers ignore them.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::event_log::sequences;
use crate::harness::http::{Http, tea_order};
use crate::harness::metrics::metric;
use crate::harness::process::{LONG_LEASE, Posthaste};

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Orders with four events each, so that a batch has records of a key that wait for the record before.
const ORDERS: u32 = 120;

fn start(backend: &Backend, name: &str, more: &[(&str, &str)]) -> Posthaste {
    let common = [("POSTHASTE__INSTANCE__ID", name), ("POSTHASTE__BROKER__DELIVERY", "at-least-once")];
    Posthaste::start(backend, &[&common[..], more].concat())
}

/// Creates orders and changes the status of each until it is delivered, while no relay runs. Returns the number of events of each order.
fn write_events(backend: &Backend) -> BTreeMap<String, u64> {
    let writer = start(backend, "writer", &[("POSTHASTE__OUTBOX__PUBLISHER__ENABLED", "false")]);
    let (user, admin) = (writer.http.user(), writer.http.admin());
    let order = |n| {
        let id = writer.http.post("/orders", &user, &[], &tea_order(n)).json()["id"].as_str().expect("id").to_owned();
        for (version, status) in ["PROCESSING", "SHIPPED", "DELIVERED"].iter().enumerate() {
            let body = json!({"status": status, "version": version});
            assert_eq!(writer.http.patch(&format!("/orders/{id}/status"), &admin, &[], &body).status, 200);
        }
        (id, 4)
    };
    let orders = (1..=ORDERS).map(order).collect();
    assert!(writer.stop().success());
    orders
}

/// The number of rows in the open batches of instance one, as Redis stores them.
fn rows_in_flight(backend: &Backend) -> usize {
    let script = "local rows = 0 for partition = 0, tonumber(ARGV[1]) - 1 do \
                  local owner, token = unpack(redis.call('HMGET', KEYS[1] .. 'lease:' .. partition, 'owner', 'token')) \
                  if owner == 'one' and token then rows = rows + redis.call('ZCARD', KEYS[1] .. 'flight:' .. partition) end \
                  end return rows";
    let rows = backend.redis_command(&format!("EVAL \"{script}\" 1 posthaste:{{store}}: {}", Backend::PARTITIONS));
    rows[0].trim_start_matches(':').parse().expect("a number")
}

/// Freezes the process while it has open batches; returns the number of their rows, or zero if it had sent everything before.
fn freeze_in_a_batch(backend: &Backend, service: &Posthaste) -> usize {
    until("the process is frozen while a batch is open, or has sent everything", WAIT_MAX, || {
        // Read first: a row that is no longer pending is in a batch until it is sent.
        let pending = backend.redis_command("ZCARD posthaste:{store}:status:PENDING");
        if rows_in_flight(backend) == 0 {
            return (pending == [":0"]).then_some(0);
        }
        service.freeze();
        let rows = rows_in_flight(backend);
        if rows == 0 {
            service.signal("CONT");
        }
        Some(rows).filter(|rows| *rows > 0)
    })
}

fn events_by_id(events: &[Value]) -> BTreeMap<&str, usize> {
    let mut copies = BTreeMap::new();
    for event in events {
        *copies.entry(event["headers"]["ce_id"].as_str().expect("an id")).or_insert(0) += 1;
    }
    copies
}

#[test]
fn a_lease_that_is_lost_in_a_batch_ends_it_and_the_next_owner_sends_the_rest() {
    // Small batches, one at a time, so that the process is frozen before everything is sent.
    let slow = [
        ("POSTHASTE__BROKER__DELIVERY", "at-least-once"),
        ("POSTHASTE__OUTBOX__PUBLISHER__BATCH", "12"),
        ("POSTHASTE__OUTBOX__PUBLISHER__MAX_IN_FLIGHT", "1"),
    ];
    // A test that was delayed meanwhile begins again.
    let (backend, orders, former_owner, in_flight) =
        until("a process is frozen while a batch is open", WAIT_MAX, || {
            let backend = Backend::new();
            let orders = write_events(&backend);
            let former_owner = Posthaste::launch(&backend, "serve", &slow, "127.0.0.1:1");
            let in_flight = freeze_in_a_batch(&backend, &former_owner);
            (in_flight > 0).then_some((backend, orders, former_owner, in_flight))
        });

    // Only the loser loses its leases, however slow the machine is.
    let new_owner = start(&backend, "two", &[LONG_LEASE]);
    until("the other instance has sent the rest", WAIT_MAX, || {
        new_owner.rows(&["PENDING", "IN_FLIGHT", "FAILED"]).is_empty().then_some(())
    });
    let sent_by_the_new_owner = backend.events().len();
    former_owner.signal("CONT");
    until("the loser is a member again", WAIT_MAX, || owners(&new_owner).contains("one").then_some(()));
    new_owner.drain();

    let events = backend.events();
    let copies = events_by_id(&events);
    let duplicates = events.len() - copies.len();
    assert_eq!(copies.len(), 4 * ORDERS as usize, "nothing is lost");
    assert!(copies.values().all(|copies| *copies <= 2), "a record is sent again at most once");
    assert!(duplicates <= in_flight, "{duplicates} duplicates, and {in_flight} rows were in flight");
    // Records that were already in the client library may still arrive: one record of each order, and not its other three.
    let late = events.len() - sent_by_the_new_owner;
    assert!(late <= in_flight.div_ceil(4), "after its return the loser sent {late} of {in_flight} records");
    for (key, mut seen) in sequences(&events) {
        // A duplicate repeats what came before; without the repetitions the order is that of the commits.
        let mut first = BTreeSet::new();
        seen.retain(|sequence| first.insert(*sequence));
        assert_eq!(seen, (1..=orders[&key]).collect::<Vec<_>>(), "{key}");
    }
    assert_eq!(metric(&new_owner.http, "outbox_fenced_total"), 0.0, "the loser did not release the new owner's leases");
    let listening = former_owner.await_logged("listening", 1);
    let loser_http = Http::new(listening[0]["address"].as_str().expect("an address"));
    let ignored = |http: &Http| metric(http, "kafka_consumer_duplicate_count_total") as usize;
    until("consumers have ignored the duplicates", WAIT_MAX, || {
        (ignored(&new_owner.http) + ignored(&loser_http) >= duplicates).then_some(())
    });
}

/// The instances that own partitions.
fn owners(service: &Posthaste) -> BTreeSet<String> {
    let view = service.http.get("/admin/partitions", Some(&service.http.admin())).json();
    let partitions = view["partitions"].as_array().expect("partitions");
    partitions.iter().filter_map(|partition| partition["owner"].as_str().map(str::to_owned)).collect()
}
