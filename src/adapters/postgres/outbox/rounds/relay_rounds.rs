//! The rounds of the relay: the requests of partitions that arrive while one round's transaction runs share the transaction of the next round. A
//! request that finds no round running begins one at once, with the statement of one partition.
//!
//! A round of several requests is one transaction: it locks all lease rows in their order, settles, and claims. So a partition's batch is
//! settled and its next one claimed by one commit, together with those of the other partitions.
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use ports::outbox::{Claim, ClaimOutcome, FencedOutcome, SettledClaim, Settlement};
use tokio::time::Instant;

use crate::connection::session::CommitWait;
use crate::connection::statement_error::{StatementError, StatementResult, broken};
use crate::outbox::rounds::claim_group::{ClaimGroup, GroupedClaim};
use crate::outbox::rounds::lease_locks::{LeaseLocks, unlocked_of};
use crate::outbox::rounds::relay_queue::{BusyPartition, RelayQueue, RunningRequest};
use crate::outbox::rounds::relay_request::{RelayRequest, ReplySender};
use crate::outbox::rounds::settle_group::SettleGroup;
use crate::outbox::scan::scan_snapshot::SampleId;
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
        let task = tokio::spawn(run_round(Arc::clone(&context), round));
        // After the timeout the task continues. A panic drops the callers' senders, which reports an unknown outcome.
        let _ = tokio::time::timeout(timeout, task).await;
    }
}

async fn run_round(context: Arc<StoreContext>, mut round: Vec<RunningRequest>) {
    // By itself a request costs less, and waits longer for a locked row.
    if round.len() == 1
        && let Some(_permit) = context.lock_wait_permit()
        && let Some(running) = round.pop()
    {
        return run_alone(&context, running).await;
    }
    run_group(&context, round).await;
}

/// Runs each request by itself, in tasks of their own: one that waits for a lock delays neither the others nor the next round.
fn run_individually(requests: Vec<RunningRequest>, context: &Arc<StoreContext>) {
    for running in requests {
        let context = Arc::clone(context);
        tokio::spawn(async move { run_alone(&context, running).await });
    }
}

async fn run_alone(context: &StoreContext, RunningRequest { request, busy }: RunningRequest) {
    match request {
        RelayRequest::Claim(claim, sender) => reply_to_claim(busy, sender, claim::claim(context, &claim).await),
        RelayRequest::Settle(settlement, sender) => {
            let result = settle::settle(context, &settlement).await;
            busy.reply(sender, result.map_err(StatementError::into_port));
        }
        RelayRequest::SettleAndClaim(settlement, claim, sender) => {
            let result = settle_and_claim::settle_and_claim(context, &settlement, &claim).await;
            reply_to_both(busy, sender, result);
        }
    }
}

fn reply_to_claim(busy: BusyPartition, sender: ReplySender<ClaimOutcome>, result: StatementResult<ClaimOutcome>) {
    if let Ok(claimed) = &result {
        busy.record_claim(claimed);
    }
    busy.reply(sender, result.map_err(StatementError::into_port));
}

fn reply_to_both(busy: BusyPartition, sender: ReplySender<SettledClaim>, result: StatementResult<SettledClaim>) {
    if let Ok(SettledClaim { claimed: Ok(claimed), .. }) = &result {
        busy.record_claim(claimed);
    }
    busy.reply(sender, result.map_err(StatementError::into_port));
}

fn reply_error_to_all(requests: Vec<RunningRequest>, error: &Error) {
    requests.into_iter().for_each(|running| running.reply_error(error.clone()));
}

/// Runs a round of several requests, and replies to each.
async fn run_group(context: &Arc<StoreContext>, round: Vec<RunningRequest>) {
    let GroupResults { claimed, settled } = match execute(context, &round).await {
        Ok(results) => results,
        Err(StatementError::LockTimeout(_)) => return run_unlocked(context, round).await,
        Err(error) if may_succeed_alone(&error) => return run_individually(round, context),
        Err(error) => return reply_error_to_all(round, &error.into_port()),
    };
    let (mut claimed, mut settled) = (claimed.into_iter(), settled.into_iter());
    let mut next_claimed = || claimed.next().unwrap_or_else(|| Err(broken("a round returned too few claims")));
    let mut unsettled = Vec::new();
    for RunningRequest { request, busy } in round {
        match request {
            RelayRequest::Claim(_, sender) => reply_to_claim(busy, sender, next_claimed()),
            RelayRequest::Settle(settlement, sender) => match settled.next().flatten() {
                Some(outcome) => busy.reply(sender, Ok(outcome)),
                // Stale, or settled before: a statement for this partition alone determines which.
                None => unsettled.push(RunningRequest { request: RelayRequest::Settle(settlement, sender), busy }),
            },
            RelayRequest::SettleAndClaim(settlement, claim, sender) => {
                let (settled, claimed) = (settled.next().flatten(), next_claimed());
                let context = Arc::clone(context);
                match claimed {
                    Ok(claimed) => complete(context, busy, (settlement, claim, sender), settled, claimed).await,
                    Err(error) => busy.reply(sender, Err(error.into_port())),
                }
            }
        }
    }
    run_individually(unsettled, context);
}

/// Runs the requests of a round that waited too long for a locked row: each by itself, as soon as its lease row is free.
async fn run_unlocked(context: &Arc<StoreContext>, round: Vec<RunningRequest>) {
    match unlocked_partitions(context, &round).await {
        Ok(unlocked) => {
            let (free, locked) = round.into_iter().partition(|running| unlocked.contains(&running.busy.partition));
            run_individually(free, context);
            tokio::spawn(wait_for_locks(Arc::clone(context), locked));
        }
        Err(error) => reply_error_to_all(round, &error.into_port()),
    }
}

/// Waits until lease rows are free, without a connection: statements that waited for more rows than there are connections would stop all other
/// partitions, the heartbeats and the probes.
async fn wait_for_locks(context: Arc<StoreContext>, mut locked: Vec<RunningRequest>) {
    let deadline = Instant::now() + context.options.lock_timeout;
    while !locked.is_empty() && Instant::now() < deadline {
        tokio::time::sleep(context.options.relay_lock_timeout).await;
        locked = locked.into_iter().filter_map(RunningRequest::without_abandoned_claim).collect();
        // The next check may find a connection.
        let unlocked = unlocked_partitions(&context, &locked).await.unwrap_or_default();
        let free: Vec<_> = locked.extract_if(.., |running| unlocked.contains(&running.busy.partition)).collect();
        run_individually(free, &context);
    }
    reply_error_to_all(locked, &Error::Unreachable("the lease row stayed locked".into()));
}

/// The partitions of the requests whose lease rows are free at the moment.
async fn unlocked_partitions(context: &StoreContext, requests: &[RunningRequest]) -> StatementResult<HashSet<u32>> {
    let partitions: Vec<i32> = requests.iter().map(|running| running.busy.partition as i32).collect();
    unlocked_of(&context.relay_session().await?, &partitions).await
}

/// Replies to a settlement with a claim; statements that are still missing run in a task of their own.
async fn complete(
    context: Arc<StoreContext>,
    busy: BusyPartition,
    (settlement, claim, sender): (Settlement, Claim, ReplySender<SettledClaim>),
    settled: Option<FencedOutcome>,
    claimed: ClaimOutcome,
) {
    let is_finished = settle_and_claim::is_finished(&claim, settled, &claimed);
    let finish = async move {
        let result = settle_and_claim::finish(&context, &settlement, &claim, settled, claimed).await;
        reply_to_both(busy, sender, result);
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

/// The results of a round's claims and of its settlements, both in the order of the requests.
struct GroupResults {
    claimed: Vec<StatementResult<ClaimOutcome>>,
    settled: Vec<Option<FencedOutcome>>,
}

/// Runs a round in one transaction.
async fn execute(context: &StoreContext, round: &[RunningRequest]) -> StatementResult<GroupResults> {
    let session = context.relay_session().await?;
    let requests = || round.iter().map(|running| &running.request);
    let claims: Vec<_> = requests().filter_map(grouped_claim).collect();
    let settlements: Vec<_> = requests().filter_map(RelayRequest::settlement).collect();
    let is_mixed = !settlements.is_empty() && !claims.is_empty();
    let sample =
        if is_mixed { SampleId::BeforeTransaction(context.scan_starts.highest()) } else { SampleId::FromSnapshot };
    let locks = LeaseLocks::new(requests().map(RelayRequest::fence));
    // The claims come first here: they use the scan starts that a settlement would take.
    let claims = ClaimGroup::new(context, claims, sample);
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

/// The claim of a request; `None` for a settlement.
fn grouped_claim(request: &RelayRequest) -> Option<GroupedClaim<'_>> {
    Some(GroupedClaim { claim: request.claim()?, after_settlement: request.settlement().is_some() })
}
