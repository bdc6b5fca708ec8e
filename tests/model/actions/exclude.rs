//! Exclusions: a row that cannot be sent leaves its batch before the commit, and the store confirms it. Also the return of a whole batch.
use crate::actions::issue::{fence, issue, remove_excluded, statement};
use crate::configuration::SendBehavior;
use crate::invariants::BrokenRule;
use crate::state::event_set::EventSet;
use crate::state::instance::{Batch, BatchStage, Phase};
use crate::state::statement::{StatementKind, StatementPart};
use crate::state::system::System;
use crate::successors::{Component, Successors};

/// Exclusions of rows that were refused, or whose failure the worker foresees.
pub fn steps(steps: &mut Successors<'_>, instance: usize, partition: usize) {
    let worker = steps.from.instances[instance].workers[partition];
    if worker.phase != Phase::Ready {
        return;
    }
    return_batch(steps, instance, partition);
    if worker.batch.stage != BatchStage::Claimed {
        return;
    }
    if let Some(row) = worker.batch.refused {
        exclude(steps, instance, partition, row as usize, 0);
        return;
    }
    for row in worker.batch.rows.minus(worker.batch.acknowledged).iter() {
        match steps.config.events[row].send_behavior {
            SendBehavior::Permanent => exclude(steps, instance, partition, row, 0),
            SendBehavior::MayFail if steps.from.faults.refusals > 0 => exclude(steps, instance, partition, row, 1),
            SendBehavior::MayFail | SendBehavior::Healthy | SendBehavior::Poison => {}
        }
    }
}

/// `cost` is what the failure takes from the permitted refusals.
fn exclude(steps: &mut Successors<'_>, instance: usize, partition: usize, row: usize, cost: u8) {
    let worker = steps.from.instances[instance].workers[partition];
    if steps.breaks(BrokenRule::ExclusionAfterCommit) {
        steps.add(
            Component::Instance(instance),
            "leaves a failed row to the settlement",
            Some(Component::Event(row)),
            |next, config| {
                next.faults.refusals -= cost;
                let batch = &mut next.instances[instance].workers[partition].batch;
                let mut failed = batch.failed;
                remove_excluded(batch, config, row).iter().for_each(|row| failed.insert(row));
                batch.failed = failed;
            },
        );
        return;
    }
    let part = StatementPart { token: worker.batch.token, row: row as u8, ..fence(&worker) };
    let exclusion = statement(StatementKind::Exclude, instance, partition, part);
    issue(steps, "excludes a row", Component::Event(row), exclusion, |next: &mut System| next.faults.refusals -= cost);
}

/// A drain returns the rows that are not sent: they are due again under no token.
fn return_batch(steps: &mut Successors<'_>, instance: usize, partition: usize) {
    let worker = steps.from.instances[instance].workers[partition];
    let is_returned = match worker.batch.stage {
        BatchStage::Claimed => worker.batch.acknowledged == EventSet::default(),
        BatchStage::Sent => steps.breaks(BrokenRule::RowsReturnedInOpenTransaction),
        BatchStage::Absent | BatchStage::Claiming | BatchStage::Committed => false,
    };
    if steps.from.faults.handovers > 0 && is_returned {
        let part = StatementPart { token: worker.batch.token, ..fence(&worker) };
        let returned = statement(StatementKind::ResolveUnpublished, instance, partition, part);
        issue(
            steps,
            "returns its batch as not sent",
            Component::Partition(partition),
            returned,
            |next: &mut System| {
                next.faults.handovers -= 1;
                next.instances[instance].workers[partition].batch = Batch::default();
            },
        );
    }
}
