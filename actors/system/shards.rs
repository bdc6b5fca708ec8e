//! Shards: sends each command to its OrderAggregate shard, and decides what a missing reply means.
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use app::commands::{CommandContext, CommitProgress, IdempotencyGuard, UnknownChange};
use app::dispatch::{ChangeOrder, CreateOrder, CreatedOrder};
use app::error::CommandError;
use domain::{Order, OrderId};
use supervision::{AskError, Mailbox};
use tokio::time::Instant;

use crate::order_aggregate::{Change, Create, OrderAggregate};

/// How long the reply to a command waits for the eviction of cache entries.
const EVICTION_TIME_MAX: Duration = Duration::from_millis(100);
/// Time after which a commit has ended that its caller no longer waits for: longer than a statement of any store takes.
const COMMIT_TIME_MAX: Duration = Duration::from_secs(10);

/// Routes commands to the mailboxes of the OrderAggregate shards.
#[derive(Clone)]
pub struct Shards {
    shards: Arc<[Mailbox<OrderAggregate>]>,
    next: Arc<AtomicUsize>,
    context: Arc<CommandContext>,
    deadline: Duration,
}

impl Shards {
    /// These shards; a command fails after `deadline`, or after its own time limit if that is shorter.
    pub fn new(shards: Vec<Mailbox<OrderAggregate>>, context: Arc<CommandContext>, deadline: Duration) -> Self {
        Self { shards: shards.into(), next: Arc::default(), context, deadline }
    }

    /// Creates an order. No other command can name the new order yet, so any shard may create it: they take turns.
    pub async fn create(&self, command: CreateOrder, time_limit: Duration) -> Result<CreatedOrder, CommandError> {
        let shard = &self.shards[self.next.fetch_add(1, Relaxed) % self.shards.len()];
        let progress = CommitProgress::default();
        let key = IdempotencyGuard::new(&self.context, &command);
        let owner = command.subject.clone();
        let create = Create { command, key: key.clone(), progress: progress.clone() };
        let time_limit = time_limit.min(self.deadline);
        let deadline = Instant::now() + time_limit;
        let reply = shard.try_ask(create, time_limit).await;
        if let (Err(AskError::Closed), Some(key)) = (&reply, key) {
            // A task of its own: the release goes on after the deadline. The client may repeat its request at once.
            let release = tokio::spawn(async move { key.release_after_actor_exit().await });
            let _ = tokio::time::timeout_at(deadline, release).await;
        }
        match reply {
            Ok(result) => result,
            Err(error) => Err(self.without_reply(error, &progress, UnknownChange::Create { owner }).await),
        }
    }

    /// Changes an order, in the shard that serialises the commands of this order.
    pub async fn change(&self, command: ChangeOrder, time_limit: Duration) -> Result<Arc<Order>, CommandError> {
        let shard = &self.shards[self.shard_of(command.id)];
        let (progress, id) = (CommitProgress::default(), command.id);
        let change = Change { command, progress: progress.clone() };
        let reply = shard.try_ask(change, time_limit.min(self.deadline)).await;
        match reply {
            Ok(result) => result,
            Err(error) => Err(self.without_reply(error, &progress, UnknownChange::Change { id }).await),
        }
    }

    /// The error of a command without a reply. The client will read the order that may have changed, so the cache must not serve an older version:
    /// that is evicted now, and once more when a commit that still waited in the store has ended.
    async fn without_reply(&self, error: AskError, progress: &CommitProgress, change: UnknownChange) -> CommandError {
        let error = error_without_reply(error, progress);
        if matches!(error, CommandError::Unknown(_)) {
            // A slow cache must not delay the reply for long.
            let _ = tokio::time::timeout(EVICTION_TIME_MAX, self.context.evict_outdated(&change)).await;
            let context = Arc::clone(&self.context);
            tokio::spawn(async move {
                tokio::time::sleep(COMMIT_TIME_MAX).await;
                context.evict_outdated(&change).await;
            });
        }
        error
    }

    fn shard_of(&self, id: OrderId) -> usize {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        (hasher.finish() % self.shards.len() as u64) as usize
    }
}

/// Without a reply nothing has changed and nothing will, unless the command had reached the store.
pub(super) fn error_without_reply(error: AskError, progress: &CommitProgress) -> CommandError {
    match error {
        AskError::Overloaded => CommandError::Busy,
        _ if !progress.abandon() => {
            CommandError::Unknown("the actor failed or was too slow after the command reached the store".into())
        }
        AskError::Closed => CommandError::ActorDown,
        AskError::Timeout => CommandError::Expired,
    }
}
