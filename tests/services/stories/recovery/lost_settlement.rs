//! A settlement does not wait until it is on disk. A crash of PostgreSQL may undo it; the watermark then settles its batch again.
use std::collections::BTreeMap;
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::database::query;
use crate::harness::database_server::DatabaseServer;
use crate::harness::event_log;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;
use crate::harness::proxy::Proxy;

const WAIT_MAX: Duration = Duration::from_secs(60);
/// Crashes until one undoes a settlement: a heartbeat between the settlement and the crash flushes it, which is rare.
const CRASHES_MAX: usize = 20;

#[test]
fn settlement_that_a_crash_of_the_database_undoes_is_made_again_without_a_duplicate() {
    let (backend, server) = (Backend::new(), DatabaseServer::create(None));
    let number = |statement: &str| {
        let rows = until(statement, WAIT_MAX, || query(&server.url(), statement).ok());
        rows[0][0].parse::<usize>().expect("a number")
    };
    // Commits that nothing waits for reach the disk late.
    for statement in ["ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"] {
        query(&server.url(), statement).expect("the setting is accepted");
    }
    let clients = Proxy::to(&server.address());
    let url = format!("postgres://posthaste@{}/postgres", clients.address());
    // The commits of a consumer and of frequent heartbeats would flush the settlement.
    let settings = [
        ("POSTHASTE__STORE__URL", &*url),
        ("POSTHASTE__CONSUMER__COUNT", "0"),
        ("POSTHASTE__PARTITIONS__HEARTBEAT", "3s"),
        ("POSTHASTE__PARTITIONS__DEAD_AFTER", "15s"),
        ("POSTHASTE__OUTBOX__LEASE", "30s"),
    ];
    let service = Posthaste::start(&backend, &settings);
    let user = service.http.user();
    let unsettled = || number("SELECT count(*) FROM outbox");
    let mut orders = BTreeMap::new();

    let undone = (0..CRASHES_MAX).any(|_| {
        let order = until("an order is accepted", WAIT_MAX, || {
            let response = service.http.post("/orders", &user, &[], &tea_order(1));
            (response.status == 201).then(|| response.json()["id"].as_str().expect("an id").to_owned())
        });
        orders.insert(order, 1);
        until("its event is settled", WAIT_MAX, || (unsettled() == 0).then_some(()));

        server.kill();
        clients.stall();
        server.start();
        let undone = unsettled();
        clients.resume();
        clients.cut();
        until("every event is settled", WAIT_MAX, || (unsettled() == 0).then_some(()));
        undone > 0
    });

    assert!(undone, "no crash undid a settlement: it waits for the disk");
    event_log::assert_complete(&backend, &orders);
}
