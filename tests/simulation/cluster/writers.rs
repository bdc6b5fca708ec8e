//! Writers: clients that create orders and change their status, at any instance that answers; and the replies that all writers receive.
use std::sync::Arc;
use std::time::Duration;

use app::dispatch::{ChangeOrder, ChangePreconditions, CreateOrder, Viewer};
use domain::{EventId, Item, Items, Money, Order, Status, Subject};
use kit::checkers::AcknowledgedEvent;
use kit::clock::SeededRng;
use parking_lot::Mutex;
use ports::clock::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::instances::InstanceRegistry;

/// The status changes of an order after its creation.
const CHANGES: [Status; 3] = [Status::Processing, Status::Shipped, Status::Delivered];
/// How often a writer repeats a command that failed.
pub const REPETITIONS_MAX: u32 = 3;

/// The replies that the writers received. Clones share them.
#[derive(Clone, Default)]
pub struct Replies(Arc<Mutex<ReceivedReplies>>);

#[derive(Default)]
struct ReceivedReplies {
    orders: Vec<AcknowledgedEvent>,
    events: Vec<EventId>,
}

impl Replies {
    /// The orders' events of all successful replies.
    pub fn acknowledged(&self) -> Vec<AcknowledgedEvent> {
        self.0.lock().orders.clone()
    }

    /// The events of other services whose writers know that they are committed.
    pub fn events(&self) -> Vec<EventId> {
        self.0.lock().events.clone()
    }

    fn add(&self, order: &Order) {
        self.0.lock().orders.push(AcknowledgedEvent::of(order.id, order.version));
    }

    /// Adds an event of another service.
    pub fn add_event(&self, event: EventId) {
        self.0.lock().events.push(event);
    }
}

/// The writers. Dropping them ends their tasks.
pub struct Writers(JoinSet<()>);

impl Writers {
    /// Starts writers that each write `orders` orders, with pauses of up to `pause_max` between two commands.
    pub fn start(
        writers: u64,
        orders: u32,
        pause_max: Duration,
        seed: u64,
        registry: &InstanceRegistry,
        replies: &Replies,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for number in 0..writers {
            let rng = SeededRng::new(seed.wrapping_mul(1_000).wrapping_add(number));
            let writer = Writer { rng, pause_max, registry: registry.clone(), replies: replies.clone() };
            tasks.spawn(async move { writer.write(orders).await });
        }
        Self(tasks)
    }

    /// Starts one more writer.
    pub fn spawn(&mut self, writer: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(writer);
    }

    /// Waits until all writers are done.
    pub async fn finished(&mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

struct Writer {
    rng: SeededRng,
    pause_max: Duration,
    registry: InstanceRegistry,
    replies: Replies,
}

impl Writer {
    async fn write(&self, orders: u32) {
        for _ in 0..orders {
            self.pause().await;
            let Some(order) = self.create().await else { continue };
            self.replies.add(&order);
            for to in CHANGES {
                self.pause().await;
                self.change(&order, to).await;
            }
        }
    }

    async fn pause(&self) {
        pause(&self.rng, self.pause_max).await;
    }

    async fn create(&self) -> Option<Arc<Order>> {
        let instance = self.registry.find(self.rng.next_u64())?;
        let command = CreateOrder {
            subject: subject(),
            items: items(),
            idempotency_key: None,
            trace: None,
            span: None,
            request_id: None,
        };
        instance.create(command, Duration::MAX).await.ok().map(|created| created.order)
    }

    async fn change(&self, order: &Order, to: Status) {
        for _ in 0..REPETITIONS_MAX {
            let (viewer, preconditions) = (Viewer::Admin, ChangePreconditions::default());
            let command =
                ChangeOrder { id: order.id, to, viewer, preconditions, trace: None, span: None, request_id: None };
            let Some(instance) = self.registry.find(self.rng.next_u64()) else { continue };
            if let Ok(changed) = instance.change(command, Duration::MAX).await {
                return self.replies.add(&changed);
            }
        }
    }
}

/// The pause before a command.
pub async fn pause(rng: &SeededRng, pause_max: Duration) {
    // A third of the commands follow at once.
    let share = (rng.fraction() * 1.5 - 0.5).max(0.0);
    sleep(pause_max.mul_f64(share)).await;
}

fn subject() -> Subject {
    Subject::new("ann").expect("a name")
}

fn items() -> Items {
    let price = Money::parse("2.50").expect("a price");
    Items::new(vec![Item::new("Tea", 2, price).expect("a legal item")]).expect("one item")
}
