//! InFlightBatch: a claimed batch on its way to the broker, and which of its rows are still to be sent.
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use app::relay::{BatchPlan, RecordEnvelope, RefusedRow, fallback_record, plan};
use domain::Timestamp;
use ports::Error;
use ports::broker::{Position, Record};
use ports::outbox::{ClaimedBatch, ClaimedRow, RowId};
use ports::partitions::{PartitionNo, Token};
use supervision::WorkInProgress;
use tokio::time::Instant;

use super::batch_request::ClaimMode;

/// Rows of a batch that the panic report of its worker names.
const ROWS_NAMED_MAX: usize = 5;

/// A row in the words of an operator: its id, its key, and the request that wrote it.
fn named(row: &ClaimedRow) -> String {
    match &row.request_id {
        Some(request_id) => format!("row {} of key {} (request {request_id})", row.id, row.key),
        None => format!("row {} of key {}", row.id, row.key),
    }
}

/// A claimed batch. Its rows shrink with each exclusion, its records with each partial success.
pub struct InFlightBatch {
    /// Changes with each exclusion.
    pub token: Token,
    pub rows: Arc<[ClaimedRow]>,
    /// Records that no call has published yet, in id order.
    pub unsent: Vec<(RowId, Record)>,
    /// Rows that an earlier at-least-once call published.
    pub sent: Vec<(RowId, Position)>,
    /// Rows whose record goes to the fallback topic.
    pub fallback: Vec<RefusedRow>,
    /// Whether more rows may be due, as the claim returned it.
    pub more: bool,
    /// How it was claimed.
    pub mode: ClaimMode,
    /// When the claim returned, by the store's clock.
    claimed_at_store_time: Timestamp,
    /// The same moment in this process.
    claimed_at: Instant,
    record_bytes_max: usize,
}

impl InFlightBatch {
    /// Builds the records of a claimed batch. The second value lists the rows that cannot become a record.
    pub fn new(
        batch: ClaimedBatch,
        envelope: &RecordEnvelope,
        record_bytes_max: usize,
        mode: ClaimMode,
    ) -> (Self, Vec<RefusedRow>) {
        let BatchPlan { send, refused } = plan(&batch.rows, envelope, record_bytes_max);
        let ClaimedBatch { token, rows, more, store_time } = batch;
        let claimed = Self {
            token,
            rows: rows.into(),
            unsent: send,
            sent: Vec::new(),
            fallback: Vec::new(),
            more,
            mode,
            claimed_at_store_time: store_time,
            claimed_at: Instant::now(),
            record_bytes_max,
        };
        (claimed, refused)
    }

    /// Names the batch in the report of a panic of the worker. A poison row that caused the panic is in this batch.
    pub fn in_progress(&self, partition: PartitionNo) -> WorkInProgress {
        let (token, rows) = (self.token, Arc::clone(&self.rows));
        supervision::in_progress(move || {
            let named: Vec<String> = rows.iter().take(ROWS_NAMED_MAX).map(named).collect();
            let more = rows.len().saturating_sub(ROWS_NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("batch {token} of partition {}: {}{more}", partition.0, named.join(", "))
        })
    }

    /// The time since the row's commit. The wall clock of this process takes no part: it may differ from the store's.
    pub fn age(&self, row: &ClaimedRow) -> Duration {
        self.claimed_at_store_time.plus(self.claimed_at.elapsed()).since(row.created_at)
    }

    fn sent_rows(&self) -> HashSet<RowId> {
        self.sent.iter().map(|(row, _)| *row).collect()
    }

    /// Builds the records of all unsent rows again. `publish` consumes the records instead of copying them, because most batches succeed.
    pub fn rebuild_unsent(&mut self, envelope: &RecordEnvelope) {
        let sent = self.sent_rows();
        let BatchPlan { send, .. } = plan(&self.rows, envelope, self.record_bytes_max);
        self.unsent = send.into_iter().filter(|(row, _)| !sent.contains(row)).collect();
        let fallback: Vec<RefusedRow> = std::mem::take(&mut self.fallback);
        let (done, open) = fallback.into_iter().partition(|refused| sent.contains(&refused.row));
        self.fallback = done;
        self.send_to_fallback(open, envelope);
    }

    /// These rows are durable: later calls leave them out.
    pub fn record_sent(&mut self, sent: Vec<(RowId, Position)>) {
        let rows: HashSet<RowId> = sent.iter().map(|(row, _)| *row).collect();
        self.unsent.retain(|(row, _)| !rows.contains(row));
        self.sent.extend(sent);
    }

    /// Removes excluded rows and all later rows of their keys, which the store returned with them.
    pub fn remove_excluded(&mut self, excluded: &[RowId]) {
        let excluded: HashSet<RowId> = excluded.iter().copied().collect();
        let mut blocked_keys = HashSet::new();
        let mut removed = HashSet::new();
        for row in self.rows.iter() {
            if excluded.contains(&row.id) {
                blocked_keys.insert(row.key.group());
                removed.insert(row.id);
            } else if blocked_keys.contains(&row.key.group()) {
                removed.insert(row.id);
            }
        }
        self.unsent.retain(|(row, _)| !removed.contains(row));
        self.rows = self.rows.iter().filter(|row| !removed.contains(&row.id)).cloned().collect();
    }

    /// Replaces the records of these rows by their fallback records, at the same position in the batch.
    pub fn send_to_fallback(&mut self, refused: Vec<RefusedRow>, envelope: &RecordEnvelope) {
        let rows: HashMap<RowId, &ClaimedRow> = self.rows.iter().map(|row| (row.id, row)).collect();
        let mut unsent: BTreeMap<RowId, Record> = std::mem::take(&mut self.unsent).into_iter().collect();
        for refused in refused {
            let Some(row) = rows.get(&refused.row) else { continue };
            let Some(payload) = &row.payload else { continue };
            unsent.insert(row.id, fallback_record(row, payload, envelope, &refused));
            self.fallback.push(refused);
        }
        self.unsent = unsent.into_iter().collect();
    }

    /// Removes the fallback of rows that no call has published.
    pub fn remove_unsent_fallback(&mut self) {
        let sent = self.sent_rows();
        self.fallback.retain(|refused| sent.contains(&refused.row));
    }

    /// The first unsent row of each key.
    pub fn unsent_heads(&self) -> Vec<RowId> {
        let mut seen = HashSet::new();
        let unsent: HashSet<RowId> = self.unsent.iter().map(|(row, _)| *row).collect();
        self.rows
            .iter()
            .filter(|row| unsent.contains(&row.id) && seen.insert(row.key.group()))
            .map(|row| row.id)
            .collect()
    }

    /// The refusal of one row with this error.
    pub fn refusal(&self, row: RowId, error: &Error) -> RefusedRow {
        let in_fallback = self.fallback.iter().any(|refused| refused.row == row);
        RefusedRow { in_fallback, ..RefusedRow::from_error(row, error) }
    }
}
