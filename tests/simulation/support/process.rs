//! A process of an environment. It runs only inside the calls of a test. Dropping it is a crash: every task ends at once, and the folder's
//! lock is released. All of it runs in `start_paused` time.
use std::sync::Arc;
use std::time::Duration;

use actors::{ActorSystem, Dependencies};
use app::admission::write_gate::WriteGate;
use app::commands::create_order::fingerprint;
use app::dispatch::{
    ChangeOrder, ChangePreconditions, CreateOrder, EventsPublished, IdempotencyKey, PublishEvents, Viewer,
};
use app::error::CommandError;
use app::health::{HealthSnapshot, SharedHealth};
use domain::{Item, Items, Money, Order, OrderId, Status, Subject};
use embedded::Embedded;
use kit::checkers::read_all;
use ports::broker::consumer_groups::{ConsumerGroups, ConsumerRecord};
use ports::operators::{Audit, OutboxOperators, RowFilter, RowView};
use ports::orders::cache::OrderCache;
use ports::outbox::{OutboxStore, RowCounts, RowStatus};
use ports::partitions::PartitionLeases;
use supervision::SupervisionBus;
use telemetry::Metrics;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{Instant, sleep};

/// Topic of the order events.
pub const TOPIC: &str = "order.events";
/// Id of the requests that create orders.
pub const CREATE_REQUEST: &str = "create-1";
/// Id of the requests that change orders.
pub const CHANGE_REQUEST: &str = "change-1";
/// Group of the topic's consumers.
pub const GROUP: &str = "order-processing-group";
/// Path of the publisher in the tree.
pub const PUBLISHER: &str = "/relay/outbox-publisher";
/// Time between two checks of a condition, at first and at most.
const CHECK_MIN: Duration = Duration::from_millis(20);
const CHECK_MAX: Duration = Duration::from_millis(200);
/// Longest time until all due rows are sent.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// An instance of the service on virtual time: its actors, store and metrics.
pub struct Process {
    local: LocalSet,
    actors: ActorSystem,
    /// The embedded store without the scripted faults.
    pub store: Embedded,
    /// Whether the process accepts writes.
    pub gate: Arc<WriteGate>,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// The cache of orders and lists.
    pub cache: Arc<dyn OrderCache>,
    health: SharedHealth,
}

impl Process {
    /// A process with these running actors.
    pub fn new(local: LocalSet, actors: ActorSystem, store: Embedded, dependencies: &Dependencies) -> Self {
        let Dependencies { commands, gate, metrics, health, .. } = dependencies.clone();
        let cache = Arc::clone(&commands.cache);
        Self { local, actors, store, gate, metrics, cache, health }
    }

    /// Runs the process until `work` is done.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.local.run_until(work).await
    }

    /// Starts work in the process. It goes on while the process runs.
    pub fn spawn<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.local.spawn_local(work)
    }

    /// Runs the process for this much virtual time.
    pub async fn advance(&self, time: Duration) {
        self.run(sleep(time)).await;
    }

    /// Runs the process until `condition` holds.
    ///
    /// # Panics
    /// It does not hold within `limit`.
    pub async fn wait_until(&self, description: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
        let (started, mut pause) = (Instant::now(), CHECK_MIN);
        self.run(async {
            while !condition().await {
                assert!(started.elapsed() < limit, "not within {limit:?}: {description}");
                sleep(pause).await;
                pause = (pause * 5 / 4).min(CHECK_MAX);
            }
        })
        .await;
    }

    /// Faults and events of the supervision tree.
    pub fn bus(&self) -> &SupervisionBus {
        self.actors.bus()
    }

    /// Whether the root supervisor has given up, which ends a real process.
    pub async fn escalated(&self) -> bool {
        self.run(tokio::time::timeout(Duration::ZERO, self.actors.escalated())).await.is_ok()
    }

    /// Promotes pending orders now.
    pub async fn promote(&self) -> Option<u64> {
        self.promote_within(TIMEOUT).await
    }

    /// Promotes pending orders now; waits up to `limit`.
    pub async fn promote_within(&self, limit: Duration) -> Option<u64> {
        self.run(self.actors.promote(limit)).await
    }

    /// Stops gracefully. Returns how many partitions could not be handed over.
    pub async fn stop(self) -> usize {
        let Self { local, actors, .. } = self;
        local.run_until(actors.stop(TIMEOUT)).await.partitions_left
    }

    /// Creates an order as a client.
    pub async fn create(&self) -> Result<Arc<Order>, CommandError> {
        self.create_with(None, Duration::MAX).await
    }

    /// Creates an order under this idempotency key.
    pub async fn create_with_key(&self, key: &str) -> Result<Arc<Order>, CommandError> {
        self.create_with_key_within(key, Duration::MAX).await
    }

    /// Creates an order under this idempotency key, in a request that has this much time left.
    pub async fn create_with_key_within(&self, key: &str, time_limit: Duration) -> Result<Arc<Order>, CommandError> {
        let idempotency_key = IdempotencyKey { key: key.into(), fingerprint: fingerprint(&items()) };
        self.create_with(Some(idempotency_key), time_limit).await
    }

    async fn create_with(
        &self,
        idempotency_key: Option<IdempotencyKey>,
        time_limit: Duration,
    ) -> Result<Arc<Order>, CommandError> {
        let command = CreateOrder {
            subject: subject(),
            items: items(),
            idempotency_key,
            trace: None,
            span: None,
            request_id: Some(CREATE_REQUEST.into()),
        };
        self.run(self.actors.dispatch().create(command, time_limit)).await.map(|created| created.order)
    }

    /// Changes an order's status as an administrator.
    pub async fn change(&self, id: OrderId, to: Status) -> Result<Arc<Order>, CommandError> {
        self.change_if(id, to, ChangePreconditions::default()).await
    }

    /// Changes an order's status as an administrator, in a request that has this much time left.
    pub async fn change_within(
        &self,
        id: OrderId,
        to: Status,
        time_limit: Duration,
    ) -> Result<Arc<Order>, CommandError> {
        self.change_with(id, to, ChangePreconditions::default(), time_limit).await
    }

    /// Changes an order's status as an administrator, on conditions.
    pub async fn change_if(
        &self,
        id: OrderId,
        to: Status,
        preconditions: ChangePreconditions,
    ) -> Result<Arc<Order>, CommandError> {
        self.change_with(id, to, preconditions, Duration::MAX).await
    }

    async fn change_with(
        &self,
        id: OrderId,
        to: Status,
        preconditions: ChangePreconditions,
        time_limit: Duration,
    ) -> Result<Arc<Order>, CommandError> {
        let command = ChangeOrder {
            id,
            to,
            viewer: Viewer::Admin,
            preconditions,
            trace: None,
            span: None,
            request_id: Some(CHANGE_REQUEST.into()),
        };
        self.run(self.actors.dispatch().change(command, time_limit)).await
    }

    /// Hands events over as another service.
    pub async fn publish(&self, command: PublishEvents) -> Result<EventsPublished, CommandError> {
        self.publish_within(command, Duration::MAX).await
    }

    /// Hands events over as another service, in a request that has this much time left.
    pub async fn publish_within(
        &self,
        command: PublishEvents,
        time_limit: Duration,
    ) -> Result<EventsPublished, CommandError> {
        self.run(self.actors.dispatch().publish(command, time_limit)).await
    }

    /// Every record of a topic.
    pub async fn records(&self, topic: &str) -> Vec<ConsumerRecord> {
        read_all(&self.store, topic).await.expect("the topic can be read")
    }

    /// Rows of the outbox by status.
    pub async fn depth(&self) -> RowCounts {
        self.store.depth().await.expect("the outbox can be counted")
    }

    /// The rows in this status.
    pub async fn rows(&self, status: RowStatus) -> Vec<RowView> {
        let filter = RowFilter { status: Some(status), ..RowFilter::default() };
        self.store.rows(&filter, 10_000).await.expect("the outbox can be read")
    }

    /// An operator makes a row due again.
    pub async fn operator_retry(&self, row: &RowView) {
        let audit = Audit { operator: "ann".into(), reason: "the broker was repaired".into() };
        self.store.retry(row.id, &audit).await.expect("an operator may retry");
    }

    /// Runs until all rows are sent or parked.
    pub async fn wait_until_drained(&self, limit: Duration) {
        let is_drained = async || {
            let depth = self.depth().await;
            depth.pending + depth.in_flight + depth.failed == 0
        };
        let started = Instant::now();
        self.wait_until("all rows are sent", limit + TIMEOUT, async || {
            started.elapsed() >= limit || is_drained().await
        })
        .await;
        assert!(is_drained().await, "not drained after {limit:?}: {}", self.diagnosis().await);
    }

    /// Partitions, actors and unsent rows, for the message of a failed test.
    async fn diagnosis(&self) -> String {
        let views = self.store.overview().await.expect("partitions can be read");
        let actors: Vec<_> =
            self.bus().snapshot().into_iter().map(|row| (row.path, row.state, row.last_exit)).collect();
        let mut rows = Vec::new();
        for status in [RowStatus::Pending, RowStatus::InFlight, RowStatus::Failed, RowStatus::Parked] {
            rows.extend(self.rows(status).await);
        }
        format!("{views:#?}\n{actors:#?}\n{rows:#?}")
    }

    /// Runs until all rows are sent and the consumers have acknowledged them, retry topics included.
    pub async fn wait_until_consumed(&self, limit: Duration) {
        self.wait_until_drained(limit).await;
        let topics = outbox::topics::consumed_topics(TOPIC);
        self.wait_until("all records are consumed", limit, async || {
            let reader = self.store.join(GROUP, &topics, 0, 1).await.expect("the group can be joined");
            reader.lag().await.expect("the lag is known").iter().all(|lag| lag.messages == 0)
        })
        .await;
    }

    /// The statistics of a metric, summed over its labels: one value of a counter or gauge, count and sum of a histogram.
    pub fn statistics(&self, metric: &str) -> Vec<f64> {
        let metric = self.metrics.find(metric, &[]).expect("the catalogue has the metric");
        metric.measurements.iter().map(|measurement| measurement.value).collect()
    }

    /// The health that the process reports.
    pub fn health(&self) -> Arc<HealthSnapshot> {
        self.health.read()
    }
}

/// The client of all requests.
pub fn subject() -> Subject {
    Subject::new("ann").expect("a name")
}

fn items() -> Items {
    let price = Money::parse("2.50").expect("a price");
    Items::new(vec![Item::new("Tea", 2, price).expect("a legal item")]).expect("one item")
}
