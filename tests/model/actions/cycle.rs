//! Cycles: one statement settles the batches of cycle N and claims those of cycle N + 1, for all partitions that have one.
use crate::actions::issue::{fence, issue};
use crate::configuration::DeliveryGuarantee;
use crate::invariants::BrokenRule;
use crate::state::event_set::EventSet;
use crate::state::instance::{BatchStage, Phase, ProducerStatus};
use crate::state::statement::{ScanStart, Statement, StatementKind, StatementPart};
use crate::state::store::Store;
use crate::successors::{Component, Successors};

/// Settlement alone, settlement with the next claim, claim alone, and the trial of a suspect.
pub fn steps(steps: &mut Successors<'_>, instance: usize) {
    let settles = settlement(steps, instance);
    let has_settlement = settles.parts.iter().any(|part| part.is_present);
    if has_settlement {
        issue(steps, "settles", Component::Instance(instance), settles, |_| {});
    }
    if !may_claim(steps, instance) {
        return;
    }
    let (has_work, has_trial) = steps.from.instances[instance].work();
    let together = steps.breaks(BrokenRule::TrialDuringOtherWork);
    let has_unresolved_trial =
        steps.from.store.leases.iter().any(|lease| lease.owner == Some(instance as u8) && lease.is_trial);
    let waits = has_trial || (has_unresolved_trial && !steps.breaks(BrokenRule::ClaimDuringOpenTrial));
    if !waits || together {
        let both = claims(steps, instance, settles);
        if both.parts.iter().any(|part| !part.rows.is_empty()) {
            let text = if has_settlement { "settles, and claims the next cycle" } else { "claims a cycle" };
            let producer = instance * 2 + both.producer as usize;
            issue(steps, text, Component::TransactionalId(producer), both, |_| {});
        }
    }
    let is_alone = !has_work && is_all_resolved(steps, instance);
    if is_alone || together || (!has_work && steps.breaks(BrokenRule::TrialDuringOpenBatch)) {
        trials(steps, instance);
    }
}

/// A claim needs a session to record, and after a rewind the fence of every id.
fn may_claim(steps: &Successors<'_>, instance: usize) -> bool {
    let instance = &steps.from.instances[instance];
    let producer = &instance.producers[instance.next_producer as usize];
    let has_session = match steps.config.guarantee {
        DeliveryGuarantee::ExactlyOnce => producer.status == ProducerStatus::Idle,
        DeliveryGuarantee::AtLeastOnce => true,
    };
    has_session && steps.from.store.ids_fenced
}

/// The settlement of all committed batches, by token.
fn settlement(steps: &Successors<'_>, instance: usize) -> Statement {
    let workers = &steps.from.instances[instance].workers;
    let producer = steps.from.instances[instance].next_producer;
    let mut statement =
        Statement { kind: StatementKind::Cycle, instance: instance as u8, producer, ..Statement::default() };
    for (partition, worker) in workers.iter().enumerate() {
        if worker.phase == Phase::Ready && worker.batch.stage == BatchStage::Committed {
            let part = &mut statement.parts[partition];
            *part = fence(worker);
            (part.token, part.failed) = (worker.batch.token, worker.batch.failed);
            let rows = steps.from.store.rows_of_token(steps.config, partition, part.token);
            let unblocks = rows.iter().any(|row| steps.from.store.rows[row].blocks_key);
            let resets = unblocks && !steps.breaks(BrokenRule::ScanStartKeptAfterUnblock);
            part.settled_scan = if resets { ScanStart::default() } else { worker.scan };
        }
    }
    statement
}

/// Adds the claims of all partitions without an open batch. The read sees the store as if the settlement were done.
fn claims(steps: &Successors<'_>, instance: usize, settles: Statement) -> Statement {
    let mut statement = settles;
    for (partition, worker) in steps.from.instances[instance].workers.iter().enumerate().take(steps.config.partitions) {
        let is_free = match worker.batch.stage {
            BatchStage::Absent | BatchStage::Committed => true,
            BatchStage::Sent => steps.breaks(BrokenRule::ClaimDespiteOpenBatch),
            BatchStage::Claiming | BatchStage::Claimed => false,
        };
        if worker.phase != Phase::Ready || !is_free {
            continue;
        }
        let part = &mut statement.parts[partition];
        let scan = if part.is_present { part.settled_scan } else { worker.scan };
        let store = settled(steps, partition, part.token, part.failed);
        let (rows, next_scan) = store.scan(steps.config, partition, scan);
        if !rows.is_empty() {
            *part = StatementPart { rows, next_scan, settled_scan: scan, ..*part };
            (part.is_present, part.epoch, part.counter) = (true, worker.epoch, worker.counter);
        }
    }
    statement
}

fn settled(steps: &Successors<'_>, partition: usize, token: u8, failed: EventSet) -> Store {
    let mut store = steps.from.store;
    if token != 0 {
        for event in store.rows_of_token(steps.config, partition, token).minus(failed).iter() {
            store.rows[event].settle();
        }
    }
    store
}

/// Whether no partition that the instance holds waits for a resolution. An open batch of a session that has ended counts as work: if the
/// process dies before the resolution, the store takes the batch's claimer for dead.
fn is_all_resolved(steps: &Successors<'_>, instance: usize) -> bool {
    let workers = &steps.from.instances[instance].workers;
    let leases = steps.from.store.leases.iter().zip(workers);
    leases.into_iter().all(|(lease, worker)| lease.owner != Some(instance as u8) || worker.phase == Phase::Ready)
}

/// Guarantee 7: a suspect is tried alone, as the only work of its process.
fn trials(steps: &mut Successors<'_>, instance: usize) {
    let producer = steps.from.instances[instance].next_producer;
    for partition in 0..steps.config.partitions {
        let worker = steps.from.instances[instance].workers[partition];
        let suspect = steps.from.store.due_suspect(steps.config, partition);
        if let Some(suspect) =
            suspect.filter(|_| worker.phase == Phase::Ready && worker.batch.stage == BatchStage::Absent)
        {
            let mut trial =
                Statement { kind: StatementKind::Cycle, instance: instance as u8, producer, ..Statement::default() };
            trial.parts[partition] = fence(&worker);
            let part = &mut trial.parts[partition];
            (part.rows, part.is_trial, part.next_scan) = (EventSet::of(suspect), true, worker.scan);
            issue(steps, "claims a suspect for a trial", Component::Event(suspect), trial, |_| {});
        }
    }
}
