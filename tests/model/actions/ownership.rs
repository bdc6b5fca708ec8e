//! Leases: acquisition, renewal, loss, release.
use crate::actions::issue::{fence, issue, statement};
use crate::invariants::BrokenRule;
use crate::state::instance::{BatchStage, Phase, Worker};
use crate::state::statement::{StatementKind, StatementPart};
use crate::state::system::System;
use crate::successors::{Component, Successors};

/// Steps without a statement: the heartbeat reports a lost lease, or a worker panics.
pub fn local_steps(steps: &mut Successors<'_>, instance: usize, partition: usize) {
    let worker = steps.from.instances[instance].workers[partition];
    let (actor, object) = (Component::Instance(instance), Some(Component::Partition(partition)));
    if worker.phase == Phase::NotAcquired {
        return;
    }
    let lease = &steps.from.store.leases[partition];
    if !lease.is_held(instance as u8, worker.epoch) {
        steps.add(actor, "learns that its lease is lost", object, |next, _| reset_worker(next, instance, partition));
    }
    let has_batch = !matches!(worker.batch.stage, BatchStage::Absent | BatchStage::Committed);
    if has_batch && worker.phase == Phase::Ready && steps.from.faults.panics > 0 {
        let restarts_unfenced = steps.breaks(BrokenRule::RestartWithoutFence);
        steps.add(actor, "its worker panics", object, |next, _| {
            next.faults.panics -= 1;
            let former_id = next.store.leases[partition].transactional_id;
            let Worker { epoch, counter, batch, .. } = worker;
            next.instances[instance].workers[partition] = if restarts_unfenced {
                let open_token = batch.token;
                Worker { phase: Phase::Fenced, epoch, counter, former_id, open_token, batch, ..Worker::default() }
            } else {
                Worker { batch, ..Worker::default() }
            };
        });
    }
}

/// Resets the worker: its next step is an acquisition. If its batch is part of an open transaction, the whole transaction is aborted.
pub fn reset_worker(next: &mut System, instance: usize, partition: usize) {
    let instance = &mut next.instances[instance];
    let batch = instance.workers[partition].batch;
    if batch.stage == BatchStage::Sent {
        instance.producers[batch.producer as usize].must_abort = true;
    }
    instance.remove(partition);
}

/// Acquisition, renewal and release.
pub fn statements(steps: &mut Successors<'_>, instance: usize, partition: usize) {
    let worker = steps.from.instances[instance].workers[partition];
    let lease = steps.from.store.leases[partition];
    let object = Component::Partition(partition);
    if worker.phase == Phase::NotAcquired {
        let is_other = |owner: u8| owner as usize != instance && steps.from.instances[owner as usize].is_alive;
        if lease.is_expired || !lease.owner.is_some_and(is_other) {
            let acquire = statement(StatementKind::Acquire, instance, partition, StatementPart::default());
            issue(steps, "acquires", object, acquire, |_| {});
        }
        return;
    }
    let is_held = lease.is_held(instance as u8, worker.epoch);
    if is_held && lease.is_expired {
        steps.add(Component::Instance(instance), "renews its lease", Some(object), |next, _| {
            next.store.leases[partition].is_expired = false;
        });
    }
    let is_drained = worker.batch.stage == BatchStage::Absent
        || (worker.batch.stage == BatchStage::Sent && steps.breaks(BrokenRule::ReleaseWithOpenBatch));
    if worker.phase == Phase::Ready && is_drained && steps.from.faults.handovers > 0 {
        let release = statement(StatementKind::Release, instance, partition, fence(&worker));
        issue(steps, "releases", object, release, |next| next.faults.handovers -= 1);
    }
}
