//! Which rows the reference claims: a scan in id order that remembers whose turn it is not.
use std::collections::BTreeSet;
use std::time::Duration;

use domain::{OrderId, Timestamp};
use ports::outbox::{Claim, ClaimKind, Claimed, ClaimedBatch, ClaimedRow, RowId, RowStatus};
use ports::partitions::PartitionNo;

use crate::reference::{Open, Row, State};

/// Deaths that make a row a suspect.
const SUSPECT: u32 = 3;

/// What a scan of one partition found.
#[derive(Default)]
struct Found {
    rows: Vec<RowId>,
    worst: u32,
    more: bool,
    next_due: Option<Duration>,
    suspect_due: bool,
}

impl State {
    pub(crate) fn claim(&mut self, claim: Claim, now: Timestamp) -> Claimed {
        let Claim { fence, session: lane, limit, kind } = claim;
        let lease = self.lease(fence.partition);
        let ours = lease.owner.as_ref() == Some(&fence.owner) && lease.epoch == fence.epoch;
        let valid = lease.expires_at.is_some_and(|until| until > now);
        if !ours || !valid || lease.counter != fence.counter || lease.open.is_some() {
            return Claimed::Fenced;
        }
        let found = self.due(fence.partition, kind, limit, now);
        if found.rows.is_empty() {
            return Claimed::Nothing { next_due: found.next_due, suspect_due: found.suspect_due };
        }
        let token = fence.counter + 1;
        let lease = self.lease(fence.partition);
        lease.counter = token;
        lease.open = Some(Open { token, lane, claimer_died: false, trial: kind == ClaimKind::Trial });
        let take = |id: &RowId| {
            let row = self.rows.get_mut(id).expect("the scan found it");
            row.status = RowStatus::InFlight;
            row.attempts += 1;
            row.token = token;
            row.owner = Some(fence.owner.clone());
            row.due = None;
            claimed(row)
        };
        Claimed::Batch(ClaimedBatch { token, rows: found.rows.iter().map(take).collect(), more: found.more })
    }

    fn due(&self, partition: PartitionNo, kind: ClaimKind, limit: u32, now: Timestamp) -> Found {
        let mut found = Found::default();
        let mut waiting: BTreeSet<OrderId> = BTreeSet::new();
        let mut taken: BTreeSet<OrderId> = BTreeSet::new();
        for row in self.rows.values().filter(|row| row.written.partition == partition && !row.left()) {
            let key = row.written.key;
            if waiting.contains(&key) {
                continue;
            }
            let suspect = row.deaths >= SUSPECT;
            let wait = row.due.map(|due| due.since(now)).filter(|wait| !wait.is_zero());
            let alone = suspect || row.head || kind == ClaimKind::Trial;
            if alone && row.holds_its_key() {
                waiting.insert(key);
            }
            match row.status {
                RowStatus::Parked => {
                    if row.holds_key {
                        waiting.insert(key);
                    }
                    continue;
                }
                RowStatus::Pending | RowStatus::Failed => {}
                RowStatus::InFlight | RowStatus::Sent => continue,
            }
            if let Some(wait) = wait {
                found.next_due = Some(found.next_due.map_or(wait, |next| next.min(wait)));
                continue;
            }
            if suspect != (kind == ClaimKind::Trial) {
                found.suspect_due |= suspect && !taken.contains(&key);
                continue;
            }
            if suspect {
                found.rows = vec![row.id];
                return found;
            }
            let worst = found.worst.max(row.deaths);
            let most = (limit / 8_u32.pow(worst)).max(1);
            if found.rows.len() >= most as usize {
                found.more = true;
                return found;
            }
            found.worst = worst;
            found.rows.push(row.id);
            taken.insert(key);
        }
        found
    }
}

fn claimed(row: &Row) -> ClaimedRow {
    let written = &row.written;
    ClaimedRow {
        id: row.id,
        event_id: written.event_id,
        key: written.key,
        kind: written.kind.as_str().into(),
        topic: written.topic.clone(),
        payload: row.payload.clone(),
        sequence: written.sequence,
        occurred_at: written.occurred_at,
        region: written.region.clone(),
        hlc: written.hlc,
        trace: written.trace.clone(),
        attempt: row.attempts,
        created_at: row.created_at,
    }
}
