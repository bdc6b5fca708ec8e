//! The rounds of the relay: what the partitions ask of the store while one round's transaction runs shares the next one's. A request that
//! finds no round running begins one at once, with the statement of one partition.
//!
//! A round of several requests is one transaction with at most two statements. Claims come first: a scan start relies on a transaction's
//! number that was assigned after the claim's snapshot, and a settlement before it would assign one earlier. All requests of a round are
//! of different partitions, so the order means nothing to them.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use ports::outbox::{Claim, Claimed, FencedOutcome, Settlement};
use tokio::sync::oneshot;

use crate::connection::session::CommitWait;
use crate::connection::statement_error::{StatementError, StatementResult};
use crate::outbox::rounds::claim_group::ClaimGroup;
use crate::outbox::rounds::relay_queue::{BusyPartition, RelayQueue, RelayRequest, RequestResult, Round};
use crate::outbox::rounds::settle_group::SettleGroup;
use crate::outbox::{claim, settle};
use crate::store::core::Core;

/// Time beyond [`crate::Options::relay_lock_timeout`] that the next round waits for the one before. What still runs then waits for a lock, or
/// is slow, by itself.
const ROUND_GRACE: Duration = Duration::from_millis(50);

/// Runs rounds until the task is aborted.
pub(crate) async fn run(core: Arc<Core>, queue: Arc<RelayQueue>) {
    let timeout = core.options.relay_lock_timeout + ROUND_GRACE;
    loop {
        let round = queue.next_round(&core.options).await;
        let task = tokio::spawn(run_round(Arc::clone(&core), Arc::clone(&queue), round));
        // After the timeout the task continues. A panic drops the callers' senders, which reports an unknown outcome.
        let _ = tokio::time::timeout(timeout, task).await;
    }
}

/// A request with everything that its reply needs.
struct Pending<Q, A> {
    request: Q,
    reply: oneshot::Sender<RequestResult<A>>,
    busy: BusyPartition,
}

impl<Q, A> Pending<Q, A> {
    fn reply(self, result: RequestResult<A>) {
        // The caller may send its next request as soon as it has the reply.
        drop(self.busy);
        // Fails if the caller has gone.
        let _ = self.reply.send(result);
    }
}

type PendingClaim = Pending<Claim, Claimed>;
type PendingSettle = Pending<Settlement, FencedOutcome>;

async fn run_round(core: Arc<Core>, queue: Arc<RelayQueue>, round: Round) {
    let (mut claims, mut settlements) = (Vec::new(), Vec::new());
    for running in round.requests {
        let busy = running.busy;
        match running.request {
            RelayRequest::Claim(request, reply) => claims.push(Pending { request, reply, busy }),
            RelayRequest::Settle(request, reply) => settlements.push(Pending { request, reply, busy }),
        }
    }
    if claims.len() + settlements.len() > 1 {
        run_group(&core, &queue, claims, settlements).await;
        return;
    }
    for pending in claims {
        claim_alone(&core, &queue, pending).await;
    }
    for pending in settlements {
        settle_alone(&core, pending).await;
    }
}

async fn claim_alone(core: &Core, queue: &RelayQueue, pending: PendingClaim) {
    let result = claim::claim(core, pending.request.clone()).await.map_err(StatementError::into_port);
    reply_to_claim(queue, pending, result);
}

async fn settle_alone(core: &Core, pending: PendingSettle) {
    let result = settle::settle(core, &pending.request).await.map_err(StatementError::into_port);
    pending.reply(result);
}

fn reply_to_claim(queue: &RelayQueue, pending: PendingClaim, result: RequestResult<Claimed>) {
    if let Ok(claimed) = &result {
        queue.record_claim(pending.request.fence.partition.0, claimed);
    }
    pending.reply(result);
}

/// Runs a round of several requests, and replies to each.
async fn run_group(
    core: &Arc<Core>,
    queue: &Arc<RelayQueue>,
    claims: Vec<PendingClaim>,
    settlements: Vec<PendingSettle>,
) {
    match execute(core, &claims, &settlements).await {
        Ok((claimed, settled)) => {
            for (pending, result) in claims.into_iter().zip(claimed) {
                reply_to_claim(queue, pending, result.map_err(StatementError::into_port));
            }
            let mut unsettled = Vec::new();
            for (pending, outcome) in settlements.into_iter().zip(settled) {
                match outcome {
                    Some(outcome) => pending.reply(Ok(outcome)),
                    // Stale, or settled before: by itself it reads which.
                    None => unsettled.push(pending),
                }
            }
            repeat(core, queue, Vec::new(), unsettled);
        }
        Err(error) if may_succeed_alone(&error) => repeat(core, queue, claims, settlements),
        Err(error) => {
            let error = error.into_port();
            claims.into_iter().for_each(|pending| pending.reply(Err(error.clone())));
            settlements.into_iter().for_each(|pending| pending.reply(Err(error.clone())));
        }
    }
}

/// Whether a round has changed nothing, for a reason that may lie in one of its requests.
fn may_succeed_alone(error: &StatementError) -> bool {
    match error {
        StatementError::Conflict(_) | StatementError::LockTimeout(_) | StatementError::LeaseExpired => true,
        StatementError::Port(error) => matches!(error, Error::Rejected(_) | Error::Broken(_)),
    }
}

/// Runs each request by itself, in tasks of their own: one that waits for a lock delays neither the others nor the next round.
fn repeat(core: &Arc<Core>, queue: &Arc<RelayQueue>, claims: Vec<PendingClaim>, settlements: Vec<PendingSettle>) {
    for pending in claims {
        let (core, queue) = (Arc::clone(core), Arc::clone(queue));
        tokio::spawn(async move { claim_alone(&core, &queue, pending).await });
    }
    for pending in settlements {
        let core = Arc::clone(core);
        tokio::spawn(async move { settle_alone(&core, pending).await });
    }
}

type GroupResults = (Vec<StatementResult<Claimed>>, Vec<Option<FencedOutcome>>);

/// Runs the claims and the settlements in one transaction.
async fn execute(core: &Core, claims: &[PendingClaim], settlements: &[PendingSettle]) -> StatementResult<GroupResults> {
    let session = core.relay_session().await?;
    let settlements = SettleGroup::new(core, settlements.iter().map(|pending| &pending.request).collect());
    let claims = claims.iter().map(|pending| &pending.request).collect();
    let claims = ClaimGroup::new(core, claims, settlements.leases());
    let statements: Vec<_> = [claims.statement(), settlements.statement()].into_iter().flatten().collect();
    let commit = if claims.is_empty() { core.options.settle_commit() } else { CommitWait::Flush };
    let mut results = session.execute_all(core.options.relay_lock_timeout, commit, &statements).await?.into_iter();
    let claimed =
        if claims.is_empty() { Vec::new() } else { claims.results(core, results.next().unwrap_or_default())? };
    let settled = if settlements.is_empty() {
        Vec::new()
    } else {
        settlements.outcomes(core, results.next().unwrap_or_default())?
    };
    Ok((claimed, settled))
}
