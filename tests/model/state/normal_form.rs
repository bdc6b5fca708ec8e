//! The normal form of a state: states that differ only in numbers that no rule compares become one. Epochs, counters and tokens keep
//! their order and equality, and lose their size.
use crate::configuration::{Configuration, INSTANCES, PRODUCERS_MAX};
use crate::state::broker::IDS;
use crate::state::instance::{Phase, Worker};
use crate::state::statement::{Statement, StatementKind};
use crate::state::store::Store;
use crate::state::system::System;

/// Replaces the state by its normal form.
pub fn normalize(system: &mut System, config: &Configuration) {
    clear_unread(system, config);
    for partition in 0..config.partitions {
        mark_stale(system, partition);
        if config.drops_stale_statements {
            drop_stale_statements(system);
        }
        forget_old_watermarks(system, partition);
        compress(|ranks| epochs(system, partition, ranks));
        compress(|ranks| tokens(system, config, partition, ranks));
    }
    for id in (0..IDS).filter(|id| id % PRODUCERS_MAX < config.producers) {
        compress(|ranks| {
            let transaction = &mut system.broker.transactions[id];
            ranks.visit(&mut transaction.epoch);
            ranks.visit(&mut transaction.commit_request);
            ranks.visit(&mut system.instances[id / PRODUCERS_MAX].producers[id % PRODUCERS_MAX].epoch);
        });
    }
    if system.statements[0].is_none() {
        system.statements.swap(0, 1);
    }
}

/// The ranks of a group of numbers: one pass over the group collects them, a second one replaces each number by its rank. Zero stays zero.
/// Numbers stay below 64, because they are ranks already.
#[derive(Default)]
struct Ranks {
    used: u64,
    replaces: bool,
}

impl Ranks {
    fn visit(&mut self, number: &mut u8) {
        if !self.replaces {
            self.used |= 1 << *number;
        } else if *number != 0 {
            let smaller = self.used & !1 & ((1 << *number) - 1);
            *number = smaller.count_ones() as u8 + 1;
        }
    }
}

fn compress(mut pass: impl FnMut(&mut Ranks)) {
    let mut ranks = Ranks::default();
    pass(&mut ranks);
    ranks.replaces = true;
    pass(&mut ranks);
}

/// Fields that no step reads in the present phase.
fn clear_unread(system: &mut System, config: &Configuration) {
    for instance in &mut system.instances {
        for worker in &mut instance.workers {
            match worker.phase {
                Phase::NotAcquired => *worker = Worker { scan: worker.scan, batch: worker.batch, ..Worker::default() },
                Phase::Acquired | Phase::Fenced | Phase::WatermarkRead | Phase::WatermarkReadUnfenced => {}
                Phase::CounterUnchecked | Phase::Ready => {
                    (worker.former_id, worker.open_token, worker.watermark) = (None, 0, 0);
                }
            }
        }
    }
    if !config.counts_deaths {
        for lease in &mut system.store.leases {
            (lease.claimer_died, lease.owner_died, lease.awaits_resolution) = (false, false, false);
        }
    }
}

/// An epoch that does not hold the lease is stale, whatever its number is.
fn mark_stale(system: &mut System, partition: usize) {
    let lease = system.store.leases[partition];
    for instance in 0..INSTANCES {
        let worker = &mut system.instances[instance].workers[partition];
        if !lease.is_held(instance as u8, worker.epoch) {
            worker.epoch = 0;
        }
    }
    for statement in system.statements.iter_mut().flatten() {
        let part = &mut statement.parts[partition];
        if !lease.is_held(statement.instance, part.epoch) {
            part.epoch = 0;
        }
    }
}

/// A statement without a reply whose fences are all stale changes nothing, now or later.
fn drop_stale_statements(system: &mut System) {
    for slot in &mut system.statements {
        let is_dead = |statement: &Statement| {
            let fenced = statement.parts.iter().filter(|part| part.is_present);
            !statement.is_answered
                && statement.kind != StatementKind::Acquire
                && fenced.into_iter().all(|part| part.epoch == 0)
        };
        if slot.as_ref().is_some_and(is_dead) {
            *slot = None;
        }
    }
}

/// A watermark that is not above the counter counts only if a batch of that token may still be resolved.
fn forget_old_watermarks(system: &mut System, partition: usize) {
    let lease = system.store.leases[partition];
    let replica = system.replica.map_or(0, |replica| replica.leases[partition].open_batch);
    let is_rewindable = system.replica.is_some() || system.faults.rewinds > 0;
    let mut live = [lease.open_batch, replica, 0, 0, 0, 0];
    for (instance, pair) in system.instances.iter().zip(live[2..].chunks_mut(2)) {
        let worker = &instance.workers[partition];
        (pair[0], pair[1]) = (worker.open_token, worker.batch.token);
    }
    for watermarks in &mut system.broker.watermarks {
        let watermark = &mut watermarks[partition];
        if *watermark <= lease.counter && !live.contains(watermark) && !is_rewindable {
            *watermark = 0;
        }
    }
}

fn epochs(system: &mut System, partition: usize, ranks: &mut Ranks) {
    let System { store, replica, instances, statements, .. } = system;
    ranks.visit(&mut store.leases[partition].epoch);
    replica.iter_mut().for_each(|store| ranks.visit(&mut store.leases[partition].epoch));
    instances.iter_mut().for_each(|instance| ranks.visit(&mut instance.workers[partition].epoch));
    statements.iter_mut().flatten().for_each(|statement| ranks.visit(&mut statement.parts[partition].epoch));
}

fn tokens(system: &mut System, config: &Configuration, partition: usize, ranks: &mut Ranks) {
    let System { store, replica, instances, statements, broker, .. } = system;
    stored_tokens(store, config, partition, ranks);
    replica.iter_mut().for_each(|store| stored_tokens(store, config, partition, ranks));
    for instance in instances {
        let worker = &mut instance.workers[partition];
        ranks.visit(&mut worker.counter);
        ranks.visit(&mut worker.open_token);
        ranks.visit(&mut worker.watermark);
        ranks.visit(&mut worker.batch.token);
    }
    for statement in statements.iter_mut().flatten() {
        ranks.visit(&mut statement.parts[partition].counter);
        ranks.visit(&mut statement.parts[partition].token);
    }
    broker.transactions.iter_mut().for_each(|transaction| ranks.visit(&mut transaction.tokens[partition]));
    broker.watermarks.iter_mut().for_each(|watermarks| ranks.visit(&mut watermarks[partition]));
}

fn stored_tokens(store: &mut Store, config: &Configuration, partition: usize, ranks: &mut Ranks) {
    ranks.visit(&mut store.leases[partition].counter);
    ranks.visit(&mut store.leases[partition].open_batch);
    config.events_of(partition).for_each(|event| ranks.visit(&mut store.rows[event].token));
}
