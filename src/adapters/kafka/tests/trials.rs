//! Exactly once, tried: zombies, deaths, cut wires and bad neighbours. After each there is one truth, and the watermark tells it.
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::join;
use kafka::Guarantee;
use kit::TestClock;
use ports::broker::{Batch, Broker, Published};
use ports::outbox::RowId;
use ports::partitions::PartitionNo;
use ports::{Error, Fault};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::proxy::{CutAt, Proxy};
use crate::support::{HOUR, P0, P1, P2, SOON, World, batch, noise, opened, options, servers};

fn refused(published: &Published) -> Vec<RowId> {
    match published {
        Published::Aborted { refused, .. } => refused.iter().map(|(row, _)| *row).collect(),
        other => panic!("it should have been aborted: {other:?}"),
    }
}

#[tokio::test]
async fn a_zombie_whose_lane_another_process_fenced_commits_nothing() {
    let zombie = World::new().await;
    let lane = zombie.lane(0).await;
    zombie.committed(&lane, batch(P0, 1, zombie.records(&[("a", "1")]))).await;
    let fellow = zombie.fellow(Guarantee::ExactlyOnce).await;

    fellow.kafka.fence(&lane).await.expect("fenced");
    let answers = [
        zombie.publish(&lane, batch(P0, 2, zombie.records(&[("a", "late")]))).await,
        zombie.publish(&lane, batch(P1, 3, zombie.records(&[("b", "late")]))).await,
    ];

    assert!(answers.iter().all(|answer| matches!(answer, Published::SessionLost(_))), "{answers:?}");
    assert_eq!(fellow.values().await, ["1"]);
    assert_eq!((fellow.watermark(P0).await, fellow.watermark(P1).await), (Some(1), None));
    let next = zombie.lane(0).await;
    zombie.committed(&next, batch(P0, 4, zombie.records(&[("a", "4")]))).await;
}

/// Each batch that a dead session left open asks for its fence; the session that took its place goes on.
#[tokio::test(flavor = "multi_thread")]
async fn fencing_a_dead_session_again_leaves_its_successor_alone() {
    let world = World::new().await;
    let former = world.lane(0).await;
    world.committed(&former, batch(P0, 1, world.records(&[("a", "1")]))).await;
    world.kafka.fence(&former).await.expect("fenced");
    let next = world.lane(0).await;

    world.kafka.fence(&former).await.expect("it is dead already");
    world.committed(&next, batch(P0, 2, world.records(&[("a", "2")]))).await;
    let late = world.publish(&former, batch(P1, 3, world.records(&[("b", "late")]))).await;
    assert!(matches!(late, Published::SessionLost(_)), "{late:?}");

    world.kafka.fence(&next).await.expect("a living one is ended");
    let late = world.publish(&next, batch(P1, 4, world.records(&[("b", "late")]))).await;
    assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    assert_eq!(world.values().await, ["1", "2"]);
}

/// A producer that dies with its transaction open: all records and the watermark are on the broker, and the commit never comes.
fn dead_in_the_middle(world: &World, id: &str) {
    let options = world.kafka.options();
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", servers())
        .set("transactional.id", id)
        .create()
        .expect("a producer");
    producer.init_transactions(SOON).expect("the id is ours");
    producer.begin_transaction().expect("begun");
    let (events, marks) = (options.topic("order.events"), options.topic("relay-watermarks"));
    producer.send(BaseRecord::to(&events).key("a").payload("never")).map_err(|(error, _)| error).expect("sent");
    let mark = format!("9 {}", options.installation);
    let record = BaseRecord::to(&marks).partition(0).key("0").payload(&mark);
    producer.send(record).map_err(|(error, _)| error).expect("sent");
    producer.flush(SOON).expect("delivered");
}

#[tokio::test]
async fn a_death_in_the_middle_of_a_transaction_leaves_nothing_behind_the_fence() {
    let world = World::new().await;
    let lane = world.lane(0).await;
    world.committed(&lane, batch(P0, 3, world.records(&[("a", "3")]))).await;
    let id = lane.0.rsplit_once('#').expect("a session's name").0.to_owned();
    dead_in_the_middle(&world, &id);

    // No answer is valid while the transaction is open; it comes when the fence has ended it.
    let (watermark, ()) = join!(world.watermark(P0), async {
        assert_eq!(world.values().await, ["3"]);
        world.kafka.fence(&lane).await.expect("fenced");
    });

    assert_eq!(watermark, Some(3));
    assert_eq!(world.values().await, ["3"]);
}

async fn in_doubt(when: CutAt) -> (Option<u64>, Vec<String>) {
    let proxy = Proxy::to(&servers());
    let mut options = options(&proxy.address, &TestClock::default());
    options.deliver_within = Duration::from_secs(3);
    let world = World::of(opened(options).await);
    let lane = world.lane(0).await;
    world.committed(&lane, batch(P0, 1, world.records(&[("a", "1")]))).await;
    proxy.cut_at(when);

    let answer = world.publish(&lane, batch(P0, 2, world.records(&[("a", "2")]))).await;

    assert!(matches!(answer, Published::Unknown(_) | Published::SessionLost(_)), "{answer:?}");
    let late = world.publish(&lane, batch(P1, 3, world.records(&[("b", "late")]))).await;
    assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    let fellow = world.fellow(Guarantee::ExactlyOnce).await;
    fellow.kafka.fence(&lane).await.expect("fenced");
    (fellow.watermark(P0).await, fellow.values().await)
}

#[tokio::test]
async fn a_commit_that_never_arrived_was_not_done() {
    assert_eq!(in_doubt(CutAt::BeforeTheEnd).await, (Some(1), vec!["1".into()]));
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_was_done() {
    assert_eq!(in_doubt(CutAt::AfterTheEnd).await, (Some(2), vec!["1".into(), "2".into()]));
}

/// The library ends the process when a commit's answer meets a client that has taken the commit's name back.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_just_as_its_commit_is_given_up_ends_no_process() {
    const LANES: u32 = 32;
    /// A commit is given up when its batch's lease is over.
    const LEASE: Duration = Duration::from_millis(1_500);
    let proxy = Proxy::to(&servers());
    let mut options = options(&proxy.address, &TestClock::default());
    options.partitions = LANES;
    let world = World::of(opened(options).await);
    let mut committed = Vec::new();
    for round in 1..=4 {
        let lanes = join_all((0..LANES).map(|slot| world.lane(slot))).await;
        let publish = async |slot: u32| {
            let records = world.records(&[(&slot.to_string(), &round.to_string())]);
            let short = Batch { time_left: LEASE, ..batch(PartitionNo(slot), round, records) };
            (slot, world.publish(&lanes[slot as usize], short).await)
        };
        proxy.hold_ends(Instant::now() + LEASE - Duration::from_millis(1), Duration::from_micros(200));
        let answers = join_all((0..LANES).map(publish)).await;
        proxy.pass_ends();
        for (slot, answer) in answers {
            match answer {
                Published::Committed(_) => committed.push((slot.to_string(), round.to_string())),
                Published::Unknown(_) | Published::Aborted { .. } => {}
                other => panic!("lane {slot}: {other:?}"),
            }
        }
    }
    let by_key = world.fellow(Guarantee::ExactlyOnce).await.by_key().await;
    assert!(by_key.values().all(|values| values.is_sorted_by(|one, next| one < next)), "{by_key:?}");
    assert!(committed.iter().all(|(key, value)| by_key[key].contains(value)), "{committed:?} in {by_key:?}");
}

#[tokio::test]
async fn two_lanes_side_by_side_keep_each_keys_order() {
    let world = World::new().await;
    let lanes = [world.lane(0).await, world.lane(1).await];
    let run = async |partition: u32| {
        for token in 1..=20 {
            let values: Vec<String> = (0..5).map(|at| format!("{token:03}-{at}")).collect();
            let keys = [format!("{partition}-x"), format!("{partition}-y")];
            let all = values.iter().flat_map(|value| keys.iter().map(|key| world.make.record(key, value))).collect();
            let number = ports::partitions::PartitionNo(partition);
            world.committed(&lanes[partition as usize % 2], batch(number, token, all)).await;
        }
    };

    join!(run(0), run(1), run(2), run(3));

    let by_key = world.by_key().await;
    assert_eq!(by_key.len(), 8);
    for (key, values) in by_key {
        assert_eq!(values.len(), 100, "{key}");
        assert!(values.is_sorted(), "{key}: {values:?}");
    }
}

#[tokio::test]
async fn a_record_beyond_the_brokers_own_limit_is_named_and_its_neighbours_go() {
    let world = World::new().await;
    world.set("max.message.bytes", "3000").await;
    let lane = world.lane(0).await;
    let large = noise(12_000);
    // One key, so that all of them stand in one partition and travel in one request.
    let mixed = batch(P0, 1, world.records(&[("k", "1"), ("k", "2"), ("k", &large), ("k", "4")]));
    let innocent = batch(P1, 1, world.records(&[("k", "5"), ("k", "6")]));

    let (first, second) = join!(world.publish(&lane, mixed.clone()), world.publish(&lane, innocent));

    assert_eq!(refused(&first), [mixed.records[2].0]);
    assert!(matches!(second, Published::Committed(_)), "{second:?}");
    let mut rest = mixed;
    rest.records.remove(2);
    world.committed(&lane, rest).await;
    assert_eq!(world.values().await, ["1", "2", "4", "5", "6"]);
}

#[tokio::test]
async fn what_is_as_large_as_a_refused_record_is_named_at_once_until_the_limit_may_have_been_raised() {
    let world = World::new().await;
    world.set("max.message.bytes", "3000").await;
    let lane = world.lane(0).await;
    let (large, larger) = (noise(12_000), noise(13_000));
    let mixed = |token| {
        let texts = [("a", "1"), ("b", large.as_str()), ("c", "2"), ("d", &larger), ("e", &large), ("f", "3")];
        batch(P0, token, world.records(&texts))
    };
    let first = mixed(1);
    assert_eq!(refused(&world.publish(&lane, first).await).len(), 1, "one by one");

    let second = mixed(2);

    let large_rows = [1, 3, 4].map(|at| second.records[at].0);
    assert_eq!(refused(&world.publish(&lane, second.clone()).await), large_rows);
    world.set("max.message.bytes", "1000000").await;
    let begun = std::time::Instant::now();
    for token in 3.. {
        match world.publish(&lane, mixed(token)).await {
            Published::Committed(_) => break,
            other => assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{other:?}"),
        }
    }
}

#[tokio::test]
async fn records_that_are_only_together_too_large_for_the_broker_all_go() {
    let world = World::new().await;
    world.set("max.message.bytes", "3000").await;
    let lane = world.lane(0).await;
    let values: Vec<String> = (0..10).map(|at| format!("{at}{}", noise(900))).collect();
    let records = values.iter().map(|value| world.make.record("k", value)).collect();

    world.committed(&lane, batch(P0, 1, records)).await;

    assert_eq!(world.by_key().await["k"], values);
}

#[tokio::test]
async fn a_timestamp_that_the_broker_does_not_take_is_the_records_fault() {
    let world = World::new().await;
    let lane = world.lane(0).await;
    let mut records = world.records(&[("k", "1"), ("k", "2"), ("k", "3")]);
    records[1].timestamp = domain::Timestamp::from_millis(4_000_000_000_000);
    let batch = batch(P0, 1, records);

    let answer = world.publish(&lane, batch.clone()).await;

    assert_eq!(refused(&answer), [batch.records[1].0]);
    let Published::Aborted { refused, .. } = answer else { panic!("just seen") };
    assert_eq!(refused[0].1.fault(), Fault::Permanent);
    assert_eq!(world.values().await, [""; 0]);
}

#[tokio::test]
async fn a_lease_that_runs_out_in_a_shared_transaction_costs_the_neighbours_nothing() {
    let proxy = Proxy::to(&servers());
    let world = World::of(opened(options(&proxy.address, &TestClock::default())).await);
    let lane = world.lane(0).await;
    world.committed(&lane, batch(P0, 1, world.records(&[("a", "1")]))).await;
    proxy.hold(Duration::from_millis(600));
    let short = |batch: Batch, time_left| Batch { time_left, ..batch };

    // The second and the third queue up while the first is under way, and the third's lease ends before their transaction does.
    let (first, second, third) = join!(
        world.publish(&lane, batch(P0, 2, world.records(&[("a", "2")]))),
        world.publish(&lane, short(batch(P1, 2, world.records(&[("b", "2")])), HOUR)),
        world.publish(&lane, short(batch(P2, 2, world.records(&[("c", "late")])), Duration::from_millis(900))),
    );

    assert!(matches!(first, Published::Committed(_)), "{first:?}");
    assert!(matches!(second, Published::Committed(_)), "{second:?}");
    assert_eq!(refused(&third), [0; 0]);
    assert_eq!(world.values().await, ["1", "2", "2"]);
    assert_eq!((world.watermark(P1).await, world.watermark(P2).await), (Some(2), None));
}

#[tokio::test]
async fn a_watermark_of_another_installation_under_the_same_prefix_is_not_ours() {
    let theirs = World::new().await;
    let lane = theirs.lane(0).await;
    theirs.committed(&lane, batch(P0, 9, theirs.records(&[("a", "1")]))).await;
    let mut options = theirs.kafka.options().clone();
    options.installation = uuid::Uuid::new_v4().to_string().into();

    let ours = World::of(opened(options).await);

    assert_eq!(ours.watermark(P0).await, None);
}

#[tokio::test]
async fn a_token_that_is_not_above_the_last_one_is_not_published_again() {
    let world = World::new().await;
    let lane = world.lane(0).await;
    world.committed(&lane, batch(P0, 5, world.records(&[("a", "1")]))).await;

    let again = world.publish(&lane, batch(P0, 5, world.records(&[("a", "again")]))).await;

    assert!(matches!(again, Published::Unknown(_)), "{again:?}");
    assert_eq!(world.values().await, ["1"]);
}

#[tokio::test]
async fn an_answer_is_not_needed_for_the_work_to_be_done() {
    let world = World::new().await;
    let lane = world.lane(0).await;
    let mut call = Box::pin(world.publish(&lane, batch(P0, 1, world.records(&[("a", "1")]))));
    assert!(futures::poll!(&mut call).is_pending());
    drop(call);

    // The next batch of the lane comes behind it.
    world.committed(&lane, batch(P1, 2, world.records(&[("b", "2")]))).await;

    assert_eq!(world.values().await, ["1", "2"]);
    assert_eq!(world.watermark(P0).await, Some(1));
}

#[tokio::test]
async fn an_append_that_is_refused_names_the_fault() {
    let world = World::new().await;
    world.set("max.message.bytes", "3000").await;
    let records = world.records(&[("a", "1"), ("b", &noise(12_000))]);

    let answer = world.kafka.append(records).await;

    assert!(matches!(answer, Err(Error::Rejected(_))), "{answer:?}");
    assert_eq!(world.values().await, [""; 0]);
}
