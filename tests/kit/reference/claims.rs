//! The claims of the reference: a scan of one partition in id order that skips the rows of blocked keys.
use std::collections::BTreeSet;
use std::time::Duration;

use domain::Timestamp;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, ClaimedBatch, ClaimedRow, RowId, RowStatus};
use ports::partitions::PartitionNo;

use crate::reference::state::{OpenClaim, Row, State};

/// A row with this many deaths is a suspect.
const SUSPECT_DEATHS: u32 = 3;
/// Each death of a row in a batch divides the batch's limit by this factor.
const LIMIT_DIVISOR: u32 = 8;

/// The result of scanning one partition.
#[derive(Default)]
struct Scan {
    rows: Vec<RowId>,
    deaths_max: u32,
    more: bool,
    next_due: Option<Duration>,
    suspect_due: bool,
}

impl State {
    /// Claims. PENDING rows up to id `start` are not seen: a scan that remembers where it begins does not read them.
    pub(crate) fn claim(&mut self, claim: Claim, start: RowId, now: Timestamp) -> ClaimOutcome {
        let Claim { fence, session, limit, kind } = claim;
        let lease = self.lease(fence.partition);
        let may_claim = lease.is_held_by(&fence.owner, fence.epoch) && lease.is_valid(now);
        if !may_claim || lease.counter != fence.counter || lease.open.is_some() {
            return ClaimOutcome::Fenced;
        }
        let scan = self.scan((fence.partition, start), kind, limit, now);
        if scan.rows.is_empty() {
            return ClaimOutcome::NoneDue { next_due: scan.next_due, suspect_due: scan.suspect_due };
        }
        let token = fence.counter + 1;
        let lease = self.lease(fence.partition);
        lease.counter = token;
        lease.open = Some(OpenClaim { token, session, claimer_died: false, trial: kind == ClaimKind::Trial });
        let take = |id: &RowId| {
            let row = self.rows.get_mut(id).expect("the scan found the row");
            row.status = RowStatus::InFlight;
            row.attempts += 1;
            row.last_attempts = [Some(now), row.last_attempts[0]];
            row.token = token;
            row.owner = Some(fence.owner.clone());
            row.due = None;
            claimed(row)
        };
        let rows = scan.rows.iter().map(take).collect();
        ClaimOutcome::Batch(ClaimedBatch { token, rows, more: scan.more, store_time: now })
    }

    fn scan(&self, (partition, start): (PartitionNo, RowId), kind: ClaimKind, limit: u32, now: Timestamp) -> Scan {
        let mut scan = Scan::default();
        let mut blocked: BTreeSet<[u8; 16]> = BTreeSet::new();
        let mut claimed: BTreeSet<[u8; 16]> = BTreeSet::new();
        for row in self.rows.values().filter(|row| row.event.partition == partition && !row.is_sent()) {
            let key = row.event.key.group();
            let suspect = row.deaths >= SUSPECT_DEATHS;
            let below_start = row.id <= start && row.status == RowStatus::Pending && !suspect;
            if below_start || blocked.contains(&key) {
                continue;
            }
            let without_later_rows =
                suspect || row.blocks_key || kind == ClaimKind::Trial || row.status == RowStatus::Parked;
            if without_later_rows && row.blocks_later_rows() {
                blocked.insert(key);
            }
            if !matches!(row.status, RowStatus::Pending | RowStatus::Failed) {
                continue;
            }
            let wait = row.due.map(|due| due.since(now)).filter(|wait| !wait.is_zero());
            if let Some(wait) = wait {
                scan.next_due = Some(scan.next_due.map_or(wait, |next| next.min(wait)));
                continue;
            }
            if suspect != (kind == ClaimKind::Trial) {
                scan.suspect_due |= suspect && !claimed.contains(&key);
                continue;
            }
            if suspect {
                scan.rows = vec![row.id];
                return scan;
            }
            let deaths_max = scan.deaths_max.max(row.deaths);
            if scan.rows.len() >= batch_limit(limit, deaths_max) {
                scan.more = true;
                return scan;
            }
            scan.deaths_max = deaths_max;
            scan.rows.push(row.id);
            claimed.insert(key);
        }
        scan
    }
}

/// The most rows of a batch whose rows have at most this many deaths.
fn batch_limit(limit: u32, deaths_max: u32) -> usize {
    (limit / LIMIT_DIVISOR.pow(deaths_max)).max(1) as usize
}

pub(crate) fn claimed(row: &Row) -> ClaimedRow {
    let event = &row.event;
    ClaimedRow {
        id: row.id,
        event_id: event.event_id,
        key: event.key.clone(),
        event_type: event.event_type.clone(),
        topic: event.topic.clone(),
        payload: row.payload.clone(),
        sequence: event.sequence,
        occurred_at: event.occurred_at,
        stamp: event.stamp.clone(),
        trace: event.trace.clone(),
        request_id: event.request_id.clone(),
        headers: event.headers.clone(),
        content_type: event.content_type.clone(),
        contract_checksum: event.contract_checksum,
        attempt: row.attempts,
        created_at: row.created_at,
    }
}
