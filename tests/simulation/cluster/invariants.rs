//! The invariants at the end of a run: the topic against the rows of the store and the replies that clients received.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::checkers::{AcknowledgedEvent, Findings, check};
use ports::broker::Position;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::operators::{Audit, OutboxOperators, RowFilter, RowSelector, RowView};
use ports::outbox::{OutboxStore, RowCounts, RowStatus};
use ports::partitions::PartitionLeases;
use tokio::time::Instant;

use crate::cluster::instance::ClusterContext;
use crate::cluster::kafka::delivery_guarantee::DeliveryGuarantee;
use crate::cluster::kafka::refusals::Refusals;
use crate::support::process::TOPIC;
use crate::support::record_faults::header;

/// Longest time from the end of the faults until nothing waits: leases and transactions expire, retries become due.
pub const QUIESCENCE_LIMIT: Duration = Duration::from_secs(60);
/// More rows than a run writes.
const ROWS_MAX: u32 = 10_000;

/// A broken invariant, with what was found.
pub type Violation = String;

/// The store and the broker of a run.
pub struct Invariants<'a> {
    pub cluster_context: &'a ClusterContext,
    pub refusals: &'a Refusals,
}

impl Invariants<'_> {
    async fn depth(&self) -> RowCounts {
        self.cluster_context.postgres.data().depth().await.expect("the reference answers")
    }

    async fn rows(&self, status: Option<RowStatus>) -> Vec<RowView> {
        let filter = RowFilter { status, ..RowFilter::default() };
        self.cluster_context.postgres.data().rows(&filter, ROWS_MAX).await.expect("the reference answers")
    }

    /// Whether no event waits and every partition has an owner.
    pub async fn is_quiescent(&self) -> bool {
        let depth = self.depth().await;
        let views = self.cluster_context.postgres.data().overview().await.expect("the reference answers");
        depth.pending + depth.in_flight + depth.failed + depth.parked == 0
            && views.iter().all(|view| view.owner.is_some() && view.open_batch.is_none())
    }

    /// What keeps the run from resting, for the message of a failed run.
    pub async fn remaining_work(&self) -> Violation {
        let views = self.cluster_context.postgres.data().overview().await.expect("the reference answers");
        let rows: Vec<RowView> =
            self.rows(None).await.into_iter().filter(|row| row.status != RowStatus::Sent).collect();
        let lines: Vec<String> = rows
            .iter()
            .map(|row| format!("row {} of key {}, partition {}: {:?}", row.id, row.key, row.partition, row.status))
            .collect();
        format!("after {QUIESCENCE_LIMIT:?} something still waits:\n{}\n{views:#?}", lines.join("\n"))
    }

    /// An operator retries the rows that the broker refused for good; no other row may be parked.
    pub async fn retry_parked(&self) -> Result<(), Violation> {
        let audit = Audit { operator: "ann".into(), reason: "the broker accepts larger records now".into() };
        for row in self.rows(Some(RowStatus::Parked)).await {
            if !self.refusals.justifies_parking(&row.event_id.to_string()) {
                return Err(format!("parked without cause: {row:?}"));
            }
            self.cluster_context.postgres.data().retry(row.id, &audit).await.expect("the reference answers");
        }
        Ok(())
    }

    /// Every event of the store is in the topic, in the order of its key, and no event that was never committed; with transactions once, unless
    /// the store was rewound. `acknowledged` are the events of the clients' successful replies.
    pub async fn check_topic(&self, acknowledged: &[AcknowledgedEvent]) -> Result<(), Violation> {
        let rows = self.rows(None).await;
        let stored: BTreeSet<String> = rows.iter().map(|row| row.event_id.to_string()).collect();
        let log = self.cluster_context.kafka.read(TOPIC);
        let published: BTreeSet<String> = log.iter().map(event_of).collect();
        if let Some(lost) = stored.difference(&published).next() {
            return Err(format!("event {lost} is not in the topic"));
        }
        let is_unknown = |event: &&String| !self.cluster_context.postgres.was_committed(event);
        if let Some(unknown) = published.iter().find(is_unknown) {
            return Err(format!("event {unknown} was published and never committed"));
        }
        self.check_positions(&rows, &log).await?;
        if self.cluster_context.postgres.fail_overs() == 0 {
            let findings = check(&log, acknowledged);
            let is_once = self.cluster_context.mode == DeliveryGuarantee::AtLeastOnce || findings.duplicated.is_empty();
            let is_clean = is_once && is_complete(&findings) && stored == published;
            return if is_clean { Ok(()) } else { Err(findings.to_string()) };
        }
        if self.cluster_context.mode == DeliveryGuarantee::ExactlyOnce {
            self.check_duplicates(&log)?;
        }
        let kept: Vec<ConsumerRecord> = log.into_iter().filter(|message| stored.contains(&event_of(message))).collect();
        let findings = check(&kept, &[]);
        if is_complete(&findings) { Ok(()) } else { Err(findings.to_string()) }
    }

    /// Number of records in the topic whose event an earlier one has.
    pub fn duplicates(&self) -> u64 {
        let log = self.cluster_context.kafka.read(TOPIC);
        let events: BTreeSet<String> = log.iter().map(event_of).collect();
        (log.len() - events.len()) as u64
    }

    /// Where a settlement recorded a position, the topic has the row's event there.
    async fn check_positions(&self, rows: &[RowView], log: &[ConsumerRecord]) -> Result<(), Violation> {
        let at: BTreeMap<&Position, String> = log.iter().map(|one| (&one.position, event_of(one))).collect();
        for row in rows {
            let selector = RowSelector::Event(row.event_id);
            let diagnosis =
                self.cluster_context.postgres.data().diagnose(selector).await.expect("the reference answers");
            let position = diagnosis.and_then(|diagnosis| diagnosis.sent_to?.position());
            let Some(position) = position else { continue };
            if at.get(&position) != Some(&row.event_id.to_string()) {
                return Err(format!("event {} is not at {position:?}", row.event_id));
            }
        }
        Ok(())
    }

    /// An event is published once more for each fail-over at most, and only if it was published before the fail-over.
    fn check_duplicates(&self, log: &[ConsumerRecord]) -> Result<(), Violation> {
        let mut copies: BTreeMap<String, u32> = BTreeMap::new();
        log.iter().for_each(|message| *copies.entry(event_of(message)).or_default() += 1);
        let accepted = self.cluster_context.postgres.accepted_at().unwrap_or_else(Instant::now);
        for (event, copies) in copies.into_iter().filter(|(_, copies)| *copies > 1) {
            let first = self.cluster_context.kafka.committed_at(&event);
            let is_bounded = copies <= 1 + self.cluster_context.postgres.fail_overs();
            if !is_bounded || first.is_none_or(|first| first > accepted) {
                return Err(format!("event {event} is in the topic {copies} times"));
            }
        }
        Ok(())
    }
}

fn event_of(message: &ConsumerRecord) -> String {
    header(&message.record, "ce_id")
}

fn is_complete(findings: &Findings) -> bool {
    [&findings.lost, &findings.reordered, &findings.gaps, &findings.malformed].iter().all(|found| found.is_empty())
}
