//! A `Dispatch` that applies the domain's rules to orders in memory, and fails on request.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use app::dispatch::*;
use app::error::CommandError;
use async_trait::async_trait;
use domain::{ChangeContext, EventId, Hlc, NewOrder, Order, OrderId, RegionId};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use ports::clock::Clock;

use crate::support::fake_ports::{FakeClock, FakeOrderStore, event};

pub struct FakeDispatch {
    pub orders: Arc<FakeOrderStore>,
    pub clock: Arc<FakeClock>,
    /// The number of received commands.
    pub received: AtomicU32,
    /// The error of the next command.
    pub fails: Mutex<Option<CommandError>>,
    /// Whether each command panics.
    pub panics: Mutex<bool>,
    /// Whether each command waits forever.
    pub hangs: Mutex<bool>,
    /// Whether each command waits in its mailbox until its time limit.
    pub is_paused: Mutex<bool>,
    pub keys: Mutex<Vec<(IdempotencyKey, OrderId)>>,
    pub seen: Mutex<Vec<CreateOrder>>,
    pub faults: Mutex<Vec<(String, InjectedFault, String)>>,
    pub published: Mutex<Vec<PublishEvents>>,
    /// Ids of events that count as published before.
    pub known_events: Mutex<Vec<EventId>>,
    pub faults_enabled: bool,
    /// Whether a reader of the live stream misses 25 events and is disconnected.
    pub reader_is_slow: Mutex<bool>,
    /// The work that the actor has in progress.
    pub in_progress: Mutex<Option<String>>,
    /// Events of the stream behind the first three.
    pub lifecycle: Mutex<Vec<LiveEvent>>,
    /// Events that were added to the live stream.
    pub announced: Mutex<Vec<AnnouncedEvent>>,
}

/// The name and the fields of an event.
pub type AnnouncedEvent = (&'static str, Vec<(&'static str, String)>);

impl FakeDispatch {
    pub fn new(orders: Arc<FakeOrderStore>, clock: Arc<FakeClock>) -> Self {
        Self {
            orders,
            clock,
            received: AtomicU32::default(),
            fails: Mutex::default(),
            panics: Mutex::default(),
            hangs: Mutex::default(),
            is_paused: Mutex::default(),
            keys: Mutex::default(),
            seen: Mutex::default(),
            faults: Mutex::default(),
            published: Mutex::default(),
            known_events: Mutex::default(),
            faults_enabled: true,
            reader_is_slow: Mutex::default(),
            in_progress: Mutex::default(),
            lifecycle: Mutex::default(),
            announced: Mutex::default(),
        }
    }

    async fn next_outcome(&self, time_limit: Duration) -> Result<(), CommandError> {
        self.received.fetch_add(1, SeqCst);
        assert!(!*self.panics.lock(), "the test injects a panic");
        if *self.hangs.lock() {
            std::future::pending::<()>().await;
        }
        if *self.is_paused.lock() {
            let reply = tokio::time::timeout(time_limit, std::future::pending()).await;
            return reply.unwrap_or(Err(CommandError::Expired));
        }
        self.fails.lock().take().map_or(Ok(()), Err)
    }

    fn find(&self, id: OrderId) -> Option<Order> {
        self.orders.all.lock().iter().find(|order| order.id == id).cloned()
    }
}

#[async_trait]
impl Dispatch for FakeDispatch {
    async fn create(&self, command: CreateOrder, time_limit: Duration) -> Result<CreatedOrder, CommandError> {
        self.next_outcome(time_limit).await?;
        self.seen.lock().push(command.clone());
        let known = command.idempotency_key.as_ref().and_then(|idempotency_key| {
            self.keys.lock().iter().find(|(known, _)| known.key == idempotency_key.key).cloned()
        });
        if let Some((known, id)) = known {
            if Some(known) != command.idempotency_key {
                return Err(CommandError::KeyReused);
            }
            return Ok(CreatedOrder { order: Arc::new(self.find(id).unwrap()), replayed: true });
        }
        let mut entropy = [0; 10];
        // The first byte shares its place with the version of the UUID.
        entropy[1] = self.orders.all.lock().len() as u8;
        let now = self.clock.now();
        let (order, _) = Order::place(NewOrder {
            id: OrderId::new_v7(now, entropy),
            event_id: event(9),
            owner: command.subject,
            items: command.items,
            region: RegionId::new("r1"),
            now,
            physical_time: now,
            received: Hlc::default(),
        });
        self.orders.all.lock().push(order.clone());
        if let Some(idempotency_key) = command.idempotency_key {
            self.keys.lock().push((idempotency_key, order.id));
        }
        Ok(CreatedOrder { order: Arc::new(order), replayed: false })
    }

    async fn publish(&self, command: PublishEvents, time_limit: Duration) -> Result<EventsPublished, CommandError> {
        self.next_outcome(time_limit).await?;
        let ids: Vec<EventId> =
            (1..).zip(&command.events).map(|(n, event)| event.event_id.unwrap_or_else(|| self::event(n))).collect();
        self.published.lock().push(command);
        let known = self.known_events.lock();
        let events = ids.into_iter().map(|id| AcceptedEvent { id, is_new: !known.contains(&id) }).collect();
        Ok(EventsPublished { events, replayed: false })
    }

    async fn change(&self, command: ChangeOrder, time_limit: Duration) -> Result<Arc<Order>, CommandError> {
        self.next_outcome(time_limit).await?;
        let order = self.find(command.id).filter(|order| command.viewer.sees(order)).ok_or(CommandError::NotFound)?;
        if let Some(IfMatch::OneOf(versions)) = &command.preconditions.if_match
            && !versions.contains(&order.version)
        {
            return Err(CommandError::PreconditionFailed { current: order.version });
        }
        let refused = |refusal: domain::ChangeRefusal| CommandError::Conflict(refusal.to_string());
        if let Some(version) = command.preconditions.version {
            order.check_version(version).map_err(refused)?;
        }
        let (region, now) = (RegionId::new("r1"), self.clock.now());
        let change = ChangeContext { event_id: event(9), region, now, physical_time: now, received: Hlc::default() };
        let (changed, _) = order.change_status(command.to, change).map_err(refused)?;
        let mut all = self.orders.all.lock();
        *all.iter_mut().find(|order| order.id == command.id).unwrap() = changed.clone();
        Ok(Arc::new(changed))
    }

    fn actors(&self) -> Vec<ActorView> {
        vec![ActorView {
            path: "/relay/partition-worker-7".into(),
            actor: "PartitionWorker".into(),
            state: "running",
            generation: 2,
            restarts: 1,
            uptime: Some(Duration::from_secs(125)),
            mailbox_depth: 0,
            mailbox_capacity: 16,
            in_progress: self.in_progress.lock().clone(),
            last_exit: Some("panic".into()),
            supervisor: "partitions".into(),
            parent: Some("/relay".into()),
        }]
    }

    fn supervisors(&self) -> Vec<SupervisorView> {
        let view = |label: &str, parent: Option<&str>, strategy, restarts_in_window| SupervisorView {
            label: label.into(),
            parent: parent.map(Into::into),
            strategy,
            restarts_max: 5,
            window: Duration::from_secs(30),
            restarts_in_window,
        };
        vec![
            view("root", None, "one_for_one", 0),
            view("/relay", Some("root"), "rest_for_one", 1),
            view("partitions", Some("/relay"), "one_for_one", 0),
        ]
    }

    fn announce(&self, event: &'static str, fields: Vec<(&'static str, String)>) {
        self.announced.lock().push((event, fields));
    }

    fn inject(&self, path: &str, fault: InjectedFault, by: &str) -> Result<(), InjectError> {
        if !self.faults_enabled {
            return Err(InjectError::Disabled);
        }
        if path != "/relay/partition-worker-7" && path != "/consumer-0" {
            return Err(InjectError::NoSuchActor);
        }
        self.faults.lock().push((path.to_owned(), fault, by.to_owned()));
        Ok(())
    }

    fn faults_enabled(&self) -> bool {
        self.faults_enabled
    }

    fn live(&self, after: Option<u64>) -> LiveFeed {
        let event = |seq: u64| LiveEvent {
            seq,
            event: "child_exited".into(),
            data: format!("{{\"n\":{seq}}}"),
            age: Duration::from_secs(1),
        };
        let mut backlog: Vec<LiveEvent> = after.map_or(Vec::new(), |after| (after + 1..=3).map(event).collect());
        let later = self.lifecycle.lock().clone();
        backlog.extend(later.into_iter().filter(|event| after.is_some_and(|after| event.seq > after)));
        let next = stream::iter([event(4)]);
        if !*self.reader_is_slow.lock() {
            return LiveFeed { backlog, next: next.chain(stream::pending()).boxed() };
        }
        let lagged = LiveEvent { event: "lagged".into(), data: "{\"missed\":25}".into(), ..event(29) };
        LiveFeed { backlog, next: next.chain(stream::iter([lagged])).boxed() }
    }
}
