//! Two regions that change the same orders: the same change wins in whatever order a service receives the events. A local command follows
//! another region's change, unless that region's stamp is too far ahead. A service's own events stay local when its region id changes.
use std::collections::BTreeMap;
use std::time::Duration;

use app::error::CommandError;
use domain::{Hlc, Order, OrderId, RegionId, Status};
use kit::Factory;
use kit::clock::{START_TIME, SeededRng};
use ports::broker::{Broker, Position, Record};
use ports::clock::{Clock, Rng};
use ports::inbox::{Effect, Inbox, ProcessedEvent};
use ports::orders::{Commit, CommitOutcome, OrderStore};

use crate::support::environment::{Environment, seed, seeds};
use crate::support::log_capture::LogCapture;
use crate::support::process::{GROUP, Process, TIMEOUT, TOPIC};
use crate::support::recording_handler::{RecordingHandler, from_region};

const ORDERS: usize = 6;
const UPDATES: usize = 8;

/// The winning change of each order.
type Winners = BTreeMap<OrderId, (RegionId, Hlc)>;

fn stamp(millis: i64, counter: u32) -> Hlc {
    Hlc { millis: START_TIME.millis() + millis, counter }
}

fn random_below(rng: &SeededRng, end: u32) -> u32 {
    (rng.next_u64() % u64::from(end)) as u32
}

/// Changes of both regions to the same orders, and the winners. Some stamps are equal, some too far ahead to be accepted.
fn updates(rng: &SeededRng, factory: &Factory) -> (Vec<Record>, Winners) {
    let (mut records, mut winners) = (Vec::new(), Winners::new());
    for _ in 0..ORDERS {
        let (order, _) = factory.placed("ann");
        for n in 0..UPDATES {
            let region = if random_below(rng, 2) == 0 { "eu" } else { "us" };
            let too_far_ahead = n > 0 && random_below(rng, 6) == 0;
            let hlc =
                stamp(if too_far_ahead { 3_600_000 } else { i64::from(random_below(rng, 5)) }, random_below(rng, 2));
            let (_, event) = factory.status_changed(&order, Status::Processing);
            records.push(from_region(&event, region, hlc));
            let change = (RegionId::new(region), hlc);
            let winner = winners.entry(order.id).or_insert_with(|| change.clone());
            if !too_far_ahead && (change.1, &change.0) > (winner.1, &winner.0) {
                *winner = change;
            }
        }
    }
    (records, winners)
}

/// Runs a service that receives all events in random order, some twice, while its consumer sometimes crashes.
async fn receive(environment: &Environment, rng: &SeededRng, records: &[Record]) -> Winners {
    let process = environment.start().await;
    let mut left = records.to_vec();
    while !left.is_empty() {
        let at = random_below(rng, u32::try_from(left.len()).expect("few")) as usize;
        let record = left.swap_remove(at);
        let times = 1 + usize::from(random_below(rng, 5) == 0);
        process.run(process.store.append(vec![record; times])).await.expect("appended");
        if random_below(rng, 10) == 0 {
            // An error means that it restarts already.
            let _ = process.bus().panic("/consumer-0", "test");
        }
        process.advance(Duration::from_millis(random_below(rng, 30).into())).await;
    }
    process.wait_until_consumed(TIMEOUT).await;
    let restarts = process.metrics.actor_restarts_total.with(["ConsumerActor", "panic"]).get();
    assert!(restarts > 0, "the consumer was hit");
    assert_eq!(
        process.metrics.kafka_consumer_processed_count.get(),
        records.len() as u64,
        "stale events are recorded, too"
    );
    assert!(process.metrics.region_conflict_rejected_count.get() > 0, "rejected changes are counted");
    winners(&process, records).await
}

async fn winners(process: &Process, records: &[Record]) -> Winners {
    let mut winners = Winners::new();
    for record in records {
        let id = OrderId::parse(&record.key).expect("keys are orders");
        if let Some(remote) = process.store.remote_stamp(id).await.expect("the store can be read") {
            winners.insert(id, (remote.region, remote.hlc));
        }
    }
    winners
}

#[tokio::test(start_paused = true)]
async fn the_same_change_wins_in_whatever_order_the_events_arrive() {
    for seed in seeds(6) {
        let rng = SeededRng::new(seed);
        let (records, expected) = updates(&rng, &Factory::seeded(seed, TOPIC.into()));
        for turn in 0..3 {
            let handler = RecordingHandler::new(false, 0, |_| false);
            let mut environment = Environment::seeded(seed + turn);
            (environment.consumes, environment.handlers) = (true, handler.for_all_types());
            assert_eq!(receive(&environment, &rng, &records).await, expected, "seed {seed}, turn {turn}");
        }
    }
}

/// An order that region "us" changed last, with a clock this far ahead.
async fn changed_elsewhere(process: &Process, factory: &Factory, ahead: Duration) -> Order {
    let (mut order, _) = factory.placed("ann");
    order.region = RegionId::new("us");
    order.hlc = stamp(i64::try_from(ahead.as_millis()).expect("it fits"), 3);
    store(process, &order).await;
    order
}

/// Stores an order without an event, as a replication of the database does.
async fn store(process: &Process, order: &Order) {
    let commit = Commit { order: order.clone(), expected: None, events: Vec::new(), idempotency_record: None };
    let committed = process.run(OrderStore::commit(&process.store, commit)).await.expect("the store answers");
    assert_eq!(committed, CommitOutcome::Done);
}

#[tokio::test(start_paused = true)]
async fn a_command_follows_another_regions_change_unless_its_stamp_is_too_far_ahead() {
    let environment = Environment::new();
    let process = environment.start().await;
    let factory = Factory::seeded(seed(), TOPIC.into());
    let near = changed_elsewhere(&process, &factory, Duration::from_secs(30)).await;
    let far = changed_elsewhere(&process, &factory, Duration::from_secs(3_600)).await;

    let followed = process.change(near.id, Status::Shipped).await.expect("a clock may be a little ahead");
    let refused = process.change(far.id, Status::Shipped).await;

    assert!(followed.hlc > near.hlc, "the change is stamped above the one that it follows");
    assert!(matches!(refused, Err(CommandError::RegionConflict(_))), "{refused:?}");
    assert_eq!(process.metrics.region_conflict_rejected_count.get(), 1);
    let waiting = changed_elsewhere(&process, &factory, Duration::from_secs(1)).await;
    assert_eq!(process.promote().await, Some(1), "promotion follows the same rule and skips the other order");
    let status =
        async |id| process.store.find(id).await.expect("the store can be read").expect("the order exists").status;
    assert_eq!((status(waiting.id).await, status(far.id).await), (Status::Processing, Status::Pending));
    assert_eq!(process.metrics.region_conflict_rejected_count.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn own_events_under_an_earlier_region_id_are_local() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let mut environment = Environment::new();
    environment.handlers = handler.for_all_types();
    let process = environment.start().await;
    let created = process.create().await.expect("created");
    process.wait_until_drained(TIMEOUT).await;
    process.advance(Duration::from_secs(2)).await;
    process.change(created.id, Status::Processing).await.expect("changed");
    process.change(created.id, Status::Shipped).await.expect("changed");
    drop(process);

    environment.consumes = true;
    environment.options.relay.region = RegionId::new("eu");
    let process = environment.start().await;
    process.wait_until_drained(TIMEOUT).await;
    process.wait_until_consumed(TIMEOUT).await;

    let versions: Vec<_> = handler.calls().iter().map(|call| call.version).collect();
    assert_eq!(versions, [0, 1, 2], "the events in the topic and those in the outbox");
    assert_eq!(process.metrics.region_conflict_rejected_count.get(), 0);
    assert_eq!(process.store.remote_stamp(created.id).await.expect("read"), None, "no other region changed it");
}

/// A service that consumes, and the factory of the other region's events.
async fn consuming() -> (Environment, Process, Factory) {
    let mut environment = Environment::new();
    environment.consumes = true;
    let process = environment.start().await;
    (environment, process, Factory::seeded(seed(), TOPIC.into()))
}

/// The event of a change of this order by region "us".
async fn receive_change(process: &Process, factory: &Factory, order: &Order, hlc: Hlc) {
    let (_, event) = factory.status_changed(&Order { status: Status::Pending, ..order.clone() }, Status::Processing);
    let record = from_region(&event, "us", hlc);
    process.run(process.store.append(vec![record])).await.expect("appended");
    process.wait_until_consumed(TIMEOUT).await;
}

#[tokio::test(start_paused = true)]
async fn a_remote_event_older_than_the_regions_own_change_is_stale() {
    let (_environment, process, factory) = consuming().await;
    let created = process.create().await.expect("created");
    process.advance(Duration::from_secs(2)).await;
    let between = Hlc { millis: created.hlc.millis + 1_000, counter: 0 };
    let changed = process.change(created.id, Status::Shipped).await.expect("changed");
    process.wait_until_consumed(TIMEOUT).await;
    let own = process.metrics.kafka_consumer_processed_count.get();

    receive_change(&process, &factory, &created, between).await;

    assert_eq!(process.metrics.region_conflict_rejected_count.get(), 1, "no other region changed the order before");
    assert_eq!(process.metrics.kafka_consumer_processed_count.get(), own + 1, "the inbox advanced");
    assert_eq!(process.store.remote_stamp(created.id).await.expect("read"), None, "it has no effect");
    receive_change(&process, &factory, &created, changed.hlc.tick(created.updated_at)).await;
    assert_eq!(process.metrics.region_conflict_rejected_count.get(), 1, "a later one wins");
}

#[tokio::test(start_paused = true)]
async fn a_received_stamp_advances_the_clock_within_the_bound_of_drift() {
    let (environment, process, factory) = consuming().await;
    let (order, other) = (process.create().await.expect("created"), process.create().await.expect("created"));
    let ahead = |seconds: i64| Hlc { millis: order.hlc.millis + seconds * 1_000, counter: 5 };

    let log = LogCapture::start();

    receive_change(&process, &factory, &order, ahead(30)).await;
    receive_change(&process, &factory, &other, ahead(3_600)).await;

    assert_eq!(process.metrics.region_conflict_rejected_count.get(), 1, "the stamp that is too far ahead");
    let logged = log.fields("remote_event_too_far_ahead", ["key", "origin"]);
    assert_eq!(logged, [[other.id.to_string(), "us".into()]], "its rejection is not silent");
    let placed = process.create().await.expect("created");
    assert!(placed.hlc > ahead(30) && placed.hlc < ahead(31), "{}", placed.hlc);
    // A process that did not consume the event: its own clock was not advanced.
    drop(process);
    let process = environment.start().await;
    let followed = process.change(order.id, Status::Shipped).await.expect("changed");
    assert!(followed.hlc > ahead(30) && followed.hlc < ahead(31), "{}", followed.hlc);
    let unrelated = process.change(other.id, Status::Shipped).await.expect("changed");
    assert!(unrelated.hlc < ahead(30), "{}", unrelated.hlc);
}

#[tokio::test(start_paused = true)]
async fn stamps_follow_the_wall_clock_after_it_was_ahead_for_a_moment() {
    let environment = Environment::new();
    let process = environment.start().await;
    let before = process.create().await.expect("created");
    let (mut during, _) = Factory::seeded(seed(), TOPIC.into()).placed("ann");
    (during.region, during.hlc) = (before.region.clone(), stamp(7_200_000, 3));
    store(&process, &during).await;
    environment.clock.jump_ahead_once(Duration::from_secs(7_200));
    process.advance(Duration::from_secs(5)).await;
    let log = LogCapture::start();

    let placed = process.create().await.expect("created");
    let changed = process.change(before.id, Status::Shipped).await.expect("changed");

    for order in [&placed, &changed] {
        assert!(order.hlc.millis <= environment.clock.wall().millis(), "other regions accept {}", order.hlc);
    }
    assert!(placed.hlc > before.hlc && changed.hlc > before.hlc);
    assert!(log.fields("change_stamped_too_far_ahead", ["order_id"]).is_empty());
    let follows = process.change(during.id, Status::Shipped).await.expect("a region never conflicts with itself");
    assert_eq!(follows.hlc, Hlc { counter: 4, ..during.hlc }, "a change is stamped above the one that it follows");
    let logged = log.fields("change_stamped_too_far_ahead", ["order_id"]);
    assert_eq!(logged, [[during.id.to_string()]], "other regions reject it, which is not silent");
}

/// The region may be the only one, and thousands of its orders may have such a stamp.
#[tokio::test(start_paused = true)]
async fn changes_that_other_regions_reject_are_reported_once_a_minute() {
    let environment = Environment::new();
    let process = environment.start().await;
    let (region, factory) =
        (process.create().await.expect("created").region.clone(), Factory::seeded(seed(), TOPIC.into()));
    let mut during = Vec::new();
    for _ in 0..4 {
        let (mut order, _) = factory.placed("ann");
        (order.region, order.hlc) = (region.clone(), stamp(7_200_000, 0));
        store(&process, &order).await;
        during.push(order.id);
    }
    let log = LogCapture::start();
    let reported = || log.fields("change_stamped_too_far_ahead", ["order_id"]);

    for id in &during[..3] {
        process.change(*id, Status::Shipped).await.expect("changed");
    }
    assert_eq!(reported(), [[during[0].to_string()]]);

    process.advance(Duration::from_secs(60)).await;
    process.change(during[3], Status::Shipped).await.expect("changed");
    assert_eq!(reported()[1..], [[during[3].to_string()]]);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_would_lose_against_a_received_change_is_refused() {
    let (_environment, process, factory) = consuming().await;
    let order = process.create().await.expect("created");
    let ahead = Hlc { millis: order.hlc.millis + 90_000, counter: 0 };
    // An instance whose clock was ahead accepted the event.
    let received = ProcessedEvent {
        event_id: factory.event_id(),
        position: Position { topic: TOPIC.into(), partition: 0, offset: 0 },
        effects: vec![Effect::StoreRemoteStamp { order_id: order.id, region: RegionId::new("us"), hlc: ahead }],
    };
    process.run(Inbox::commit(&process.store, GROUP, vec![received])).await.expect("committed");

    let refused = process.change(order.id, Status::Shipped).await;

    assert!(matches!(&refused, Err(CommandError::RegionConflict(why)) if why.contains("region us")), "{refused:?}");
    assert_eq!(process.metrics.region_conflict_rejected_count.get(), 1);
    process.advance(Duration::from_secs(31)).await;
    let changed = process.change(order.id, Status::Shipped).await.expect("the stamp is within the bound");
    assert!(changed.hlc > ahead, "{} wins against {ahead}", changed.hlc);
}
