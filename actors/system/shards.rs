//! Shards: sends each command to its OrderAggregate shard, and decides what a missing reply means.
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use app::commands::Reach;
use app::dispatch::{ChangeOrder, CreateOrder, Created};
use app::error::CommandError;
use domain::{Order, OrderId};
use ports::idempotency::Idempotency;
use supervision::{AskError, Mailbox};

use crate::order_aggregate::{Change, Create, OrderAggregate};

/// All shards of this instance.
#[derive(Clone)]
pub struct Shards {
    shards: Arc<[Mailbox<OrderAggregate>]>,
    next: Arc<AtomicUsize>,
    keys: Arc<dyn Idempotency>,
    deadline: Duration,
}

impl Shards {
    /// These shards; a command fails after `deadline`.
    pub fn new(shards: Vec<Mailbox<OrderAggregate>>, keys: Arc<dyn Idempotency>, deadline: Duration) -> Self {
        Self { shards: shards.into(), next: Arc::default(), keys, deadline }
    }

    /// Creates an order. No other command can name the new order yet, so any shard may create it: they take turns.
    pub async fn create(&self, command: CreateOrder) -> Result<Created, CommandError> {
        let shard = &self.shards[self.next.fetch_add(1, Relaxed) % self.shards.len()];
        let progress = Reach::default();
        let key = command.intent.as_ref().map(|intent| (command.subject.clone(), Arc::clone(&intent.key)));
        let reply = shard.try_ask(Create { command, progress: progress.clone() }, self.deadline).await;
        if let (Err(AskError::Closed), Some((subject, key))) = (&reply, key)
            && progress.has_key()
            && !progress.reached()
        {
            // The client learns that nothing changed, so it may retry at once. If this fails, the key stays locked until its timeout.
            let _ = self.keys.abandon(&subject, &key).await;
        }
        reply.unwrap_or_else(|error| Err(error_without_reply(error, &progress)))
    }

    /// Changes an order, in the shard that serialises the commands of this order.
    pub async fn change(&self, command: ChangeOrder) -> Result<Arc<Order>, CommandError> {
        let shard = &self.shards[self.shard_of(command.id)];
        let progress = Reach::default();
        let reply = shard.try_ask(Change { command, progress: progress.clone() }, self.deadline).await;
        reply.unwrap_or_else(|error| Err(error_without_reply(error, &progress)))
    }

    fn shard_of(&self, id: OrderId) -> usize {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        (hasher.finish() % self.shards.len() as u64) as usize
    }
}

/// Without a reply nothing has changed, unless the command had reached the store.
fn error_without_reply(error: AskError, progress: &Reach) -> CommandError {
    match error {
        AskError::Overloaded => CommandError::Busy,
        _ if progress.reached() => {
            CommandError::Unknown("the order's actor failed or was too slow after the command reached the store".into())
        }
        AskError::Closed => CommandError::ActorDown,
        AskError::Timeout => CommandError::Expired,
    }
}
