//! Resolve: fence the former transactional id, read the watermark at the last stable offset, compare it with the open token.
use crate::actions::issue::{fence, issue, statement};
use crate::invariants::BrokenRule;
use crate::state::broker::{IDS, TransactionStatus};
use crate::state::instance::{Phase, transactional_id};
use crate::state::statement::{StatementKind, StatementPart};
use crate::successors::{Component, Successors};

/// The fence of the former id and the read of its watermark.
pub fn broker_steps(steps: &mut Successors<'_>, instance: usize, partition: usize) {
    let worker = steps.from.instances[instance].workers[partition];
    let own = transactional_id(instance, steps.from.instances[instance].next_producer as usize);
    let former = worker.former_id.map_or(own, usize::from);
    let actor = Component::Instance(instance);
    let reads_first = steps.breaks(BrokenRule::WatermarkBeforeFence);
    let fences = if reads_first { Phase::WatermarkReadUnfenced } else { Phase::Acquired };
    let reads = if reads_first { Phase::Acquired } else { Phase::Fenced };
    if worker.phase == fences {
        let id = if steps.breaks(BrokenRule::SecondProducerNotFenced) { former / 2 * 2 } else { former };
        let is_fenced = !steps.breaks(BrokenRule::NoFence);
        let keeps = steps.breaks(BrokenRule::ClaimSurvivesSession);
        steps.add(actor, "fences the former id", Some(Component::TransactionalId(id)), |next, _| {
            if is_fenced {
                next.broker.fence(id);
                if id / 2 == instance {
                    next.instances[instance].end_session(id % 2, keeps);
                }
            }
            let phase = if reads_first { Phase::WatermarkRead } else { Phase::Fenced };
            next.instances[instance].workers[partition].phase = phase;
        });
    }
    if worker.phase == reads {
        let id = if steps.breaks(BrokenRule::WatermarkOfAnotherId) { own } else { former };
        if let Some(watermark) = steps.from.broker.watermark_of(steps.config, id, partition) {
            steps.add(actor, "reads the watermark", Some(Component::TransactionalId(id)), |next, _| {
                let worker = &mut next.instances[instance].workers[partition];
                worker.watermark = watermark;
                worker.phase = if reads_first { Phase::WatermarkReadUnfenced } else { Phase::WatermarkRead };
            });
        }
    }
}

/// The resolution itself, and the comparison of the counter with the watermarks of all ids.
pub fn statements(steps: &mut Successors<'_>, instance: usize, partition: usize) {
    let worker = steps.from.instances[instance].workers[partition];
    if worker.phase == Phase::WatermarkRead {
        let is_higher = worker.watermark > worker.open_token && steps.breaks(BrokenRule::HigherWatermarkMeansPublished);
        let is_assumed = steps.breaks(BrokenRule::AtLeastOnceResolvesAsPublished);
        let is_published = worker.watermark == worker.open_token || is_higher || is_assumed;
        let (kind, text) = match is_published {
            true => (StatementKind::ResolvePublished, "resolves the open batch as published"),
            false => (StatementKind::ResolveUnpublished, "resolves the open batch as not published"),
        };
        let part = StatementPart { token: worker.open_token, ..fence(&worker) };
        issue(steps, text, Component::Partition(partition), statement(kind, instance, partition, part), |_| {});
    }
    if worker.phase == Phase::CounterUnchecked {
        raise_counter(steps, instance, partition);
    }
}

/// A store that was rewound: the counter is raised above the largest watermark of the partition over all ids. The read is valid only
/// once the last stable offset of each id has reached the end that it had after the fence; transactions that began later do not count.
fn raise_counter(steps: &mut Successors<'_>, instance: usize, partition: usize) {
    let worker = steps.from.instances[instance].workers[partition];
    let is_fenced = steps.from.store.ids_fenced || steps.breaks(BrokenRule::CounterRaisedBeforeFence);
    let is_prepared = |id: usize| steps.from.broker.transactions[id].status == TransactionStatus::Prepared;
    let is_decided = !(0..IDS).any(is_prepared)
        || steps.breaks(BrokenRule::CounterRaisedBeforeLastStableOffset)
        || steps.breaks(BrokenRule::CounterRaisedBeforeFence);
    if !is_fenced || !is_decided {
        return;
    }
    let watermark = steps.from.broker.highest_watermark(partition);
    if watermark > worker.counter && !steps.breaks(BrokenRule::CounterNotRaisedAfterRewind) {
        let part = StatementPart { token: watermark, ..fence(&worker) };
        let raise = statement(StatementKind::RaiseCounter, instance, partition, part);
        issue(steps, "raises the counter above the watermarks", Component::Partition(partition), raise, |_| {});
    } else {
        let object = Some(Component::Partition(partition));
        steps.add(Component::Instance(instance), "finds the counter above all watermarks", object, |next, _| {
            next.instances[instance].workers[partition].phase = Phase::Ready;
        });
    }
}
