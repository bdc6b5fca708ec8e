//! Steps that no instance takes: writers commit, retries become due, leases expire, the coordinator works, operators act.
use crate::actions::publish::commit_arrives;
use crate::invariants::BrokenRule;
use crate::state::broker::{IDS, TransactionStatus};
use crate::state::store::RowStatus;
use crate::successors::{Component, Successors};

/// The steps of writers, retries, leases, the coordinator and operators.
pub fn steps(steps: &mut Successors<'_>) {
    for event in 0..steps.config.events.len() {
        row_steps(steps, event);
    }
    for partition in 0..steps.config.partitions {
        let lease = &steps.from.store.leases[partition];
        if lease.owner.is_some() && !lease.is_expired && steps.from.faults.expiries > 0 {
            steps.add(Component::Partition(partition), "its lease expires", None, |next, _| {
                next.faults.expiries -= 1;
                next.store.leases[partition].is_expired = true;
            });
        }
    }
    for id in 0..IDS {
        coordinator_steps(steps, id);
    }
}

fn row_steps(steps: &mut Successors<'_>, event: usize) {
    let row = steps.from.store.rows[event];
    let actor = Component::Event(event);
    let committed = |earlier: usize| steps.from.store.rows[earlier].status != RowStatus::Uncommitted;
    if row.status == RowStatus::Uncommitted && steps.config.earlier_of_key(event).all(committed) {
        steps.add(actor, "its transaction commits", None, |next, _| next.store.rows[event].status = RowStatus::Pending);
    }
    if row.status == RowStatus::Failed {
        steps.add(actor, "its retry is due", None, |next, _| next.store.rows[event].status = RowStatus::Due);
    }
    if row.status == RowStatus::InFlight
        && steps.breaks(BrokenRule::RowBecomesDueByTime)
        && steps.from.faults.expiries > 0
    {
        steps.add(actor, "its own lease time is over", None, |next, _| {
            next.faults.expiries -= 1;
            next.store.rows[event].make_due();
        });
    }
    if steps.from.faults.operator_calls > 0 {
        operator_steps(steps, event);
    }
}

/// Operators' statements touch only rows that wait, and raise the counter of the partition.
fn operator_steps(steps: &mut Successors<'_>, event: usize) {
    let (text, status) = match steps.from.store.rows[event].status {
        RowStatus::Pending | RowStatus::Failed | RowStatus::Due => ("an operator parks it", RowStatus::Parked),
        RowStatus::Parked => ("an operator retries it", RowStatus::Due),
        RowStatus::InFlight if steps.breaks(BrokenRule::OperatorChangesRowInFlight) => {
            ("an operator retries it", RowStatus::Due)
        }
        RowStatus::InFlight | RowStatus::Sent | RowStatus::Uncommitted | RowStatus::Erased => return,
    };
    steps.add(Component::Event(event), text, None, |next, config| {
        next.faults.operator_calls -= 1;
        let row = &mut next.store.rows[event];
        (row.status, row.token, row.blocks_key) = (status, 0, true);
        if !config.breaks(BrokenRule::OperatorKeepsCounter) {
            next.store.leases[config.events[event].partition].counter += 1;
        }
    });
}

fn coordinator_steps(steps: &mut Successors<'_>, id: usize) {
    let actor = Component::TransactionalId(id);
    let transaction = steps.from.broker.transactions[id];
    if transaction.commit_request != 0 {
        steps.add(actor, "the commit request arrives", None, |next, config| commit_arrives(next, config, id));
    }
    match transaction.status {
        TransactionStatus::Open if steps.from.faults.timeouts > 0 => {
            steps.add(actor, "its transaction times out", None, |next, _| {
                next.faults.timeouts -= 1;
                next.broker.fence(id);
            });
        }
        TransactionStatus::Prepared => {
            steps.add(actor, "its markers are written", None, |next, _| next.broker.write_markers(id));
        }
        TransactionStatus::Open | TransactionStatus::Absent => {}
    }
}
