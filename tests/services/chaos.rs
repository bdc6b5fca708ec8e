//! Plays a schedule of faults on a fleet and on the services under it. Whatever is broken here is whole again at the end.
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kit::wait::until;

use crate::fault::{Fault, Step};
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::services::{Service, War};

/// Plays it to its end. Each victim's faults come in their order, and none before its moment.
pub fn play(schedule: &[Step], ground: &Ground, fleet: &Fleet<'_>) {
    let begun = Instant::now();
    let victims: BTreeSet<_> = schedule.iter().map(|step| step.fault.victim()).collect();
    std::thread::scope(|scope| {
        for victim in victims {
            scope.spawn(move || {
                for step in schedule.iter().filter(|step| step.fault.victim() == victim) {
                    pass(step.at.saturating_sub(begun.elapsed()));
                    strike(step.fault, ground, fleet);
                }
            });
        }
    });
}

fn strike(fault: Fault, ground: &Ground, fleet: &Fleet<'_>) {
    match fault {
        Fault::Kill { instance, down } => {
            fleet.kill(instance);
            pass(down);
            fleet.launch(instance);
        }
        Fault::Freeze { instance, still } => {
            fleet.freeze(instance);
            pass(still);
            fleet.thaw(instance);
        }
        Fault::CutStore { instance } => fleet.store(instance).cut(),
        Fault::MuteStore { instance, silent } => {
            fleet.store(instance).fall_silent();
            pass(silent);
            fleet.store(instance).speak();
        }
        Fault::CutCache { instance } => fleet.cache(instance).cut(),
        Fault::KillStore { down } => kill(ground.war(), Service::Postgres, down),
        Fault::KillBroker { down } => kill(ground.war(), Service::Kafka, down),
        Fault::KillCache { down } => kill(ground.war(), Service::Redis, down),
        Fault::FreezeBroker { still } => {
            ground.war().pause(Service::Kafka);
            pass(still);
            ground.war().resume(Service::Kafka);
        }
        Fault::FlushCache => ground.flush_redis(),
    }
}

fn kill(war: &War, service: Service, down: Duration) {
    war.kill(service);
    pass(down);
    war.start(service);
}

/// Lets time pass: a fault has its duration, and nothing to wait for.
pub fn pass(time: Duration) {
    let begun = Instant::now();
    until("time passes", time + Duration::from_secs(5), || (begun.elapsed() >= time).then_some(()));
}
