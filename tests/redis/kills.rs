//! A Redis that is killed under load: every acknowledged order is stored, and its events are published once and in order.
use std::time::Duration;

use kit::wait::until;

use crate::check;
use crate::ground::Ground;
use crate::load::{Answered, Load};
use crate::process::Posthaste;

#[test]
fn acknowledged_orders_survive_a_kill_of_redis() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[("POSTHASTE__FAILOVER__PROBE_INTERVAL", "500ms")]);
    let mut all = Answered::new();
    for round in 0..4 {
        let load = Load::start(&service.http, 8);
        let target = 20 + 60 * round;
        until("some orders were answered", Duration::from_secs(30), || (load.answered() >= target).then_some(()));
        ground.kill_redis();
        all.extend(load.finish());
        until("writes are refused", Duration::from_secs(10), || (!service.is_ready()).then_some(()));
        ground.start_redis();
        until("the same process is ready again", Duration::from_secs(30), || service.is_ready().then_some(()));
    }

    service.drain();

    assert!(service.rows(&["PARKED"]).is_empty(), "an outage parks nothing");
    check::laws(&ground, &all);
}
