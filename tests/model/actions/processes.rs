//! Processes die and start again. A poison event kills the process that handles it.
use crate::configuration::SendBehavior;
use crate::invariants::BrokenRule;
use crate::state::instance::{BatchStage, Instance};
use crate::state::system::System;
use crate::successors::{Component, Successors};

/// The crash of a process, its death by a poison event, and its restart.
pub fn steps(steps: &mut Successors<'_>, instance: usize) {
    let actor = Component::Instance(instance);
    let process = steps.from.instances[instance];
    if !process.is_alive {
        let forgets = steps.breaks(BrokenRule::TimelineRememberedInProcess);
        steps.add(actor, "starts again under its id", None, |next, _| {
            next.instances[instance].is_alive = true;
            next.instances[instance].timeline = next.store.timeline;
            next.store.ids_fenced |= forgets;
        });
        return;
    }
    if steps.from.faults.crashes > 0 {
        steps.add(actor, "its process dies", None, |next, _| {
            next.faults.crashes -= 1;
            die(next, instance);
        });
    }
    for worker in process.workers.iter().filter(|worker| worker.batch.stage == BatchStage::Claimed) {
        let is_poison = |row: &usize| steps.config.events[*row].send_behavior == SendBehavior::Poison;
        if let Some(row) = worker.batch.rows.iter().find(is_poison) {
            let object = Some(Component::Event(row));
            steps.add(actor, "handles a poison event, and its process dies", object, |next, _| die(next, instance));
        }
    }
}

/// The process loses its memory. Requests that it sent may still arrive. Guarantee 7: its open claims carry the death.
fn die(next: &mut System, instance: usize) {
    for lease in next.store.leases.iter_mut().filter(|lease| lease.owner == Some(instance as u8)) {
        lease.owner_died = true;
        lease.claimer_died |= lease.open_batch != 0 && !lease.awaits_resolution;
    }
    next.instances[instance] = Instance::default();
}
