//! Sending a statement: it executes and its reply arrives, or the reply is lost and the statement executes at any later moment.
use crate::configuration::{Configuration, DeliveryGuarantee, PARTITIONS_MAX};
use crate::invariants::BrokenRule;
use crate::state::event_set::EventSet;
use crate::state::execution::execute;
use crate::state::instance::{Batch, BatchStage, Instance, Phase, Worker};
use crate::state::statement::{Reply, ScanStart, Statement, StatementKind, StatementPart};
use crate::state::system::System;
use crate::successors::{Component, Successors};

/// A statement of this instance that names one partition.
pub fn statement(kind: StatementKind, instance: usize, partition: usize, part: StatementPart) -> Statement {
    let mut statement = Statement { kind, instance: instance as u8, ..Statement::default() };
    statement.parts[partition] = StatementPart { is_present: true, ..part };
    statement
}

/// The fence that a worker names in each statement: its epoch and the counter after its latest statement.
pub fn fence(worker: &Worker) -> StatementPart {
    StatementPart { is_present: true, epoch: worker.epoch, counter: worker.counter, ..StatementPart::default() }
}

/// Adds the step with a reply and, while the faults permit, the one without. `before` changes the sender first.
pub fn issue(
    steps: &mut Successors<'_>,
    text: &'static str,
    object: Component,
    statement: Statement,
    before: impl Fn(&mut System),
) {
    let actor = Component::Instance(statement.instance as usize);
    steps.add(actor, text, Some(object), |next, config| {
        before(next);
        let replies = execute(next, config, &statement);
        apply_replies(next, config, &statement, &replies);
    });
    let free = steps.from.statements.iter().position(Option::is_none);
    if let Some(free) = free.filter(|_| steps.from.faults.late_statements > 0) {
        steps.add(actor, late_text(statement.kind), Some(object), |next, config| {
            before(next);
            next.faults.late_statements -= 1;
            next.statements[free] = Some(statement);
            apply_lost_reply(next, config, &statement);
        });
    }
    let only_claims = statement.kind == StatementKind::Cycle && statement.parts.iter().all(|part| part.token == 0);
    if let Some(free) = free.filter(|_| only_claims && steps.from.faults.slow_claims > 0) {
        steps.add(actor, "claims, and the claim waits between its read and its write", Some(object), |next, _| {
            next.faults.slow_claims -= 1;
            hold_claim(next, free, statement);
        });
    }
}

fn hold_claim(next: &mut System, free: usize, statement: Statement) {
    next.statements[free] = Some(Statement { is_answered: true, ..statement });
    let instance = &mut next.instances[statement.instance as usize];
    for partition in (0..PARTITIONS_MAX).filter(|partition| statement.parts[*partition].is_present) {
        let producer = statement.producer;
        instance.workers[partition].batch = Batch { stage: BatchStage::Claiming, producer, ..Batch::default() };
    }
}

fn late_text(kind: StatementKind) -> &'static str {
    match kind {
        StatementKind::Acquire => "acquires, and the reply is lost",
        StatementKind::Cycle => "settles or claims, and the reply is lost",
        StatementKind::Exclude => "excludes a row, and the reply is lost",
        StatementKind::ResolvePublished | StatementKind::ResolveUnpublished => "resolves, and the reply is lost",
        StatementKind::RaiseCounter => "raises the counter, and the reply is lost",
        StatementKind::Release => "releases, and the reply is lost",
    }
}

/// Adds the steps in which statements execute after their replies were lost.
pub fn late_statements(steps: &mut Successors<'_>) {
    for slot in 0..steps.from.statements.len() {
        let Some(statement) = steps.from.statements[slot] else { continue };
        let sender = Component::Instance(statement.instance as usize);
        steps.add(Component::Store, "executes a late statement", Some(sender), |next, config| {
            next.statements[slot] = None;
            let mut replies = execute(next, config, &statement);
            for (partition, reply) in replies.iter_mut().enumerate() {
                let worker = &next.instances[statement.instance as usize].workers[partition];
                let waits =
                    worker.batch.stage == BatchStage::Claiming && worker.epoch == statement.parts[partition].epoch;
                if !statement.is_answered || !waits {
                    *reply = Reply::Absent;
                }
            }
            apply_replies(next, config, &statement, &replies);
        });
    }
}

/// The worker without a reply takes no action that is based on its previous state: it acquires and resolves. Only a settlement is repeated.
fn apply_lost_reply(next: &mut System, config: &Configuration, statement: &Statement) {
    let instance = &mut next.instances[statement.instance as usize];
    for partition in 0..PARTITIONS_MAX {
        let part = &statement.parts[partition];
        let only_settles = statement.kind == StatementKind::Cycle && part.rows.is_empty();
        if !part.is_present || only_settles {
            continue;
        }
        if statement.kind == StatementKind::Exclude && config.breaks(BrokenRule::UnansweredExclusionIgnored) {
            remove_excluded(&mut instance.workers[partition].batch, config, part.row as usize);
        } else {
            instance.remove(partition);
        }
    }
}

fn apply_replies(next: &mut System, config: &Configuration, statement: &Statement, replies: &[Reply; PARTITIONS_MAX]) {
    let (instance, rewinds) = (&mut next.instances[statement.instance as usize], config.rewinds());
    for (partition, reply) in replies.iter().enumerate() {
        let (part, worker) = (&statement.parts[partition], &mut instance.workers[partition]);
        match *reply {
            Reply::Absent => {}
            Reply::Stale | Reply::Held => instance.remove(partition),
            Reply::Acquired { epoch, counter, open_token, former_id } => {
                let keeps_scan = config.breaks(BrokenRule::ScanStartKeptAfterRewind);
                let scan = if keeps_scan { worker.scan } else { ScanStart::default() };
                let phase = match (open_token, config.guarantee) {
                    (0, _) => after_resolution(rewinds),
                    (_, DeliveryGuarantee::ExactlyOnce) => Phase::Acquired,
                    (_, DeliveryGuarantee::AtLeastOnce) => Phase::WatermarkRead,
                };
                let batch = worker.batch;
                *worker = Worker { phase, epoch, counter, former_id, open_token, watermark: 0, scan, batch };
            }
            Reply::Claimed { token, rows } => {
                (worker.counter, worker.scan) = (token, part.next_scan);
                let stage = if rows.is_empty() { BatchStage::Committed } else { BatchStage::Claimed };
                let (producer, is_trial) = (statement.producer, part.is_trial);
                worker.batch = Batch { stage, token, rows, producer, is_trial, ..Batch::default() };
            }
            Reply::Done { counter } => {
                worker.counter = counter;
                apply_done(instance, config, statement, partition);
            }
        }
    }
}

fn apply_done(instance: &mut Instance, config: &Configuration, statement: &Statement, partition: usize) {
    let (part, worker) = (&statement.parts[partition], &mut instance.workers[partition]);
    match statement.kind {
        StatementKind::Cycle => {
            let keeps_read = config.breaks(BrokenRule::RefusedClaimKeepsItsRead) && !part.rows.is_empty();
            worker.scan = if keeps_read { part.next_scan } else { part.settled_scan };
            worker.batch = Batch::default();
        }
        StatementKind::Exclude => {
            worker.batch.token =
                if config.breaks(BrokenRule::ExclusionKeepsToken) { part.token } else { worker.counter };
            remove_excluded(&mut worker.batch, config, part.row as usize);
            reset_scan(worker, config);
        }
        StatementKind::ResolvePublished | StatementKind::ResolveUnpublished => {
            let phase = if worker.phase == Phase::Ready { Phase::Ready } else { after_resolution(config.rewinds()) };
            let (epoch, counter, scan) = (worker.epoch, worker.counter, worker.scan);
            *worker = Worker { phase, epoch, counter, scan, ..Worker::default() };
            reset_scan(worker, config);
        }
        StatementKind::RaiseCounter => worker.phase = Phase::Ready,
        StatementKind::Acquire | StatementKind::Release => instance.remove(partition),
    }
}

/// Rows that return to the store may be below the remembered scan start.
fn reset_scan(worker: &mut Worker, config: &Configuration) {
    if !config.breaks(BrokenRule::ScanStartKeptAfterReturn) && !config.breaks(BrokenRule::ScanStartKeptAfterRewind) {
        worker.scan = ScanStart::default();
    }
}

fn after_resolution(rewinds: bool) -> Phase {
    if rewinds { Phase::CounterUnchecked } else { Phase::Ready }
}

/// The excluded row and the later rows of its key leave the batch.
pub fn remove_excluded(batch: &mut Batch, config: &Configuration, excluded: usize) -> EventSet {
    let key = config.events[excluded].key;
    let mut leaving = EventSet::of(excluded);
    batch
        .rows
        .iter()
        .filter(|row| *row > excluded && config.events[*row].key == key)
        .for_each(|row| leaving.insert(row));
    (batch.rows, batch.refused) = (batch.rows.minus(leaving), None);
    if batch.rows.minus(batch.acknowledged).is_empty() {
        batch.stage = BatchStage::Committed;
    }
    leaving
}
