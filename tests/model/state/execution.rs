//! The store executes statements. Each is one transaction; it changes a partition only if its fence is up to date (guarantee 4).
use crate::configuration::{Configuration, PARTITIONS_MAX, SendBehavior, TRIAL_DEATHS_MAX};
use crate::invariants::{BrokenRule, Violation};
use crate::state::broker::IDS;
use crate::state::event_set::EventSet;
use crate::state::instance::transactional_id;
use crate::state::statement::{Reply, Statement, StatementKind, StatementPart};
use crate::state::store::{Row, RowStatus, Store};
use crate::state::system::System;

/// Executes the statement; one reply for each partition.
pub fn execute(system: &mut System, config: &Configuration, statement: &Statement) -> [Reply; PARTITIONS_MAX] {
    let before = system.store;
    let mut replies = [Reply::Absent; PARTITIONS_MAX];
    if statement.kind == StatementKind::Cycle {
        execute_cycle(system, config, statement, &mut replies);
    } else {
        execute_parts(system, config, statement, &mut replies);
    }
    check_fences(system, config, statement, &before);
    replies
}

/// Guarantee 4, whatever the statement itself compared: a partition that its sender did not hold is as it was. An acquisition needs no lease.
fn check_fences(system: &mut System, config: &Configuration, statement: &Statement, before: &Store) {
    let is_stale = |partition: &usize| {
        let part = &statement.parts[*partition];
        part.is_present && !before.leases[*partition].is_held(statement.instance, part.epoch)
    };
    let has_changed = |partition: usize| {
        let rows_changed = config.events_of(partition).any(|event| before.rows[event] != system.store.rows[event]);
        rows_changed || before.leases[partition] != system.store.leases[partition]
    };
    if statement.kind != StatementKind::Acquire && (0..PARTITIONS_MAX).filter(is_stale).any(has_changed) {
        system.report(config, Violation::StaleStatementTookEffect);
    }
}

fn execute_parts(system: &mut System, config: &Configuration, statement: &Statement, replies: &mut [Reply; 2]) {
    for (partition, reply) in replies.iter_mut().enumerate() {
        if statement.parts[partition].is_present {
            *reply = match statement.kind {
                StatementKind::Acquire => acquire(system, config, statement, partition),
                StatementKind::Exclude => exclude(system, config, statement, partition),
                StatementKind::ResolvePublished | StatementKind::ResolveUnpublished => {
                    resolve(system, config, statement, partition)
                }
                StatementKind::RaiseCounter => raise_counter(system, config, statement, partition),
                StatementKind::Release => release(system, config, statement, partition),
                StatementKind::Cycle => Reply::Absent,
            };
        }
    }
}

fn is_held(system: &System, statement: &Statement, partition: usize) -> bool {
    system.store.leases[partition].is_held(statement.instance, statement.parts[partition].epoch)
}

/// Whether the fence names owner, epoch and counter of the lease row.
fn is_current(system: &System, statement: &Statement, partition: usize) -> bool {
    let counter = statement.parts[partition].counter;
    is_held(system, statement, partition) && system.store.leases[partition].counter == counter
}

/// Takes the lease unless another live instance holds it. The open batch, its token and its transactional id stay in the row.
fn acquire(system: &mut System, config: &Configuration, statement: &Statement, partition: usize) -> Reply {
    let owner_is_dead = |owner: u8| !system.instances[owner as usize].is_alive;
    let lease = system.store.leases[partition];
    let is_free = lease.owner.is_none_or(|owner| owner == statement.instance || owner_is_dead(owner));
    if !is_free && !lease.is_expired {
        return Reply::Held;
    }
    if lease.owner_died && config.counts_deaths {
        for event in config.events_of(partition) {
            let row = &mut system.store.rows[event];
            if row.status != RowStatus::InFlight {
                (row.deaths, row.trial_deaths) = (0, 0);
            }
        }
    }
    let lease = &mut system.store.leases[partition];
    lease.owner = Some(statement.instance);
    lease.epoch += 1;
    (lease.is_expired, lease.owner_died, lease.awaits_resolution) = (false, false, lease.open_batch != 0);
    let former_id = lease.transactional_id;
    if config.breaks(BrokenRule::FormerIdReplacedAtAcquisition) && former_id.is_some() {
        lease.transactional_id = Some(transactional_id(statement.instance as usize, 0) as u8);
    }
    Reply::Acquired { epoch: lease.epoch, counter: lease.counter, open_token: lease.open_batch, former_id }
}

fn execute_cycle(system: &mut System, config: &Configuration, statement: &Statement, replies: &mut [Reply; 2]) {
    let present = (0..PARTITIONS_MAX).filter(|partition| statement.parts[*partition].is_present);
    let stale = present.clone().filter(|partition| !is_cycle_part_current(system, statement, *partition)).count();
    let valid = present.clone().count() - stale;
    for partition in present {
        let is_stale = !is_cycle_part_current(system, statement, partition);
        if is_stale && valid > 0 && config.breaks(BrokenRule::StaleLeasePassesInCycle) {
            let token = statement.parts[partition].counter + 1;
            let rows = take_rows(system, &statement.parts[partition], token);
            replies[partition] = Reply::Claimed { token, rows };
        } else if stale > 0 && !is_stale && config.breaks(BrokenRule::StaleLeaseFailsCycle) {
            replies[partition] = Reply::Stale;
            system.report(config, Violation::OtherPartitionFailed);
        } else {
            replies[partition] = cycle_part(system, config, statement, partition);
        }
    }
}

fn is_cycle_part_current(system: &System, statement: &Statement, partition: usize) -> bool {
    let (lease, token) = (&system.store.leases[partition], statement.parts[partition].token);
    is_held(system, statement, partition) && lease.open_batch == token
}

/// Settles the batch of this token, then claims. Both halves commit together.
fn cycle_part(system: &mut System, config: &Configuration, statement: &Statement, partition: usize) -> Reply {
    let part = statement.parts[partition];
    let claims = !part.rows.is_empty();
    let torn = config.breaks(BrokenRule::ClaimStoredWithoutSettlement) && claims;
    let mut known = part.counter;
    if part.token != 0 && !torn {
        if !settle(system, config, statement, partition) {
            return Reply::Stale;
        }
        known += 1;
    }
    if claims && may_claim(system, config, statement, partition, known) {
        return claim(system, config, statement, partition);
    }
    if part.token != 0 && !torn {
        return Reply::Done { counter: system.store.leases[partition].counter };
    }
    Reply::Stale
}

/// Compares owner, epoch and token. The token alone names the batch, so the counter is not compared.
fn settle(system: &mut System, config: &Configuration, statement: &Statement, partition: usize) -> bool {
    let part = &statement.parts[partition];
    let lease = system.store.leases[partition];
    let has_token = lease.open_batch == part.token;
    let is_current = match config.broken {
        Some(BrokenRule::SettlementWithoutToken) => is_held(system, statement, partition),
        Some(BrokenRule::SettlementWithoutEpochAndToken) => true,
        _ => is_held(system, statement, partition) && has_token,
    };
    if !is_current {
        return false;
    }
    for event in system.store.rows_of_token(config, partition, lease.open_batch).iter() {
        let row = &mut system.store.rows[event];
        if part.failed.contains(event) {
            *row = Row { status: RowStatus::Failed, blocks_key: true, ..Row::default() };
        } else {
            row.settle();
        }
    }
    let lease = &mut system.store.leases[partition];
    lease.close_batch();
    lease.counter += 1;
    true
}

fn may_claim(system: &System, config: &Configuration, statement: &Statement, partition: usize, known: u8) -> bool {
    let lease = &system.store.leases[partition];
    let is_free = lease.open_batch == 0;
    match config.broken {
        Some(BrokenRule::ClaimWithoutFence) => is_free,
        Some(BrokenRule::ClaimDespiteOpenBatch) => is_held(system, statement, partition) && !lease.is_expired,
        Some(BrokenRule::ClaimStoredWithoutSettlement) if lease.open_batch != 0 => {
            is_held(system, statement, partition) && lease.open_batch == statement.parts[partition].token
        }
        _ => {
            let counts = lease.counter == known || config.breaks(BrokenRule::ClaimWithoutCounter);
            is_held(system, statement, partition) && counts && is_free && !lease.is_expired
        }
    }
}

/// Claims the rows that the read found. The new counter is the batch's token; the session's transactional id is recorded with it.
fn claim(system: &mut System, config: &Configuration, statement: &Statement, partition: usize) -> Reply {
    let part = statement.parts[partition];
    let token = system.store.leases[partition].counter + 1;
    if config.breaks(BrokenRule::ClaimReportedWithoutStore) && part.token != 0 {
        return Reply::Claimed { token, rows: part.rows };
    }
    let is_reused = (0..IDS).any(|id| {
        let pending = system.broker.transactions[id].tokens[partition];
        system.broker.watermarks[id][partition].max(pending) >= token
    });
    if is_reused {
        system.report(config, Violation::TokenReused);
    }
    let lease = &mut system.store.leases[partition];
    (lease.counter, lease.open_batch, lease.is_trial) = (token, token, part.is_trial);
    (lease.awaits_resolution, lease.claimer_died) = (false, false);
    let id = transactional_id(statement.instance as usize, statement.producer as usize) as u8;
    lease.transactional_id = (!config.breaks(BrokenRule::ClaimRecordsNoId)).then_some(id);
    Reply::Claimed { token, rows: take_rows(system, &part, token) }
}

fn take_rows(system: &mut System, part: &StatementPart, token: u8) -> EventSet {
    let mut taken = EventSet::default();
    for event in part.rows.iter() {
        let row = &mut system.store.rows[event];
        if matches!(row.status, RowStatus::Pending | RowStatus::Due) {
            (row.status, row.token) = (RowStatus::InFlight, token);
            taken.insert(event);
        }
    }
    taken
}

/// The row fails or is parked; later rows of its key in the batch are due again; the rest of the batch gets a new token.
fn exclude(system: &mut System, config: &Configuration, statement: &Statement, partition: usize) -> Reply {
    let part = &statement.parts[partition];
    let open = system.store.leases[partition].open_batch;
    let is_fenced = config.breaks(BrokenRule::ExclusionWithoutFence) || is_current(system, statement, partition);
    if !is_fenced || open != part.token || open == 0 {
        return Reply::Stale;
    }
    let counter = system.store.leases[partition].counter + 1;
    let token = if config.breaks(BrokenRule::ExclusionKeepsToken) { open } else { counter };
    let excluded = part.row as usize;
    let key = config.events[excluded].key;
    let is_permanent = config.events[excluded].send_behavior == SendBehavior::Permanent;
    for event in system.store.rows_of_token(config, partition, open).iter() {
        let row = &mut system.store.rows[event];
        if event == excluded {
            row.token = 0;
            row.status = if is_permanent { RowStatus::Parked } else { RowStatus::Failed };
            row.blocks_key = !(is_permanent && config.skips_parked_rows);
        } else if event > excluded && config.events[event].key == key {
            row.make_due();
        } else {
            row.token = token;
        }
    }
    let lease = &mut system.store.leases[partition];
    (lease.counter, lease.open_batch) = (counter, token);
    Reply::Done { counter }
}

fn resolve(system: &mut System, config: &Configuration, statement: &Statement, partition: usize) -> Reply {
    let part = statement.parts[partition];
    let lease = system.store.leases[partition];
    let is_fenced = config.breaks(BrokenRule::ResolutionWithoutFence) || is_current(system, statement, partition);
    let is_open = lease.open_batch == part.token || config.breaks(BrokenRule::ResolutionWithoutFence);
    if !is_fenced || !is_open || lease.open_batch == 0 {
        return Reply::Stale;
    }
    let died = lease.claimer_died || config.breaks(BrokenRule::FencedClaimerCountsAsDead);
    for event in system.store.rows_of_token(config, partition, lease.open_batch).iter() {
        let row = &mut system.store.rows[event];
        if statement.kind == StatementKind::ResolvePublished {
            row.settle();
        } else if died && config.counts_deaths && !config.breaks(BrokenRule::DeathsNotCounted) {
            count_death(row, config, lease.is_trial);
            if row.status == RowStatus::Parked && config.events[event].send_behavior != SendBehavior::Poison {
                system.report(config, Violation::HealthyEventParked);
            }
        } else {
            row.make_due();
        }
    }
    let lease = &mut system.store.leases[partition];
    lease.close_batch();
    lease.counter += 1;
    Reply::Done { counter: lease.counter }
}

/// Guarantee 7: each row of a claim whose claimer died carries the death. Only deaths in trials park a row.
fn count_death(row: &mut Row, config: &Configuration, is_trial: bool) {
    row.deaths = (row.deaths + 1).min(config.suspect_deaths);
    row.trial_deaths += u8::from(is_trial);
    row.blocks_key |= row.is_suspect(config);
    row.make_due();
    if is_trial && row.trial_deaths >= TRIAL_DEATHS_MAX {
        row.status = RowStatus::Parked;
    }
}

fn raise_counter(system: &mut System, config: &Configuration, statement: &Statement, partition: usize) -> Reply {
    if !is_held(system, statement, partition) && !config.breaks(BrokenRule::CounterRaisedWithoutFence) {
        return Reply::Stale;
    }
    let (watermark, lease) = (statement.parts[partition].token, &mut system.store.leases[partition]);
    lease.counter = lease.counter.max(watermark) + 1;
    Reply::Done { counter: lease.counter }
}

/// A handover releases a drained partition: the store refuses the release while a batch is open.
fn release(system: &mut System, config: &Configuration, statement: &Statement, partition: usize) -> Reply {
    let ignores_batch = config.breaks(BrokenRule::ReleaseWithOpenBatch);
    let is_fenced = config.breaks(BrokenRule::ReleaseWithoutFence) || is_held(system, statement, partition);
    let lease = &mut system.store.leases[partition];
    if !is_fenced || (lease.open_batch != 0 && !ignores_batch) {
        return Reply::Stale;
    }
    lease.owner = None;
    lease.is_expired = false;
    if ignores_batch {
        lease.close_batch();
    }
    Reply::Done { counter: lease.counter }
}
