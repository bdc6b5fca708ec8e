//! One process of a house, on a thread of its own making: it runs only while a test lets it. Dropping it is its death, without a
//! word: every task ends where it stands, and the folder's lock falls. All of it lives in `start_paused` time.
use std::sync::Arc;
use std::time::Duration;

use actors::{Cast, World};
use app::dispatch::{ChangeOrder, CreateOrder, Expect, Viewer};
use app::error::CommandError;
use app::gate::Gate;
use app::vitals::{Picture, Vitals};
use domain::{Item, Items, Money, Order, OrderId, Status, Subject};
use embedded::Embedded;
use kit::checkers::read_all;
use ports::operators::{Audit, OutboxOperators, RowFilter, RowView};
use ports::outbox::{Depth, OutboxStore, RowStatus};
use ports::partitions::PartitionLeases;
use ports::source::{ConsumerGroups, Delivery};
use supervision::SupervisionBus;
use telemetry::Metrics;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

/// The topic of orders.
pub const TOPIC: &str = "order.events";
/// Its consumers.
pub const GROUP: &str = "order-processing-group";
/// The publisher's place in the tree.
pub const PUBLISHER: &str = "/relay/outbox-publisher";
/// Between two looks, at first and after a long while.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_LAST: Duration = Duration::from_millis(200);
/// Longest that what is due may take to leave.
pub const SOON: Duration = Duration::from_secs(30);

/// A running process.
pub struct Life {
    local: LocalSet,
    cast: Cast,
    /// Its store, without faults.
    pub store: Embedded,
    /// Its gate.
    pub gate: Arc<Gate>,
    /// Its counters.
    pub metrics: Arc<Metrics>,
    vitals: Vitals,
}

impl Life {
    /// What a house started.
    pub fn new(local: LocalSet, cast: Cast, store: Embedded, world: &World) -> Self {
        let World { gate, metrics, vitals, .. } = world.clone();
        Self { local, cast, store, gate, metrics, vitals }
    }

    /// Lets the process run while this runs.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.local.run_until(work).await
    }

    /// Lets virtual time pass.
    pub async fn pass(&self, time: Duration) {
        self.run(sleep(time)).await;
    }

    /// Runs until `look` sees it.
    pub async fn until(&self, what: &str, limit: Duration, mut look: impl AsyncFnMut() -> bool) {
        let (begun, mut pause) = (Instant::now(), LOOK_FIRST);
        self.run(async {
            while !look().await {
                assert!(begun.elapsed() < limit, "waited {limit:?} in vain for: {what}");
                sleep(pause).await;
                pause = (pause * 5 / 4).min(LOOK_LAST);
            }
        })
        .await;
    }

    /// The tree's faults and events.
    pub fn bus(&self) -> &SupervisionBus {
        self.cast.bus()
    }

    /// Whether the tree has given up, as the platform would see by the exit code.
    pub async fn gave_up(&self) -> bool {
        self.run(tokio::time::timeout(Duration::ZERO, self.cast.gave_up())).await.is_ok()
    }

    /// Promotes now.
    pub async fn promote(&self) -> Option<u64> {
        self.run(self.cast.promote(SOON)).await
    }

    /// Stops in order; answers how many partitions were left.
    pub async fn stop(self) -> usize {
        let Self { local, cast, .. } = self;
        local.run_until(cast.stop(SOON)).await.partitions_left
    }

    /// Places an order.
    pub async fn create(&self) -> Result<Arc<Order>, CommandError> {
        let command = CreateOrder { subject: subject(), items: items(), intent: None, trace: None };
        self.run(self.cast.dispatch().create(command)).await.map(|created| created.order)
    }

    /// Moves an order on.
    pub async fn change(&self, id: OrderId, to: Status) -> Result<Arc<Order>, CommandError> {
        let command = ChangeOrder { id, to, viewer: Viewer::Admin, expect: Expect::default(), trace: None };
        self.run(self.cast.dispatch().change(command)).await
    }

    /// Every record of a topic.
    pub async fn log(&self, topic: &str) -> Vec<Delivery> {
        read_all(&self.store, topic).await.expect("the log can be read")
    }

    /// How much waits.
    pub async fn depth(&self) -> Depth {
        self.store.depth().await.expect("the outbox can be counted")
    }

    /// The rows in these states.
    pub async fn rows(&self, status: RowStatus) -> Vec<RowView> {
        let filter = RowFilter { status: Some(status), ..RowFilter::default() };
        self.store.rows(&filter, 10_000).await.expect("the outbox can be read")
    }

    /// An operator makes a row due.
    pub async fn retry(&self, row: &RowView) {
        let audit = Audit { operator: "ann".into(), reason: "the broker was mended".into() };
        self.store.retry(row.id, &audit).await.expect("an operator may retry");
    }

    /// Runs until nothing waits that is not parked.
    pub async fn drained(&self, limit: Duration) {
        let is_drained = async || {
            let depth = self.depth().await;
            depth.pending + depth.in_flight + depth.failed == 0
        };
        let begun = Instant::now();
        self.until("everything has left", limit + SOON, async || begun.elapsed() >= limit || is_drained().await).await;
        assert!(is_drained().await, "not drained after {limit:?}: {}", self.standing().await);
    }

    /// How things stand, for whoever reads a failure.
    async fn standing(&self) -> String {
        let views = self.store.overview().await.expect("partitions can be read");
        let actors: Vec<_> =
            self.bus().snapshot().into_iter().map(|row| (row.path, row.state, row.last_exit)).collect();
        let mut rows = Vec::new();
        for status in [RowStatus::Pending, RowStatus::InFlight, RowStatus::Failed, RowStatus::Parked] {
            rows.extend(self.rows(status).await);
        }
        format!("{views:#?}\n{actors:#?}\n{rows:#?}")
    }

    /// Runs until everything has left and the consumers have acknowledged it, retry topics included.
    pub async fn consumed(&self, limit: Duration) {
        self.drained(limit).await;
        let topics = app::intake::topics_of(TOPIC);
        self.until("everything is consumed", limit, async || {
            let reader = self.store.join(GROUP, &topics, 0, 1).await.expect("the group can be joined");
            reader.lag().await.expect("the lag is known").iter().all(|lag| lag.messages == 0)
        })
        .await;
    }

    /// What it knows of its own health.
    pub fn picture(&self) -> Arc<Picture> {
        self.vitals.read()
    }
}

fn subject() -> Subject {
    Subject::new("ann").expect("a name")
}

fn items() -> Items {
    let price = Money::parse("2.50").expect("a price");
    Items::new(vec![Item::new("Tea", 2, price).expect("a legal line")]).expect("one line")
}
