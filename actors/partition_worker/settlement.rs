//! Settles the batch that the broker has acknowledged: in a call of its own, or together with the next claim.
use std::time::Duration;

use ports::Error;
use ports::outbox::{Claim, ClaimOutcome, FencedOutcome, SettledClaim};
use telemetry::Metrics;

use super::context::RelayContext;
use super::held_partition::HeldPartition;

/// Most attempts to settle a batch. A repetition is harmless; a batch that stays open after the last one is resolved.
const SETTLE_ATTEMPTS_MAX: u32 = 5;
/// Time between two attempts to settle.
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

/// Why a worker cannot keep its partition after a settlement: its batch is open, or another instance has resolved it.
#[derive(Debug)]
pub enum SettleFailure {
    /// The fence is stale.
    Stale,
    /// The outcome is unknown.
    Unknown(Error),
}

/// Why a settlement with a claim after it returned no claim.
pub enum SettleAndClaimFailure {
    /// The settlement failed. The held state is not reliable afterwards, as after [`settle`].
    Settlement(SettleFailure),
    /// The claim failed, after its settlement or together with it. The held state still has the batch if it is not settled.
    Claim(Error),
}

/// Settles the partition's acknowledged batch, if there is one.
///
/// # Errors
/// The held state is not reliable afterwards: the worker acquires the lease again and resolves.
pub async fn settle(context: &RelayContext, held: &mut HeldPartition) -> Result<(), SettleFailure> {
    let Some(batch) = held.unsettled.take() else { return Ok(()) };
    let mut attempts = 0;
    loop {
        attempts += 1;
        match context.outbox.settle(batch.settlement.clone()).await {
            Ok(outcome) => return record(context, held, outcome, batch.sent),
            Err(error) if attempts >= SETTLE_ATTEMPTS_MAX => return Err(SettleFailure::Unknown(error)),
            Err(_) => tokio::time::sleep(SETTLE_PAUSE).await,
        }
    }
}

/// Claims, and settles the partition's acknowledged batch before that, if there is one.
///
/// # Errors
/// The part that failed decides whether the worker keeps its partition.
pub async fn settle_and_claim(
    context: &RelayContext,
    held: &mut HeldPartition,
    claim: Claim,
) -> Result<ClaimOutcome, SettleAndClaimFailure> {
    let Some(batch) = held.unsettled.take() else {
        return context.outbox.claim(claim).await.map_err(SettleAndClaimFailure::Claim);
    };
    match context.outbox.settle_and_claim(batch.settlement.clone(), claim).await {
        Ok(SettledClaim { settled, claimed }) => {
            record(context, held, settled, batch.sent).map_err(SettleAndClaimFailure::Settlement)?;
            claimed.map_err(SettleAndClaimFailure::Claim)
        }
        Err(error) if error.outcome_unknown() => Err(SettleAndClaimFailure::Settlement(SettleFailure::Unknown(error))),
        Err(error) => {
            held.unsettled = Some(batch);
            Err(SettleAndClaimFailure::Claim(error))
        }
    }
}

/// Counts rows that were settled as sent.
pub(super) fn count_delivered(metrics: &Metrics, rows: u64) {
    metrics.outbox_entries_delivered.inc_by(rows);
    metrics.outbox_publish_rate.inc_by(rows);
}

fn record(
    context: &RelayContext,
    held: &mut HeldPartition,
    outcome: FencedOutcome,
    sent: usize,
) -> Result<(), SettleFailure> {
    match outcome {
        FencedOutcome::Done { counter, .. } => {
            held.fence.counter = counter;
            count_delivered(&context.metrics, sent as u64);
            Ok(())
        }
        FencedOutcome::Stale => {
            context.metrics.outbox_stale_settlement_total.inc();
            Err(SettleFailure::Stale)
        }
    }
}
