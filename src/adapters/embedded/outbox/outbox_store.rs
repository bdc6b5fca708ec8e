//! `OutboxStore`: each call is one command of the writer, so each is one transaction, fenced by the lease row it reads first.
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Timestamp};
use ports::Error;
use ports::outbox::{
    BatchOutcome, Claim, ClaimOutcome, Exclusion, ExclusionOutcome, FencedOutcome, OutboxStore, PoisonPolicy,
    ResolvedBatch, RowCounts, SettledClaim, Settlement,
};
use ports::partitions::{LeaseFence, Token};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::CommandResult;
use crate::outbox::claim;
use crate::outbox::exclude;
use crate::outbox::resolve;
use crate::outbox::settle;
use crate::outbox::sweep;
use crate::store::Embedded;

#[async_trait]
impl OutboxStore for Embedded {
    async fn claim(&self, claim: Claim) -> Result<ClaimOutcome, Error> {
        let claimed = self.write("claim", move |context| claim::claim(context, &claim)).await?;
        Ok(self.with_current_time(claimed))
    }

    async fn exclude(&self, fence: &LeaseFence, token: Token, rows: &[Exclusion]) -> Result<ExclusionOutcome, Error> {
        let (fence, rows) = (fence.clone(), rows.to_vec());
        self.write("exclude", move |context| exclude::exclude(context, &fence, token, &rows)).await
    }

    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error> {
        self.write("settle", move |context| settle::settle(context, &settlement)).await
    }

    async fn settle_and_claim(&self, settlement: Settlement, mut claim: Claim) -> Result<SettledClaim, Error> {
        let both = self.write("settle_and_claim", move |context| {
            let settled = settle::settle(context, &settlement)?;
            let FencedOutcome::Done { counter, .. } = settled else { return Ok((settled, ClaimOutcome::Fenced)) };
            claim.fence.counter = counter;
            Ok((settled, claim::claim(context, &claim)?))
        });
        let (settled, claimed) = both.await?;
        Ok(SettledClaim { settled, claimed: Ok(self.with_current_time(claimed)) })
    }

    async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        let (fence, poison) = (fence.clone(), poison.clone());
        self.write("resolve", move |context| resolve::resolve(context, &fence, token, outcome, &poison)).await
    }

    async fn depth(&self) -> Result<RowCounts, Error> {
        let (now, partitions) = (self.inner.clock.now(), self.inner.partitions);
        self.read("depth", move |sql| depth(sql, now, partitions)).await
    }

    async fn contains(&self, event: EventId) -> Result<bool, Error> {
        self.read("outbox_contains", move |sql| {
            Ok(sql.prepare_cached("SELECT 1 FROM outbox_event WHERE event_id = ?1")?.exists([event.bytes()])?)
        })
        .await
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let (oldest, partitions) = (self.millis_ago(keep), self.inner.partitions);
        let after = self.inner.swept_archive_id.load(Relaxed);
        let page = self.write("outbox_sweep", move |context| sweep::outbox(context, after, oldest, limit, partitions));
        let page = page.await?;
        self.inner.swept_archive_id.store(page.next_after, Relaxed);
        Ok(page.rows)
    }
}

impl Embedded {
    /// Sets the store time of a batch to now: the commit of the claim may have taken long.
    fn with_current_time(&self, mut claimed: ClaimOutcome) -> ClaimOutcome {
        if let ClaimOutcome::Batch(batch) = &mut claimed {
            batch.store_time = self.inner.clock.now();
        }
        claimed
    }
}

fn depth(sql: &Connection, now: Timestamp, partitions: u32) -> CommandResult<RowCounts> {
    let mut sums = sql.prepare_cached(
        "SELECT total(pending), total(in_flight), total(failed), total(parked), total(sent) FROM outbox_count",
    )?;
    let depth = sums.query_row([], |row| {
        let count = |column| row.get::<_, f64>(column).map(|sum| sum as u64);
        Ok(RowCounts {
            pending: count(0)?,
            in_flight: count(1)?,
            failed: count(2)?,
            parked: count(3)?,
            sent: count(4)?,
            oldest_unsent: None,
        })
    })?;
    Ok(RowCounts { oldest_unsent: oldest_unsent(sql, partitions)?.map(|written| now.since(written)), ..depth })
}

/// Creation time of the oldest unsent event that does not wait for an operator: the event with the lowest id among the first such row of each
/// partition, because ids grow with time.
fn oldest_unsent(sql: &Connection, partitions: u32) -> CommandResult<Option<Timestamp>> {
    let mut first = sql.prepare_cached(
        "SELECT id FROM outbox o WHERE partition = ?1 AND status <= 2
           AND NOT EXISTS (SELECT 1 FROM outbox_blocked b
             WHERE b.partition = o.partition AND b.key = o.key AND b.head_id < o.id AND b.next_attempt_at IS NULL)
         ORDER BY id LIMIT 1",
    )?;
    let mut oldest: Option<i64> = None;
    for partition in 0..partitions {
        let id: Option<i64> = first.query_row([partition], |row| row.get(0)).optional()?;
        oldest = oldest.into_iter().chain(id).min();
    }
    let Some(oldest) = oldest else { return Ok(None) };
    let mut written = sql.prepare_cached("SELECT created_at FROM outbox_event WHERE id = ?1")?;
    let written: Option<i64> = written.query_row(params![oldest], |row| row.get(0)).optional()?;
    Ok(written.map(Timestamp::from_millis))
}
