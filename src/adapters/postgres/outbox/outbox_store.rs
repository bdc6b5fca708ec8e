//! The port `OutboxStore`: each call is one transaction, or shares one with calls of other partitions, and is fenced by the lease row.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::EventId;
use ports::Error;
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, ClaimOutcome, Exclusion, ExclusionOutcome, FencedOutcome, OutboxStore,
    PoisonPolicy, ResolvedBatch, RowCounts, SettledClaim, Settlement,
};
use ports::partitions::{LeaseFence, Token};
use tokio_postgres::types::Type;

use crate::connection::sql_value::event_uuid;
use crate::connection::statement_error::retry_conflicts;
use crate::outbox::{claim, depth, exclude, resolve, settle, settle_and_claim, sweep};
use crate::store::postgres::Postgres;

#[async_trait]
impl OutboxStore for Postgres {
    async fn claim(&self, claim: Claim) -> Result<ClaimOutcome, Error> {
        let (context, relay) = (self.context(), Arc::clone(&self.inner.opened.relay));
        let partition = claim.fence.partition.0;
        if claim.kind == ClaimKind::Ordinary && !relay.is_full(partition) {
            return self.await_reply("claim", relay.claim(claim)).await;
        }
        self.run("claim", async move {
            let _permit = context.batch_permit().await?;
            let claimed = claim::claim(&context, &claim).await?;
            relay.record_claim(partition, &claimed);
            Ok(claimed)
        })
        .await
    }

    async fn exclude(&self, fence: &LeaseFence, token: Token, rows: &[Exclusion]) -> Result<ExclusionOutcome, Error> {
        let (context, fence, rows) = (self.context(), fence.clone(), rows.to_vec());
        self.run("exclude", async move { retry_conflicts!(exclude::exclude(&context, &fence, token, &rows)) }).await
    }

    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error> {
        let (context, relay) = (self.context(), &self.inner.opened.relay);
        if !relay.is_full(settlement.fence.partition.0) {
            return self.await_reply("settle", relay.settle(settlement)).await;
        }
        self.run("settle", async move {
            let _permit = context.batch_permit().await?;
            settle::settle(&context, &settlement).await
        })
        .await
    }

    async fn settle_and_claim(&self, settlement: Settlement, claim: Claim) -> Result<SettledClaim, Error> {
        let (context, relay) = (self.context(), Arc::clone(&self.inner.opened.relay));
        let partition = settlement.fence.partition.0;
        let claim = settle_and_claim::expected_claim(&settlement, claim);
        if claim.kind == ClaimKind::Ordinary && !relay.is_full(partition) {
            return self.await_reply("settle_and_claim", relay.settle_and_claim(settlement, claim)).await;
        }
        self.run("settle_and_claim", async move {
            let _permit = context.batch_permit().await?;
            let result = settle_and_claim::settle_and_claim(&context, &settlement, &claim).await?;
            if let Ok(claimed) = &result.claimed {
                relay.record_claim(partition, claimed);
            }
            Ok(result)
        })
        .await
    }

    async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        let (context, fence, poison) = (self.context(), fence.clone(), poison.clone());
        self.run(
            "resolve",
            async move { retry_conflicts!(resolve::resolve(&context, &fence, token, outcome, &poison)) },
        )
        .await
    }

    fn expect_requests(&self, count: u32) {
        self.inner.opened.relay.expect(count);
    }

    async fn depth(&self) -> Result<RowCounts, Error> {
        let context = self.context();
        self.run("depth", async move { depth::depth(&context).await }).await
    }

    async fn contains(&self, event: EventId) -> Result<bool, Error> {
        let context = self.context();
        self.run("outbox_contains", async move {
            let text = "SELECT 1 FROM outbox_event WHERE event_id = $1";
            let rows = context.service_session().await?.query(text, &[(&event_uuid(event), Type::UUID)]).await?;
            Ok(!rows.is_empty())
        })
        .await
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let context = self.context();
        self.run("outbox_sweep", async move { sweep::sweep(&context, keep, limit).await }).await
    }
}
