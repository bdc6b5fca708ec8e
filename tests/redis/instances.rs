//! Several instances on one Redis: they share the partitions, take over those of dead instances, and publish each event once and in order.
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::load::{Acknowledged, Load};
use crate::harness::process::Posthaste;

const NAMES: [&str; 3] = ["one", "two", "three"];

fn start(backend: &Backend, name: &str) -> Posthaste {
    Posthaste::start(backend, &[("POSTHASTE__INSTANCE__ID", name)])
}

/// The number of partitions that each instance owns, as one instance reports it.
fn shares(service: &Posthaste) -> Vec<usize> {
    let view = service.http.get("/admin/partitions", Some(&service.http.admin())).json();
    let owners: Vec<_> = view["partitions"].as_array().expect("partitions").iter().map(|one| &one["owner"]).collect();
    NAMES.map(|name| owners.iter().filter(|owner| **owner == name).count()).to_vec()
}

#[test]
fn three_instances_share_the_partitions_and_take_over_those_of_killed_ones() {
    let backend = Backend::new();
    let mut fleet: Vec<Posthaste> = NAMES.iter().map(|name| start(&backend, name)).collect();
    until("the partitions are shared", Duration::from_secs(20), || {
        shares(&fleet[0]).iter().all(|share| (4..=6).contains(share)).then_some(())
    });
    let mut all = Acknowledged::new();
    for round in 0..4 {
        let loads: Vec<Load> = fleet.iter().map(|service| Load::start(&service.http, 4)).collect();
        let acknowledged = || loads.iter().map(Load::acknowledged).sum::<usize>();
        until("some orders were acknowledged", Duration::from_secs(30), || (acknowledged() >= 120).then_some(()));
        let killed = round % NAMES.len();
        let dead = fleet.remove(killed);
        dead.kill();
        loads.into_iter().for_each(|load| all.extend(load.finish()));
        if round % 2 == 0 {
            until("the others took over", Duration::from_secs(20), || {
                (shares(&fleet[0])[killed] == 0 && shares(&fleet[0]).iter().sum::<usize>() == Backend::PARTITIONS)
                    .then_some(())
            });
        }
        fleet.insert(killed, start(&backend, NAMES[killed]));
    }

    fleet[0].drain();

    assert!(fleet[0].rows(&["PARKED"]).is_empty());
    event_log::assert_complete(&backend, &all);
}

#[test]
fn events_of_an_instance_without_a_publisher_are_relayed_by_another() {
    let backend = Backend::new();
    let settings = [("POSTHASTE__INSTANCE__ID", "two"), ("POSTHASTE__OUTBOX__PUBLISHER__ENABLED", "false")];
    let (relaying, writing) = (start(&backend, "one"), Posthaste::start(&backend, &settings));
    let load = Load::start(&writing.http, 4);
    until("some orders were acknowledged", Duration::from_secs(30), || (load.acknowledged() >= 50).then_some(()));
    let acknowledged = load.finish();

    relaying.drain();

    // A process that was delayed for longer than its lease acquires its partitions again.
    until("the other owns every partition", Duration::from_secs(20), || {
        (shares(&relaying) == [Backend::PARTITIONS, 0, 0]).then_some(())
    });
    event_log::assert_complete(&backend, &acknowledged);
}
