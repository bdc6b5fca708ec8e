//! Publish: one transaction of a producer holds the batches of a cycle and their watermarks. Two producers take turns.
use crate::configuration::{Configuration, SendBehavior};
use crate::invariants::BrokenRule;
use crate::state::broker::TransactionStatus;
use crate::state::instance::{Batch, BatchStage, Phase, ProducerStatus, transactional_id};
use crate::state::system::System;
use crate::successors::{Component, Successors};

/// The steps of all producers of an instance.
pub fn steps(steps: &mut Successors<'_>, instance: usize) {
    for producer in 0..steps.config.producers {
        match steps.from.instances[instance].producers[producer].status {
            ProducerStatus::Closed => open_session(steps, instance, producer),
            ProducerStatus::Idle => begin(steps, instance, producer),
            ProducerStatus::InTransaction => end(steps, instance, producer),
            ProducerStatus::Committing => lose_commit_reply(steps, instance, producer),
        }
    }
}

fn open_session(steps: &mut Successors<'_>, instance: usize, producer: usize) {
    let id = transactional_id(instance, producer);
    steps.add(
        Component::Instance(instance),
        "opens a producer session",
        Some(Component::TransactionalId(id)),
        |next, _| {
            let epoch = next.broker.fence(id);
            let session = &mut next.instances[instance].producers[producer];
            (session.status, session.epoch) = (ProducerStatus::Idle, epoch);
        },
    );
}

/// Begins a transaction with all claimed batches of the session. It waits for the markers of the id's last transaction.
fn begin(steps: &mut Successors<'_>, instance: usize, producer: usize) {
    let id = transactional_id(instance, producer);
    let claimed: Vec<usize> =
        steps.from.instances[instance].batches(steps.config, producer, BatchStage::Claimed).collect();
    let can_be_sent = |partition: &usize| {
        let batch = &steps.from.instances[instance].workers[*partition].batch;
        let is_sendable = |row: usize| {
            !matches!(steps.config.events[row].send_behavior, SendBehavior::Permanent | SendBehavior::Poison)
        };
        batch.refused.is_none() && batch.rows.iter().all(is_sendable)
    };
    if claimed.is_empty() || !claimed.iter().all(can_be_sent) || !steps.from.broker.is_decided(id) {
        return;
    }
    let object = Some(Component::TransactionalId(id));
    steps.add(Component::Instance(instance), "sends its batches in a transaction", object, |next, config| {
        if next.broker.transactions[id].epoch != next.instances[instance].producers[producer].epoch {
            end_session(next, config, instance, producer);
            return;
        }
        next.broker.transactions[id].status = TransactionStatus::Open;
        for partition in claimed {
            let batch = &mut next.instances[instance].workers[partition].batch;
            batch.stage = BatchStage::Sent;
            next.broker.transactions[id].tokens[partition] = batch.token;
            for row in batch.rows.iter() {
                next.broker.append(config.events[row].key, row, Some(id as u8));
            }
        }
        let sender = &mut next.instances[instance];
        sender.producers[producer].status = ProducerStatus::InTransaction;
        sender.next_producer = ((producer + 1) % config.producers) as u8;
    });
}

fn end(steps: &mut Successors<'_>, instance: usize, producer: usize) {
    let id = transactional_id(instance, producer);
    let (actor, object) = (Component::Instance(instance), Some(Component::TransactionalId(id)));
    let session = steps.from.instances[instance].producers[producer];
    if session.must_abort {
        steps.add(actor, "aborts the whole transaction", object, |next, config| {
            abort(next, config, instance, producer);
        });
        return;
    }
    steps.add(actor, "requests the commit", object, |next, config| {
        next.broker.transactions[id].commit_request = session.epoch;
        next.instances[instance].producers[producer].status = ProducerStatus::Committing;
        if config.breaks(BrokenRule::SettlementBeforeCommit) {
            set_stage(next, config, instance, producer, BatchStage::Committed);
        }
    });
    if steps.from.faults.refusals > 0 {
        refuse(steps, instance, producer);
    }
}

/// The broker refuses a record: the transaction is aborted, and the row is excluded before the rest is sent again.
fn refuse(steps: &mut Successors<'_>, instance: usize, producer: usize) {
    for partition in steps.from.instances[instance].batches(steps.config, producer, BatchStage::Sent) {
        for row in steps.from.instances[instance].workers[partition].batch.rows.iter() {
            if steps.config.events[row].send_behavior != SendBehavior::MayFail {
                continue;
            }
            let text = "receives the refusal of a record, and aborts";
            steps.add(Component::Instance(instance), text, Some(Component::Event(row)), |next, config| {
                next.faults.refusals -= 1;
                if abort(next, config, instance, producer) {
                    next.instances[instance].workers[partition].batch.refused = Some(row as u8);
                }
            });
        }
    }
}

/// Aborts and awaits the confirmation. The batches keep their tokens and are sent again. Returns whether the session lives.
fn abort(next: &mut System, config: &Configuration, instance: usize, producer: usize) -> bool {
    let id = transactional_id(instance, producer);
    if next.broker.transactions[id].epoch != next.instances[instance].producers[producer].epoch {
        end_session(next, config, instance, producer);
        return false;
    }
    next.broker.abort(id);
    let session = &mut next.instances[instance].producers[producer];
    (session.status, session.must_abort) = (ProducerStatus::Idle, false);
    set_stage(next, config, instance, producer, BatchStage::Claimed);
    true
}

fn set_stage(next: &mut System, config: &Configuration, instance: usize, producer: usize, stage: BatchStage) {
    for partition in next.instances[instance].batches(config, producer, BatchStage::Sent) {
        next.instances[instance].workers[partition].batch.stage = stage;
    }
}

fn end_session(next: &mut System, config: &Configuration, instance: usize, producer: usize) {
    next.instances[instance].end_session(producer, config.breaks(BrokenRule::ClaimSurvivesSession));
}

/// The reply to the commit does not arrive in time: the outcome is unknown, so the session ends and its batches are resolved.
fn lose_commit_reply(steps: &mut Successors<'_>, instance: usize, producer: usize) {
    if steps.from.faults.lost_replies == 0 {
        return;
    }
    let object = Some(Component::TransactionalId(transactional_id(instance, producer)));
    steps.add(Component::Instance(instance), "receives no reply to its commit", object, |next, config| {
        next.faults.lost_replies -= 1;
        if config.breaks(BrokenRule::UnknownCommitMeansAborted) {
            set_stage(next, config, instance, producer, BatchStage::Claimed);
            next.instances[instance].end_session(producer, true);
        } else {
            end_session(next, config, instance, producer);
        }
    });
}

/// The commit request arrives at the coordinator, which decides the transaction and replies.
pub fn commit_arrives(next: &mut System, config: &Configuration, id: usize) {
    let transaction = &mut next.broker.transactions[id];
    let epoch = std::mem::take(&mut transaction.commit_request);
    let is_committed = transaction.epoch == epoch && transaction.status == TransactionStatus::Open;
    if is_committed {
        transaction.status = TransactionStatus::Prepared;
        next.check_records(config);
    }
    let (instance, producer) = (id / 2, id % 2);
    let session = &mut next.instances[instance].producers[producer];
    if session.status != ProducerStatus::Committing || session.epoch != epoch {
        return;
    }
    if is_committed {
        (session.status, session.must_abort) = (ProducerStatus::Idle, false);
        for partition in next.instances[instance].batches(config, producer, BatchStage::Sent) {
            let worker = &mut next.instances[instance].workers[partition];
            match worker.phase {
                Phase::Ready => worker.batch.stage = BatchStage::Committed,
                _ => worker.batch = Batch::default(),
            }
        }
    } else {
        end_session(next, config, instance, producer);
    }
}
