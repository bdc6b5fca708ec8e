//! A store that is rewound: replication stops, and later the store fails over to the replica, which lost every commit since.
use crate::actions::ownership::reset_worker;
use crate::configuration::{EVENTS_MAX, PRODUCERS_MAX};
use crate::invariants::BrokenRule;
use crate::state::broker::IDS;
use crate::state::store::RowStatus;
use crate::state::system::{STATEMENTS_MAX, System};
use crate::successors::{Component, Successors};

/// Replication stops; the store fails over.
pub fn store_steps(steps: &mut Successors<'_>) {
    if steps.from.faults.rewinds > 0 {
        steps.add(Component::Store, "replication stops", None, |next, _| {
            next.faults.rewinds -= 1;
            next.replica = Some(next.store);
        });
    }
    if let Some(replica) = steps.from.replica.filter(|replica| *replica != steps.from.store) {
        steps.add(Component::Store, "fails over to the replica", None, |next, _| {
            let lost = next.store;
            (next.store, next.replica) = (replica, None);
            next.store.timeline += 1;
            next.store.ids_fenced = false;
            next.statements = [None; STATEMENTS_MAX];
            for event in 0..EVENTS_MAX {
                let row = &mut next.store.rows[event];
                if row.status == RowStatus::Uncommitted && lost.rows[event].status != RowStatus::Uncommitted {
                    row.status = RowStatus::Erased;
                } else if *row != lost.rows[event] && row.status != RowStatus::Sent {
                    next.may_repeat.insert(event);
                }
            }
        });
    }
}

/// A session finds another timeline: every worker is reset, remembered scan starts included.
pub fn detect_rewind(steps: &mut Successors<'_>, instance: usize) {
    let keeps_scan = steps.breaks(BrokenRule::ScanStartKeptAfterRewind);
    steps.add(Component::Instance(instance), "notices that the store was rewound", None, |next, config| {
        for partition in 0..config.partitions {
            let scan = next.instances[instance].workers[partition].scan;
            reset_worker(next, instance, partition);
            if keeps_scan {
                next.instances[instance].workers[partition].scan = scan;
            }
        }
        next.instances[instance].timeline = next.store.timeline;
    });
}

/// Every transactional id of the installation is fenced before the first claim.
pub fn fence_all(steps: &mut Successors<'_>, instance: usize) {
    if steps.from.store.ids_fenced {
        return;
    }
    let is_fenced = !steps.breaks(BrokenRule::IdsNotFencedAfterRewind);
    steps.add(Component::Instance(instance), "fences every transactional id", None, |next: &mut System, config| {
        next.store.ids_fenced = true;
        if is_fenced {
            for id in (0..IDS).filter(|id| id % PRODUCERS_MAX < config.producers) {
                next.broker.fence(id);
            }
            (0..PRODUCERS_MAX).for_each(|producer| next.instances[instance].end_session(producer, false));
        }
    });
}
