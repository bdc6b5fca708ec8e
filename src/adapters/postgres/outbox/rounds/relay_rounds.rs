//! The rounds of the relay: the requests of partitions that arrive while one round's transaction runs share the transaction of the next round. A
//! request that finds no round running begins one at once, with the statement of one partition.
//!
//! A round of several requests is one transaction: it locks all lease rows in their order, settles, and claims. So a partition's batch is
//! settled and its next one claimed by one commit, together with those of the other partitions.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use ports::outbox::{ClaimOutcome, FencedOutcome, SettledClaim};
use tokio::time::Instant;

use crate::connection::session::CommitWait;
use crate::connection::statement_error::{StatementError, StatementResult};
use crate::outbox::rounds::claim_group::{ClaimGroup, GroupedClaim};
use crate::outbox::rounds::lease_locks::{LeaseLocks, unlocked_of};
use crate::outbox::rounds::pending_round::{PendingClaim, PendingRound, PendingSettle, PendingSettleAndClaim};
use crate::outbox::rounds::relay_queue::{RelayQueue, RequestResult, Round};
use crate::outbox::rounds::settle_group::SettleGroup;
use crate::outbox::scan_start::SampleId;
use crate::outbox::{claim, settle, settle_and_claim};
use crate::store::context::StoreContext;

/// Time beyond [`crate::Options::relay_lock_timeout`] that the next round waits for the one before. A round that still runs then waits for a lock, or
/// is slow, without delaying the next one.
const ROUND_GRACE: Duration = Duration::from_millis(50);

/// Runs rounds until the task is aborted.
pub(crate) async fn run(context: Arc<StoreContext>, queue: Arc<RelayQueue>) {
    let timeout = context.options.relay_lock_timeout + ROUND_GRACE;
    loop {
        let round = queue.next_round(&context.options).await;
        let task = tokio::spawn(run_round(Arc::clone(&context), Arc::clone(&queue), round));
        // After the timeout the task continues. A panic drops the callers' senders, which reports an unknown outcome.
        let _ = tokio::time::timeout(timeout, task).await;
    }
}

async fn run_round(context: Arc<StoreContext>, queue: Arc<RelayQueue>, round: Round) {
    let round = PendingRound::from_round(round);
    if round.len() > 1 {
        return run_group(&context, &queue, round).await;
    }
    // By itself a request costs less, and waits longer for a locked row.
    let Some(_permit) = context.lock_wait_permit() else { return run_group(&context, &queue, round).await };
    for pending in round.claims {
        claim_alone(&context, &queue, pending).await;
    }
    for pending in round.settlements {
        settle_alone(&context, pending).await;
    }
    for pending in round.settle_and_claims {
        settle_and_claim_alone(&context, &queue, pending).await;
    }
}

/// Runs each request by itself, in tasks of their own: one that waits for a lock delays neither the others nor the next round.
fn run_individually(round: PendingRound, context: &Arc<StoreContext>, queue: &Arc<RelayQueue>) {
    for pending in round.claims {
        let (context, queue) = (Arc::clone(context), Arc::clone(queue));
        tokio::spawn(async move { claim_alone(&context, &queue, pending).await });
    }
    for pending in round.settlements {
        let context = Arc::clone(context);
        tokio::spawn(async move { settle_alone(&context, pending).await });
    }
    for pending in round.settle_and_claims {
        let (context, queue) = (Arc::clone(context), Arc::clone(queue));
        tokio::spawn(async move { settle_and_claim_alone(&context, &queue, pending).await });
    }
}

async fn claim_alone(context: &StoreContext, queue: &RelayQueue, pending: PendingClaim) {
    let result = claim::claim(context, &pending.request).await.map_err(StatementError::into_port);
    reply_to_claim(queue, pending, result);
}

async fn settle_alone(context: &StoreContext, pending: PendingSettle) {
    let result = settle::settle(context, &pending.request).await.map_err(StatementError::into_port);
    pending.reply(result);
}

async fn settle_and_claim_alone(context: &StoreContext, queue: &RelayQueue, pending: PendingSettleAndClaim) {
    let (settlement, claim) = &pending.request;
    let result = settle_and_claim::settle_and_claim(context, settlement, claim).await;
    reply_to_both(queue, pending, result.map_err(StatementError::into_port));
}

fn reply_to_claim(queue: &RelayQueue, pending: PendingClaim, result: RequestResult<ClaimOutcome>) {
    if let Ok(claimed) = &result {
        queue.record_claim(pending.request.fence.partition.0, claimed);
    }
    pending.reply(result);
}

fn reply_to_both(queue: &RelayQueue, pending: PendingSettleAndClaim, result: RequestResult<SettledClaim>) {
    if let Ok(SettledClaim { claimed: Ok(claimed), .. }) = &result {
        queue.record_claim(pending.request.1.fence.partition.0, claimed);
    }
    pending.reply(result);
}

/// Runs a round of several requests, and replies to each.
async fn run_group(context: &Arc<StoreContext>, queue: &Arc<RelayQueue>, round: PendingRound) {
    let GroupResults { claimed, settled } = match execute(context, &round).await {
        Ok(results) => results,
        Err(StatementError::LockTimeout(_)) => return run_unlocked(context, queue, round).await,
        Err(error) if may_succeed_alone(&error) => return run_individually(round, context, queue),
        Err(error) => return round.fail(&error.into_port()),
    };
    let (mut claimed, mut settled) = (claimed.into_iter(), settled.into_iter());
    for (pending, result) in round.claims.into_iter().zip(claimed.by_ref()) {
        reply_to_claim(queue, pending, result.map_err(StatementError::into_port));
    }
    let mut unsettled = PendingRound::default();
    for (pending, outcome) in round.settlements.into_iter().zip(settled.by_ref()) {
        match outcome {
            Some(outcome) => pending.reply(Ok(outcome)),
            // Stale, or settled before: a statement for this partition alone determines which.
            None => unsettled.settlements.push(pending),
        }
    }
    for (pending, (settled, claimed)) in round.settle_and_claims.into_iter().zip(settled.zip(claimed)) {
        complete(context, queue, pending, settled, claimed).await;
    }
    run_individually(unsettled, context, queue);
}

/// Runs the requests of a round that waited too long for a locked row: each by itself, as soon as its lease row is free.
async fn run_unlocked(context: &Arc<StoreContext>, queue: &Arc<RelayQueue>, round: PendingRound) {
    match split_locked(context, round.into_round()).await {
        Ok((unlocked, locked)) => {
            run_individually(PendingRound::from_round(unlocked), context, queue);
            tokio::spawn(wait_for_locks(Arc::clone(context), Arc::clone(queue), locked));
        }
        Err((round, error)) => PendingRound::from_round(round).fail(&error.into_port()),
    }
}

/// Waits until lease rows are free, without a connection: statements that waited for more rows than there are connections would stop all other
/// partitions, the heartbeats and the probes.
async fn wait_for_locks(context: Arc<StoreContext>, queue: Arc<RelayQueue>, mut locked: Round) {
    let deadline = Instant::now() + context.options.lock_timeout;
    while !locked.requests.is_empty() && Instant::now() < deadline {
        tokio::time::sleep(context.options.relay_lock_timeout).await;
        locked = match split_locked(&context, locked.without_abandoned_claims()).await {
            Ok((unlocked, locked)) => {
                run_individually(PendingRound::from_round(unlocked), &context, &queue);
                locked
            }
            // The next check may find a connection.
            Err((locked, _)) => locked,
        };
    }
    PendingRound::from_round(locked).fail(&Error::Unreachable("the lease row stayed locked".into()));
}

/// The requests whose lease rows are free at the moment, and the others.
async fn split_locked(context: &StoreContext, round: Round) -> Result<(Round, Round), (Round, StatementError)> {
    let checked = async { unlocked_of(&context.relay_session().await?, &round.partitions()).await };
    match checked.await {
        Ok(unlocked) => Ok(round.split(&unlocked)),
        Err(error) => Err((round, error)),
    }
}

/// Replies to a settlement with a claim; statements that are still missing run in a task of their own.
async fn complete(
    context: &Arc<StoreContext>,
    queue: &Arc<RelayQueue>,
    pending: PendingSettleAndClaim,
    settled: Option<FencedOutcome>,
    claimed: StatementResult<ClaimOutcome>,
) {
    let claimed = match claimed {
        Ok(claimed) => claimed,
        Err(error) => return pending.reply(Err(error.into_port())),
    };
    let (context, queue) = (Arc::clone(context), Arc::clone(queue));
    let is_finished = settle_and_claim::is_finished(&pending.request.1, settled, &claimed);
    let finish = async move {
        let (settlement, claim) = &pending.request;
        let result = settle_and_claim::finish(&context, settlement, claim, settled, claimed).await;
        reply_to_both(&queue, pending, result.map_err(StatementError::into_port));
    };
    if is_finished {
        finish.await;
    } else {
        tokio::spawn(finish);
    }
}

/// Whether a round has changed nothing, for a reason that may lie in one of its requests.
fn may_succeed_alone(error: &StatementError) -> bool {
    match error {
        StatementError::Conflict(_) | StatementError::LockTimeout(_) | StatementError::LeaseExpired => true,
        StatementError::Port(error) => matches!(error, Error::Rejected(_) | Error::Broken(_)),
    }
}

/// The results of a round in the order of its requests: those of both kinds come last.
struct GroupResults {
    claimed: Vec<StatementResult<ClaimOutcome>>,
    settled: Vec<Option<FencedOutcome>>,
}

/// Runs a round in one transaction.
async fn execute(context: &StoreContext, round: &PendingRound) -> StatementResult<GroupResults> {
    let session = context.relay_session().await?;
    let claims_only =
        round.claims.iter().map(|pending| GroupedClaim { claim: &pending.request, after_settlement: false });
    let claims_after_settlement = round
        .settle_and_claims
        .iter()
        .map(|pending| GroupedClaim { claim: &pending.request.1, after_settlement: true });
    let settlements = round.settlements.iter().map(|pending| &pending.request);
    let settlements: Vec<_> =
        settlements.chain(round.settle_and_claims.iter().map(|pending| &pending.request.0)).collect();
    let is_mixed = !settlements.is_empty() && round.claims.len() + round.settle_and_claims.len() > 0;
    let sample =
        if is_mixed { SampleId::BeforeTransaction(context.scan_starts.highest()) } else { SampleId::FromSnapshot };
    let claim_fences = round.claims.iter().map(|pending| &pending.request.fence);
    let locks = LeaseLocks::new(claim_fences.chain(settlements.iter().map(|settlement| &settlement.fence)));
    // The claims come first here: they use the scan starts that a settlement would take.
    let claims = ClaimGroup::new(context, claims_only.chain(claims_after_settlement).collect(), sample);
    let settlements = SettleGroup::new(context, settlements);
    let locked = is_mixed.then(|| locks.statement());
    let statements: Vec<_> = [locked, settlements.statement(), claims.statement()].into_iter().flatten().collect();
    let commit = if claims.is_empty() { context.options.settle_commit() } else { CommitWait::Flush };
    let sent = Instant::now();
    let results = session.execute_all(context.options.relay_lock_timeout, commit, &statements).await?;
    let mut results = results.into_iter().skip(usize::from(is_mixed));
    let settled = match settlements.is_empty() {
        true => Vec::new(),
        false => settlements.outcomes(context, results.next().unwrap_or_default())?,
    };
    let claimed = match claims.is_empty() {
        true => Vec::new(),
        false => claims.results(context, results.next().unwrap_or_default(), sent)?,
    };
    Ok(GroupResults { claimed, settled })
}
