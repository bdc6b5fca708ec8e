//! Settling a batch and claiming the next one of its partition in one transaction: one commit instead of two.
//!
//! The settlement locks the lease row, so the claim after it sees everything that was committed before, and nothing can change in between.
//! The claim expects the counter that the settlement of an undisturbed batch leaves. After another statement, an operator's for instance, it
//! finds a higher one, takes nothing, and is repeated by itself.
use ports::outbox::{Claim, ClaimOutcome, FencedOutcome, SettledClaim, Settlement};
use tokio::time::Instant;

use crate::connection::session::CommitWait;
use crate::connection::statement_error::{StatementError, StatementResult, retry_conflicts};
use crate::outbox::claim::{self, ClaimScan};
use crate::outbox::scan::scan_snapshot::SampleId;
use crate::outbox::settle::{self, CloseStatement, SentColumns};
use crate::store::context::StoreContext;

/// The claim under the counter that the settlement leaves.
pub(crate) fn expected_claim(settlement: &Settlement, mut claim: Claim) -> Claim {
    claim.fence.counter = settlement.token + 1;
    claim
}

/// Settles and claims; `claim` is the expected one.
pub(crate) async fn settle_and_claim(
    context: &StoreContext,
    settlement: &Settlement,
    claim: &Claim,
) -> StatementResult<SettledClaim> {
    match retry_conflicts!(in_one_transaction(context, settlement, claim)) {
        Ok((settled, claimed)) => finish(context, settlement, claim, settled, claimed).await,
        // The claim has rolled the settlement back.
        Err(StatementError::LeaseExpired) => finish(context, settlement, claim, None, ClaimOutcome::Fenced).await,
        Err(error) => Err(error),
    }
}

async fn in_one_transaction(
    context: &StoreContext,
    settlement: &Settlement,
    claim: &Claim,
) -> StatementResult<(Option<FencedOutcome>, ClaimOutcome)> {
    let session = context.relay_session().await?;
    let (fence, sample) = (&claim.fence, SampleId::BeforeTransaction(context.scan_starts.highest()));
    let known = context.scan_starts.take(fence.partition.0).filter(|start| start.is_valid_after_settlement(fence));
    let (scan, sent) = (ClaimScan::new(context, claim, known), SentColumns::new(settlement));
    let sent_at = Instant::now();
    let results = {
        let close = CloseStatement::new(&settlement.fence, settlement.token, None, &sent);
        let statements = [close.statement(), scan.statement()];
        session.execute_all(context.options.lock_timeout, CommitWait::Flush, &statements).await?
    };
    let rows = |statement: usize| results.get(statement).map(Vec::as_slice).unwrap_or_default();
    let settled = settle::outcome_from_row(context, &settlement.fence, None, rows(0).first())?;
    Ok((settled, scan.result(context, &session, (rows(1), sent_at), sample).await?))
}

/// Whether [`finish`] needs no further statement.
pub(crate) fn is_finished(claim: &Claim, settled: Option<FencedOutcome>, claimed: &ClaimOutcome) -> bool {
    match (settled, claimed) {
        (Some(FencedOutcome::Done { counter, .. }), ClaimOutcome::Fenced) => counter == claim.fence.counter,
        (settled, ClaimOutcome::Fenced) => settled.is_some(),
        (_, ClaimOutcome::Batch(_) | ClaimOutcome::NoneDue { .. }) => true,
    }
}

/// Completes what one transaction did: a settlement that closed nothing was stale or a repetition, and a claim may have met another counter.
pub(crate) async fn finish(
    context: &StoreContext,
    settlement: &Settlement,
    claim: &Claim,
    settled: Option<FencedOutcome>,
    claimed: ClaimOutcome,
) -> StatementResult<SettledClaim> {
    let settled = match (settled, &claimed) {
        (Some(settled), _) => settled,
        (None, ClaimOutcome::Fenced) => settle::settle(context, settlement).await?,
        // The claim found the expected counter and no open batch: the settlement was a repetition.
        (None, _) => FencedOutcome::Done { counter: claim.fence.counter, rows: 0 },
    };
    let claimed = match (settled, claimed) {
        (FencedOutcome::Done { counter, .. }, ClaimOutcome::Fenced) if counter != claim.fence.counter => {
            let mut claim = claim.clone();
            claim.fence.counter = counter;
            claim::claim(context, &claim).await.map_err(StatementError::into_port)
        }
        (_, claimed) => Ok(claimed),
    };
    Ok(SettledClaim { settled, claimed })
}
