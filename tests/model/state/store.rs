//! The store: outbox rows and lease rows. A lease row is its partition's only point of concurrency.
use crate::configuration::{Configuration, EVENTS_MAX, PARTITIONS_MAX};
use crate::invariants::BrokenRule;
use crate::state::event_set::EventSet;
use crate::state::statement::ScanStart;

/// State of an outbox row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RowStatus {
    /// Its transaction has drawn its id or will, and has not committed.
    #[default]
    Uncommitted,
    /// Ready for its first attempt.
    Pending,
    /// Claimed under the row's token.
    InFlight,
    /// Waits for its retry.
    Failed,
    /// A failed row whose retry is due.
    Due,
    /// Waits for an operator.
    Parked,
    /// Settled: the broker has its event.
    Sent,
    /// Its insert was lost when the store was rewound: the order no longer exists.
    Erased,
}

/// A row of the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    pub status: RowStatus,
    /// The claim that holds it; zero unless it is in flight.
    pub token: u8,
    /// Whether later rows of its key wait for it: set by a failure, cleared when it is sent.
    pub blocks_key: bool,
    /// Deaths of claimers that held it.
    pub deaths: u8,
    /// Deaths while it was the only work of its process.
    pub trial_deaths: u8,
}

impl Row {
    /// Whether it may be claimed only by a trial.
    pub fn is_suspect(&self, config: &Configuration) -> bool {
        self.deaths >= config.suspect_deaths
    }

    /// Ends its claim. What it waited for before the claim, it waits for again.
    pub fn make_due(&mut self) {
        self.token = 0;
        self.status = if self.blocks_key { RowStatus::Due } else { RowStatus::Pending };
    }

    /// Settles it and forgets its failures.
    pub fn settle(&mut self) {
        *self = Row { status: RowStatus::Sent, ..Row::default() };
    }
}

/// The lease row of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    pub owner: Option<u8>,
    /// Number of its latest acquisition.
    pub epoch: u8,
    pub is_expired: bool,
    /// Raised by each statement that changes rows of the partition.
    pub counter: u8,
    /// Token of the open batch; zero if there is none.
    pub open_batch: u8,
    /// Transactional id under which the open batch is sent.
    pub transactional_id: Option<u8>,
    /// Whether the open batch is a trial of a suspect.
    pub is_trial: bool,
    /// Whether the claimer of the open batch died before another acquisition.
    pub claimer_died: bool,
    /// Whether the latest owner's process died.
    pub owner_died: bool,
    /// Whether the open batch was claimed before the latest acquisition.
    pub awaits_resolution: bool,
}

impl Lease {
    /// Whether this owner and epoch hold the lease. Expiry alone takes nothing from an owner: only another acquisition does.
    pub fn is_held(&self, owner: u8, epoch: u8) -> bool {
        self.owner == Some(owner) && self.epoch == epoch
    }

    /// Forgets the open batch.
    pub fn close_batch(&mut self) {
        (self.open_batch, self.transactional_id) = (0, None);
        (self.is_trial, self.claimer_died, self.awaits_resolution) = (false, false, false);
    }
}

/// All rows and leases, and the history that they belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    pub rows: [Row; EVENTS_MAX],
    pub leases: [Lease; PARTITIONS_MAX],
    /// Number of times that the store was rewound.
    pub timeline: u8,
    /// Whether every transactional id was fenced since then. The store remembers it, because a process may die in between.
    pub ids_fenced: bool,
}

impl Store {
    /// Rows of this partition that carry the token.
    pub fn rows_of_token(&self, config: &Configuration, partition: usize, token: u8) -> EventSet {
        let mut rows = EventSet::default();
        for event in config.events_of(partition) {
            if self.rows[event].status == RowStatus::InFlight && self.rows[event].token == token {
                rows.insert(event);
            }
        }
        rows
    }

    /// The read of an ordinary claim: rows in id order up to the batch size. Pending rows above the scan start whose key does not wait, and
    /// failed rows that are due and first of their key. Also returns the start of the next scan.
    pub fn scan(&self, config: &Configuration, partition: usize, scan: ScanStart) -> (EventSet, ScanStart) {
        let is_committed = |event: &usize| self.rows[*event].status != RowStatus::Uncommitted;
        let first_late = scan.unfinished.iter().find(is_committed).unwrap_or(usize::MAX);
        let start = first_late.min(scan.position as usize);
        let (mut rows, mut is_complete, mut last_ready) = (EventSet::default(), true, None);
        let mut limit = config.batch;
        for event in config.events_of(partition) {
            let row = &self.rows[event];
            let is_ready = row.status == RowStatus::Pending && event >= start;
            let is_head = row.status == RowStatus::Due && !row.is_suspect(config);
            if !(is_ready || is_head) || self.waits_for_earlier(config, event) {
                continue;
            }
            limit = if row.deaths > 0 { 1 } else { limit };
            is_complete = rows.len() < limit;
            if !is_complete {
                break;
            }
            rows.insert(event);
            last_ready = if is_ready { Some(event) } else { last_ready };
        }
        let passed = last_ready.map_or(start, |last| last + 1);
        let position = if is_complete { passed.max(scan.position as usize) } else { passed };
        (rows, self.next_scan(config, position, is_complete))
    }

    /// Guarantee 3: a scan may start only below the ids of the transactions that had not ended when its start was recorded, and whose rows can
    /// therefore still appear. One that still runs brings no rows and does not hold the start back.
    fn next_scan(&self, config: &Configuration, position: usize, is_complete: bool) -> ScanStart {
        let drawn = self.last_drawn_id().map_or(0, |last| last + 1);
        let from_sequence = config.breaks(BrokenRule::ScanStartFromSequence);
        let position = if from_sequence && is_complete { drawn } else { position };
        let mut unfinished = EventSet::default();
        if !from_sequence && !config.breaks(BrokenRule::ScanStartForgetsLateCommitters) {
            let is_unfinished = |event: &usize| self.rows[*event].status == RowStatus::Uncommitted;
            (0..position).filter(is_unfinished).for_each(|event| unfinished.insert(event));
        }
        ScanStart { position: position as u8, unfinished }
    }

    /// The suspect that a trial takes, unless an earlier row of its key has not left.
    pub fn due_suspect(&self, config: &Configuration, partition: usize) -> Option<usize> {
        config.events_of(partition).find(|event| {
            let row = &self.rows[*event];
            let left = |earlier: usize| matches!(self.rows[earlier].status, RowStatus::Sent | RowStatus::Erased);
            row.status == RowStatus::Due && row.is_suspect(config) && config.earlier_of_key(*event).all(left)
        })
    }

    /// Order per key: a row waits while an earlier row of its key is in flight, waits for its retry, or is parked and blocks the key.
    fn waits_for_earlier(&self, config: &Configuration, event: usize) -> bool {
        if config.breaks(BrokenRule::BlockedKeyOvertaken) {
            return false;
        }
        config
            .earlier_of_key(event)
            .any(|earlier| self.rows[earlier].blocks_key || self.rows[earlier].status == RowStatus::InFlight)
    }

    /// The largest id that was drawn: every smaller id belongs to a transaction that has ended or still runs.
    pub fn last_drawn_id(&self) -> Option<usize> {
        (0..EVENTS_MAX).rev().find(|event| self.rows[*event].status != RowStatus::Uncommitted)
    }
}
