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
use crate::store::options::Options;

/// Repetitions of a group that lost a conflict, and returns of a commit to the queue: 5 each.
const RETRIES_MAX: u32 = 5;

/// Commits groups until the task is aborted.
pub(crate) async fn run(context: Arc<StoreContext>, queue: Arc<CommitQueue>) {
    run_groups(&queue, &context.options, |group| {
        let (context, queue) = (Arc::clone(&context), Arc::clone(&queue));
        async move { commit(&context, &queue, group).await }
    })
    .await;
}

/// Calls `commit` with one group after another, in a task of its own for each: a panic drops the senders of the group's callers, which reports an
/// unknown outcome, and the next group follows.
async fn run_groups<F>(queue: &CommitQueue, options: &Options, commit: impl Fn(Vec<QueuedCommit>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let group = queue.next_group(options).await;
        let (size, begin) = (group.len(), Instant::now());
        let _ = tokio::spawn(commit(group)).await;
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use kit::Factory;
    use ports::orders::CommitOutcome;
    use ports::partitions::{InstanceId, PartitionNo};

    use super::*;

    #[tokio::test]
    async fn a_panic_fails_its_group_only_and_the_queue_drains() {
        let options = Options::new("postgres://localhost", InstanceId("a".into()));
        let factory = Factory::seeded(1, "orders".into());
        let (queue, is_first) = (Arc::new(CommitQueue::new(&options)), AtomicBool::new(true));
        let committer = {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                let commit = |group: Vec<QueuedCommit>| {
                    let panics = is_first.swap(false, Ordering::Relaxed);
                    async move {
                        assert!(!panics, "the first group");
                        group.into_iter().for_each(|queued| queued.reply(Ok(CommitOutcome::Done)));
                    }
                };
                run_groups(&queue, &options, commit).await;
            })
        };
        let push = || queue.push(factory.creation("ann", PartitionNo(0))).expect("the queue has space");

        assert!(push().await.is_err(), "the caller of the first group gets no result");
        assert!(matches!(push().await, Ok(Ok(CommitOutcome::Done))));
        tokio::time::timeout(Duration::from_secs(10), queue.drained()).await.expect("no group is in progress");
        committer.abort();
    }
}
