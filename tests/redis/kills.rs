//! A Redis that is killed under load: every acknowledged order is stored, and its events are published once and in order.
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::load::{Acknowledged, Load};
use crate::harness::process::Posthaste;

#[test]
fn acknowledged_orders_survive_a_kill_of_redis() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__FAILOVER__PROBE_INTERVAL", "500ms")]);
    let mut all = Acknowledged::new();
    for round in 0..4 {
        let load = Load::start(&service.http, 8);
        let target = 20 + 60 * round;
        until("some orders were acknowledged", Duration::from_secs(30), || {
            (load.acknowledged() >= target).then_some(())
        });
        backend.kill_redis();
        all.extend(load.finish());
        until("writes are refused", Duration::from_secs(10), || (!service.is_ready()).then_some(()));
        backend.start_redis();
        until("the same process is ready again", Duration::from_secs(30), || service.is_ready().then_some(()));
    }

    service.drain();

    assert!(service.rows(&["PARKED"]).is_empty(), "an outage parks nothing");
    event_log::assert_complete(&backend, &all);
}
