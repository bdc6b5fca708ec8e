//! At-least-once mode: records without transactions and watermarks. One record of a key is in flight; a key stops at its first failure.
use crate::configuration::SendBehavior;
use crate::invariants::BrokenRule;
use crate::state::event_set::EventSet;
use crate::state::instance::BatchStage;
use crate::successors::{Component, Successors};

/// Sends of all claimed batches.
pub fn steps(steps: &mut Successors<'_>, instance: usize) {
    for partition in 0..steps.config.partitions {
        let batch = steps.from.instances[instance].workers[partition].batch;
        if batch.stage != BatchStage::Claimed || batch.refused.is_some() {
            continue;
        }
        let unsent = batch.rows.minus(batch.acknowledged);
        for row in unsent.iter().filter(|row| steps.config.events[*row].send_behavior != SendBehavior::Permanent) {
            let many = steps.breaks(BrokenRule::KeyHasManyRecordsInFlight);
            if many || !steps.config.earlier_of_key(row).any(|earlier| unsent.contains(earlier)) {
                send(steps, instance, partition, row);
            }
        }
    }
}

fn send(steps: &mut Successors<'_>, instance: usize, partition: usize, row: usize) {
    let (actor, object) = (Component::Instance(instance), Some(Component::Event(row)));
    steps.add(actor, "sends a record, and the broker acknowledges it", object, |next, config| {
        next.broker.append(config.events[row].key, row, None);
        next.check_records(config);
        let batch = &mut next.instances[instance].workers[partition].batch;
        batch.acknowledged.insert(row);
        if batch.rows.minus(batch.acknowledged).is_empty() {
            batch.stage = BatchStage::Committed;
        }
    });
    if steps.from.faults.lost_replies > 0 {
        steps.add(actor, "sends a record, and the acknowledgement is lost", object, |next, config| {
            next.faults.lost_replies -= 1;
            next.broker.append(config.events[row].key, row, None);
            next.check_records(config);
            next.instances[instance].remove(partition);
        });
    }
    if steps.from.faults.refusals > 0 && steps.config.events[row].send_behavior == SendBehavior::MayFail {
        let continues = steps.breaks(BrokenRule::KeyContinuesBehindFailedRecord);
        steps.add(actor, "receives the refusal of a record", object, |next, _| {
            next.faults.refusals -= 1;
            let batch = &mut next.instances[instance].workers[partition].batch;
            if continues {
                batch.rows = batch.rows.minus(EventSet::of(row));
                batch.failed.insert(row);
            } else {
                batch.refused = Some(row as u8);
            }
        });
    }
}
