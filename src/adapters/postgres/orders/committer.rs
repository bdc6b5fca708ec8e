//! Group commit: a free committer takes the commits that queued up meanwhile and commits them in one transaction. Groups keep a small distance
//! while commits are slow (`group_spacing.rs`). An order that another transaction has locked delays only its own commit.
use std::sync::Arc;

use ports::Error;
use ports::orders::Commit;
use tokio::time::Instant;

use crate::connection::statement_error::StatementError;
use crate::orders::commit_queue::{CommitQueue, QueuedCommit};
use crate::orders::group_commit::{self, GroupOutcome, GroupedCommitResult};
use crate::orders::resolve_commit;
use crate::store::context::StoreContext;

/// Repetitions of a group that lost a conflict, and returns of a commit to the queue: 5 each.
const RETRIES_MAX: u32 = 5;

/// Commits groups until the task is aborted.
pub(crate) async fn run(context: Arc<StoreContext>, queue: Arc<CommitQueue>) {
    loop {
        let group = queue.next_group(&context.options).await;
        let (size, begin) = (group.len(), Instant::now());
        commit(&context, &queue, group).await;
        queue.finish(size, begin.elapsed());
    }
}

/// Commits one group and replies to all its callers.
async fn commit(context: &StoreContext, queue: &CommitQueue, mut group: Vec<QueuedCommit>) {
    // Every group locks its orders in this order, so that two groups never deadlock.
    group.sort_by_key(|queued| queued.commit.order.id);
    let mut retries = 0;
    let outcome = loop {
        let commits: Vec<&Commit> = group.iter().map(|queued| &queued.commit).collect();
        match group_commit::commit(context, &commits).await {
            GroupOutcome::Failed(StatementError::Conflict(_)) if retries < RETRIES_MAX => retries += 1,
            outcome => break outcome,
        }
    };
    match outcome {
        GroupOutcome::Committed(results) => reply(context, queue, group, results),
        GroupOutcome::Failed(StatementError::Port(Error::Rejected(_) | Error::Broken(_))) if group.len() > 1 => {
            // One of them cannot be written: committed one by one, only that one fails.
            for queued in group {
                Box::pin(commit(context, queue, vec![queued])).await;
            }
        }
        GroupOutcome::Failed(error) => {
            let error = error.into_port();
            group.into_iter().for_each(|queued| queued.reply(Err(error.clone())));
        }
        GroupOutcome::Unknown { xid, error } => {
            let commits: Vec<&Commit> = group.iter().map(|queued| &queued.commit).collect();
            let results = resolve_commit::resolve(context, xid, &commits, &error).await;
            group.into_iter().zip(results).for_each(|(queued, result)| queued.reply(result));
        }
    }
}

fn reply(context: &StoreContext, queue: &CommitQueue, group: Vec<QueuedCommit>, results: Vec<GroupedCommitResult>) {
    let (mut returned, mut locked) = (Vec::new(), Vec::new());
    for (mut queued, result) in group.into_iter().zip(results) {
        match result {
            GroupedCommitResult::Final(committed) => queued.reply(Ok(committed)),
            GroupedCommitResult::Locked => locked.push(queued),
            GroupedCommitResult::Retry if queued.requeues < RETRIES_MAX => {
                queued.requeues += 1;
                returned.push(queued);
            }
            GroupedCommitResult::Retry => {
                queued.reply(Err(Error::Unreachable(
                    "other commits keep taking and releasing its idempotency key".into(),
                )));
            }
        }
    }
    if !returned.is_empty() {
        queue.put_back(returned);
    }
    if !locked.is_empty() {
        queue.requeue_locked(locked, context.options.lock_timeout);
    }
}
