//! Executes a schedule of faults on a fleet and on the services under it. Each fault is repaired before its function returns.
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kit::wait::pause;

use crate::chaos::schedule::{Fault, ScheduledFault};
use crate::cluster::fleet::Fleet;
use crate::harness::backend::Backend;
use crate::harness::proxy::Proxy;
use crate::harness::service_control::{Service, ServiceControl};

/// Executes the whole schedule. Faults of one target run in order, none before its time; those of different targets run in parallel.
pub fn inject(schedule: &[ScheduledFault], backend: &Backend, fleet: &Fleet<'_>) {
    let started = Instant::now();
    let targets: BTreeSet<_> = schedule.iter().map(|step| step.fault.target()).collect();
    std::thread::scope(|scope| {
        for target in targets {
            scope.spawn(move || {
                for step in schedule.iter().filter(|step| step.fault.target() == target) {
                    pause(step.at.saturating_sub(started.elapsed()));
                    inject_one(step.fault, backend, fleet);
                }
            });
        }
    });
}

fn inject_one(fault: Fault, backend: &Backend, fleet: &Fleet<'_>) {
    match fault {
        Fault::Kill { instance, downtime } => {
            fleet.kill(instance);
            pause(downtime);
            fleet.launch(instance);
        }
        Fault::Stop { instance, downtime } => {
            fleet.stop(instance);
            pause(downtime);
            fleet.launch(instance);
        }
        Fault::FailActor { instance, actor } => actor.inject(&fleet.endpoints_with_short_timeout()[instance]),
        Fault::Freeze { instance, duration } => {
            fleet.freeze(instance);
            pause(duration);
            fleet.resume(instance);
        }
        Fault::CutStore { instance } => fleet.store(instance).cut(),
        Fault::StallStore { instance, duration } => stall(fleet.store(instance), duration),
        Fault::CutCache { instance } => fleet.cache(instance).cut(),
        Fault::CutBroker { instance } => fleet.broker(instance).cut(),
        Fault::StallBroker { instance, duration } => stall(fleet.broker(instance), duration),
        Fault::KillStore { downtime } => kill(backend.services(), Service::Postgres, downtime),
        Fault::KillBroker { downtime } => kill(backend.services(), Service::Kafka, downtime),
        Fault::KillCache { downtime } => kill(backend.services(), Service::Redis, downtime),
        Fault::FreezeBroker { duration } => {
            backend.services().pause(Service::Kafka);
            pause(duration);
            backend.services().resume(Service::Kafka);
        }
        Fault::FlushCache => backend.flush_redis(),
    }
}

fn stall(proxy: &Proxy, duration: Duration) {
    proxy.stall();
    pause(duration);
    proxy.resume();
}

fn kill(services: &ServiceControl, service: Service, downtime: Duration) {
    services.kill(service);
    pause(downtime);
    services.start(service);
}
