//! The way to an order's shard: which one, how long to wait, and what an answer that never came means.
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
    /// These shards; a command is given up after `deadline`.
    pub fn new(shards: Vec<Mailbox<OrderAggregate>>, keys: Arc<dyn Idempotency>, deadline: Duration) -> Self {
        Self { shards: shards.into(), next: Arc::default(), keys, deadline }
    }

    /// Places an order. The new order is known to nobody yet, so any shard may do it: they take turns.
    pub async fn create(&self, command: CreateOrder) -> Result<Created, CommandError> {
        let shard = &self.shards[self.next.fetch_add(1, Relaxed) % self.shards.len()];
        let reach = Reach::default();
        let key = command.intent.as_ref().map(|intent| (command.subject.clone(), Arc::clone(&intent.key)));
        let asked = shard.try_ask(Create { command, reach: reach.clone() }, self.deadline).await;
        if let (Err(AskError::Closed), Some((subject, key))) = (&asked, key)
            && reach.has_key()
            && !reach.reached()
        {
            // Our client hears that nothing was changed, so it may come again at once. What fails here only costs it the lock's time.
            let _ = self.keys.abandon(&subject, &key).await;
        }
        asked.unwrap_or_else(|lost| Err(silence(lost, &reach)))
    }

    /// Changes an order, in the shard that serialises its commands.
    pub async fn change(&self, command: ChangeOrder) -> Result<Arc<Order>, CommandError> {
        let shard = &self.shards[self.home(command.id)];
        let reach = Reach::default();
        let asked = shard.try_ask(Change { command, reach: reach.clone() }, self.deadline).await;
        asked.unwrap_or_else(|lost| Err(silence(lost, &reach)))
    }

    fn home(&self, id: OrderId) -> usize {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        (hasher.finish() % self.shards.len() as u64) as usize
    }
}

/// What it means that no answer came: nothing happened, unless the store had been reached.
fn silence(lost: AskError, reach: &Reach) -> CommandError {
    match lost {
        AskError::Overloaded => CommandError::Busy,
        _ if reach.reached() => {
            CommandError::Unknown("the order's actor went down or was too slow after the store was reached".into())
        }
        AskError::Closed => CommandError::ActorDown,
        AskError::Timeout => CommandError::Expired,
    }
}
