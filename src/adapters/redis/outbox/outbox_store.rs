//! `OutboxStore`: each statement is one script under the partition's lease.
use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use domain::EventId;
use outbox::truncate_reason;
use ports::Error;
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, ClaimOutcome, ClaimedBatch, Disposition, Exclusion, ExclusionOutcome,
    FencedOutcome, OutboxStore, PoisonAction, PoisonPolicy, ResolvedBatch, RowCounts, RowId, Settlement,
};
use ports::partitions::{LeaseFence, Token};
use tokio::time::Instant;

use crate::outbox::row;
use crate::store::arguments::ScriptArguments;
use crate::store::call::millis;
use crate::store::client::RedisStore;
use crate::store::reply::{Reply, broken};

/// Partition, owner and epoch of a fence.
fn fence_arguments(fence: &LeaseFence) -> ScriptArguments {
    ScriptArguments::new().number(fence.partition).text(&fence.owner.0).number(fence.epoch)
}

#[async_trait]
impl OutboxStore for RedisStore {
    async fn claim(&self, claim: Claim) -> Result<ClaimOutcome, Error> {
        let Claim { fence, session, limit, kind } = claim;
        let kind = if kind == ClaimKind::Trial { "trial" } else { "ordinary" };
        let arguments = fence_arguments(&fence).number(fence.counter).text(&session.0).number(limit).text(kind);
        let sent = Instant::now();
        let mut reply = self.write_list("claim", &self.inner.scripts.claim, arguments).await?;
        match &*reply.text(0)? {
            "FENCED" => Ok(ClaimOutcome::Fenced),
            "NONE_DUE" => Ok(ClaimOutcome::NoneDue {
                next_due: reply.optional_number(1)?.map(Duration::from_millis),
                suspect_due: reply.flag(2)?,
            }),
            "BATCH" => {
                let rows = Reply::from_value(reply.take(3))?.lists()?;
                let rows = rows.into_iter().map(row::claimed_row).collect::<Result<_, _>>()?;
                let executed = reply.time(4)?.ok_or_else(|| broken("a claim without a time"))?;
                let (token, more, store_time) = (reply.number(1)?, reply.flag(2)?, executed.plus(sent.elapsed()));
                Ok(ClaimOutcome::Batch(ClaimedBatch { token, rows, more, store_time }))
            }
            other => Err(broken(format!("the result of a claim is {other:?}"))),
        }
    }

    async fn exclude(&self, fence: &LeaseFence, token: Token, rows: &[Exclusion]) -> Result<ExclusionOutcome, Error> {
        let mut arguments = fence_arguments(fence).number(fence.counter).number(token);
        for Exclusion { row, attempts, disposition, failure_type, reason } in rows {
            let (disposition, delay) = match disposition {
                Disposition::Retry(delay) => ("retry", millis(*delay)),
                Disposition::ParkKey => ("park_key", 0),
                Disposition::ParkRow => ("park_row", 0),
            };
            let reason = truncate_reason(reason);
            arguments = arguments.number(row).text(disposition).number(delay).number(attempts);
            arguments = arguments.text(failure_type.as_str()).text(reason);
        }
        let reply = self.write_list("exclude", &self.inner.scripts.exclude, arguments).await?;
        Ok(match fenced_outcome(reply)? {
            FencedOutcome::Done { counter, rows } => ExclusionOutcome::Done { token: counter, rows },
            FencedOutcome::Stale => ExclusionOutcome::Stale,
        })
    }

    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error> {
        let Settlement { fence, token, positions, by_fallback } = settlement;
        let mut by_fallback: HashSet<RowId> = by_fallback.into_iter().collect();
        let mut arguments = fence_arguments(&fence).number(token);
        for (row, position) in &*positions {
            let fallback = u8::from(by_fallback.remove(row));
            arguments = arguments.number(*row).number(fallback);
            arguments = arguments.number(position.partition).number(position.offset).text(&position.topic);
        }
        for row in by_fallback {
            arguments = arguments.number(row).number(1).text("").text("").text("");
        }
        fenced_outcome(self.write_list("settle", &self.inner.scripts.settle, arguments).await?)
    }

    async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        let outcome = match outcome {
            BatchOutcome::Published => "published",
            BatchOutcome::ClaimerDied => "claimer_died",
            BatchOutcome::NotSent => "not_sent",
        };
        let arguments = fence_arguments(fence).number(fence.counter).number(token).text(outcome);
        let arguments = poison_arguments(arguments, poison);
        let mut reply = self.write_list("resolve", &self.inner.scripts.resolve, arguments).await?;
        let parked = Reply::from_value(reply.take(3))?.lists()?;
        let parked = parked.into_iter().map(row::poison_row).collect::<Result<_, _>>()?;
        Ok(ResolvedBatch { closed: fenced_outcome(reply)?, parked })
    }

    async fn depth(&self) -> Result<RowCounts, Error> {
        let arguments = ScriptArguments::new().number(self.partitions());
        let mut reply = self.read_list("depth", &self.inner.scripts.depth, arguments).await?;
        Ok(RowCounts {
            pending: reply.number(0)?,
            in_flight: reply.number(1)?,
            failed: reply.number(2)?,
            parked: reply.number(3)?,
            sent: reply.number(4)?,
            oldest_unsent: reply.optional_number(5)?.map(Duration::from_millis),
        })
    }

    async fn contains(&self, event: EventId) -> Result<bool, Error> {
        Ok(self.hash_field("outbox_contains", "events", &event.to_string()).await?.is_some())
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let arguments = ScriptArguments::new().number(millis(keep)).number(limit);
        let reply = self.write("outbox_sweep", &self.inner.scripts.sweep_outbox, arguments).await?;
        Reply::single(reply).number(0)
    }
}

fn fenced_outcome(mut reply: Reply) -> Result<FencedOutcome, Error> {
    match &*reply.text(0)? {
        "DONE" => Ok(FencedOutcome::Done { counter: reply.number(1)?, rows: reply.number(2)? }),
        "STALE" => Ok(FencedOutcome::Stale),
        other => Err(broken(format!("the result of a fenced statement is {other:?}"))),
    }
}

/// The rules as the resolve script reads them: the kind of a rule, its name, and the value.
fn poison_arguments(arguments: ScriptArguments, poison: &PoisonPolicy) -> ScriptArguments {
    let value = |poison: &PoisonAction| match poison {
        PoisonAction::BlockKey => "block-key",
        PoisonAction::SkipRow => "skip-row",
    };
    let types = poison.types().map(|(name, poison)| ("type", name, value(poison)));
    let topics = poison.topics().map(|(name, poison)| ("topic", name, value(poison)));
    types.chain(topics).fold(arguments, |arguments, (kind, name, value)| arguments.text(kind).text(name).text(value))
}
