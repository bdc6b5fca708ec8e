//! The invariants at the end of a run: the topics against the rows of the store and the replies that clients received.
mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::{EventId, Timestamp};
use kit::checkers::{Findings, check};
use ports::broker::Position;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::operators::{Audit, OutboxOperators, RowFilter, RowSelector, RowView};
use ports::outbox::{OutboxStore, RowCounts, RowStatus};
use ports::partitions::PartitionLeases;
use tokio::time::Instant;

use self::checks::{FailOvers, check_claims, check_content, check_duplicates, check_positions, event_of};
use crate::cluster::external_writers::TOPICS;
use crate::cluster::instance::ClusterContext;
use crate::cluster::kafka::delivery_guarantee::DeliveryGuarantee;
use crate::cluster::kafka::refusals::Refusals;
use crate::cluster::writers::Replies;
use crate::support::process::TOPIC;

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

    /// The records of each topic that events are published to, the orders' topic first.
    fn logs(&self) -> Vec<Vec<ConsumerRecord>> {
        std::iter::once(TOPIC).chain(TOPICS).map(|topic| self.cluster_context.kafka.read(topic)).collect()
    }

    /// Whether no event waits and every partition has an owner.
    pub async fn is_quiescent(&self) -> bool {
        let depth = self.depth().await;
        let views = self.cluster_context.postgres.data().overview().await.expect("the reference answers");
        depth.pending + depth.in_flight + depth.failed + depth.parked == 0
            && views.iter().all(|view| view.owner.is_some() && view.open_batch.is_none())
    }

    /// The unfinished work of the relay, for the message of a failed run.
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

    /// Every event of the store is in its topic, as it was written and in the order of its key, and no event that was never committed; with
    /// transactions once, unless the store was rewound, else at most once for each claim. The events of the writers' successful replies are among
    /// them.
    pub async fn check_topics(&self, replies: &Replies) -> Result<(), Violation> {
        let (rows, logs) = (self.rows(None).await, self.logs());
        let all: Vec<&ConsumerRecord> = logs.iter().flatten().collect();
        let stored: BTreeSet<String> = rows.iter().map(|row| row.event_id.to_string()).collect();
        let published: BTreeSet<String> = all.iter().map(|message| event_of(message)).collect();
        if let Some(lost) = stored.difference(&published).next() {
            return Err(format!("event {lost} is in the store and not in its topic"));
        }
        let is_unknown = |event: &&String| !self.cluster_context.postgres.was_committed(event);
        if let Some(unknown) = published.iter().find(is_unknown) {
            return Err(format!("event {unknown} was published and never committed"));
        }
        check_positions(&self.recorded_positions(&rows).await, &all)?;
        check_claims(&all, |event| self.cluster_context.postgres.claims(event))?;
        self.check_contents(&all)?;
        if self.cluster_context.postgres.fail_overs() > 0 {
            return self.check_after_fail_over(&rows, &logs);
        }
        if let Some(lost) = replies.events().iter().find(|event| !published.contains(&event.to_string())) {
            return Err(format!("event {lost} was committed and is not in its topic"));
        }
        let acknowledged = replies.acknowledged();
        for (log, acknowledged) in logs.iter().zip(std::iter::once(&*acknowledged).chain(std::iter::repeat(&[][..]))) {
            let findings = check(log, acknowledged);
            let is_once = self.cluster_context.mode == DeliveryGuarantee::AtLeastOnce || findings.duplicated.is_empty();
            if !is_once || !is_complete(&findings) {
                return Err(findings.to_string());
            }
        }
        match published.difference(&stored).next() {
            Some(unknown) => Err(format!("event {unknown} was published and is not in the store")),
            None => Ok(()),
        }
    }

    /// The store has lost events that were published, and it may publish others again.
    fn check_after_fail_over(&self, rows: &[RowView], logs: &[Vec<ConsumerRecord>]) -> Result<(), Violation> {
        let postgres = &self.cluster_context.postgres;
        if self.cluster_context.mode == DeliveryGuarantee::ExactlyOnce {
            let accepted_at = postgres.accepted_at().unwrap_or_else(Instant::now);
            let fail_overs = FailOvers { count: postgres.fail_overs() as usize, accepted_at };
            let committed_at = |event: &str| self.cluster_context.kafka.committed_at(event);
            check_duplicates(&logs.iter().flatten().collect::<Vec<_>>(), &fail_overs, committed_at)?;
        }
        let created: BTreeMap<String, Timestamp> =
            rows.iter().map(|row| (row.event_id.to_string(), row.created_at)).collect();
        for log in logs {
            let kept: Vec<ConsumerRecord> = log.iter().filter(|message| is_kept(message, &created)).cloned().collect();
            let findings = check(&kept, &[]);
            if !is_complete(&findings) {
                return Err(findings.to_string());
            }
        }
        Ok(())
    }

    /// Number of records in the topics whose event an earlier one has.
    pub fn duplicates(&self) -> u64 {
        let logs = self.logs();
        let events: BTreeSet<String> = logs.iter().flatten().map(event_of).collect();
        (logs.iter().flatten().count() - events.len()) as u64
    }

    /// The positions that settlements have recorded.
    async fn recorded_positions(&self, rows: &[RowView]) -> Vec<(EventId, Position)> {
        let mut positions = Vec::new();
        for row in rows {
            let selector = RowSelector::Event(row.event_id);
            let diagnosis =
                self.cluster_context.postgres.data().diagnose(selector).await.expect("the reference answers");
            let position = diagnosis.and_then(|diagnosis| diagnosis.sent_to?.position());
            positions.extend(position.map(|position| (row.event_id, position)));
        }
        positions
    }

    /// The records of the other services' topics are what their writers wrote.
    fn check_contents(&self, log: &[&ConsumerRecord]) -> Result<(), Violation> {
        for message in log.iter().filter(|message| &*message.record.topic != TOPIC) {
            let event = event_of(message);
            let written = EventId::parse(&event).and_then(|id| self.cluster_context.postgres.written(id));
            let written = written.ok_or_else(|| format!("event {event} is in the topic of another service"))?;
            check_content(&message.record, &written)?;
        }
        Ok(())
    }
}

/// Whether a record is of a row that the store has. A writer may repeat an event that a fail-over has lost: its first record is of a row that
/// the store has lost, and another service's row is as old as its event.
fn is_kept(message: &ConsumerRecord, created: &BTreeMap<String, Timestamp>) -> bool {
    let is_order = &*message.record.topic == TOPIC;
    created.get(&event_of(message)).is_some_and(|created| is_order || *created == message.record.timestamp)
}

fn is_complete(findings: &Findings) -> bool {
    [&findings.lost, &findings.reordered, &findings.gaps, &findings.malformed].iter().all(|found| found.is_empty())
}
