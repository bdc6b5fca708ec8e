//! Members of groups on a real broker: partitions change hands without doing anything twice that was nearly done, and foreign messages
//! are read as they are.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::broker::{Broker, Position};
use ports::source::{ConsumerGroups, Delivery, GroupMember};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{SOON, World, servers};

const PATIENCE: Duration = Duration::from_millis(300);

async fn join(world: &World) -> Arc<dyn GroupMember> {
    let options = world.kafka.options();
    let group = format!("{}group", options.topic_prefix);
    world.kafka.join(&group, &[options.topic("order.events")], 0, 1).await.expect("joined")
}

async fn polled(source: &Arc<dyn GroupMember>, at_least: usize) -> Vec<Delivery> {
    let (begun, mut all) = (Instant::now(), Vec::new());
    while all.len() < at_least {
        all.extend(source.poll(100, PATIENCE).await.expect("a poll is answered"));
        assert!(begun.elapsed() < SOON, "{} of {at_least} came", all.len());
    }
    all
}

fn positions(deliveries: &[Delivery]) -> Vec<Position> {
    deliveries.iter().map(|delivery| delivery.position.clone()).collect()
}

/// Appends to each of the topic's two partitions.
async fn fill(world: &World, from: usize, count: usize) {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let records = (from..from + count).flat_map(|at| keys.map(|key| world.make.record(key, &format!("{key}-{at:03}"))));
    world.kafka.append(records.collect()).await.expect("appended");
}

async fn shares(source: &Arc<dyn GroupMember>) -> usize {
    source.lag().await.expect("told").len()
}

#[tokio::test]
async fn what_is_in_hand_is_finished_before_its_partition_changes_hands() {
    let world = World::new().await;
    fill(&world, 0, 5).await;
    let first = join(&world).await;
    let in_hand = polled(&first, 40).await;

    let second = join(&world).await;
    let mut early = second.poll(100, PATIENCE * 3).await.expect("polled");
    assert_eq!(early.len(), 0, "nothing changes hands while it is in hand");
    first.acknowledge(&positions(&in_hand)).await.expect("acknowledged: the partitions are still ours");
    let begun = Instant::now();
    while (shares(&first).await, shares(&second).await) != (1, 1) {
        early.extend(second.poll(100, PATIENCE).await.expect("polled"));
        assert!(begun.elapsed() < SOON, "the partitions were never shared out");
    }
    fill(&world, 5, 1).await;
    let (mut all, begun) = (early, Instant::now());
    while all.len() < 8 {
        all.extend(first.poll(100, PATIENCE).await.expect("polled"));
        all.extend(second.poll(100, PATIENCE).await.expect("polled"));
        assert!(begun.elapsed() < SOON, "{} of 8 came", all.len());
    }

    let before: BTreeSet<Position> = positions(&in_hand).into_iter().collect();
    assert!(positions(&all).iter().all(|position| !before.contains(position)), "nothing was handed out twice");
    assert_eq!(all.len(), 8);
}

#[tokio::test]
async fn a_member_that_never_finishes_loses_the_partition_and_is_told() {
    let world = World::with(|options| options.hand_over_within = Duration::from_millis(500)).await;
    fill(&world, 0, 2).await;
    let slow = join(&world).await;
    let in_hand = polled(&slow, 16).await;

    let second = join(&world).await;
    let taken = polled(&second, 1).await;

    assert!(positions(&in_hand).contains(&taken[0].position), "it comes again, to another");
    let late = slow.acknowledge(&[taken[0].position.clone()]).await;
    assert!(late.is_err(), "an acknowledgement that is not done is not called done");
}

#[tokio::test]
async fn a_member_that_leaves_hands_over_at_once() {
    let world = World::new().await;
    fill(&world, 0, 2).await;
    let first = join(&world).await;
    let second = join(&world).await;
    let begun = Instant::now();
    while (shares(&first).await, shares(&second).await) != (1, 1) {
        first.poll(1, PATIENCE).await.expect("polled");
        first.rewind().await.expect("rewound");
        assert!(begun.elapsed() < SOON, "the partitions were never shared out");
    }

    drop(first);
    let begun = Instant::now();
    polled(&second, 16).await;

    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
}

#[tokio::test]
async fn messages_of_others_are_read_as_they_are() {
    let world = World::new().await;
    let topic = world.kafka.options().topic("order.events");
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", servers()).create().expect("a producer");
    let headers = OwnedHeaders::new().insert(Header { key: "none", value: None::<&[u8]> });
    let headers = headers.insert(Header { key: "bytes", value: Some(&[0_u8, 255][..]) });
    let tombstone: BaseRecord<'_, str, [u8]> = BaseRecord::to(&topic).partition(0).key("k").headers(headers);
    producer.send(tombstone).map_err(|(error, _)| error).expect("sent");
    let bare: BaseRecord<'_, str, str> = BaseRecord::to(&topic).partition(0).payload("no key");
    producer.send(bare).map_err(|(error, _)| error).expect("sent");
    let odd = BaseRecord::to(&topic).partition(0).key(&[0xff_u8, b'k'][..]).payload("odd key");
    producer.send(odd).map_err(|(error, _)| error).expect("sent");
    producer.flush(SOON).expect("delivered");

    let read = polled(&join(&world).await, 3).await;

    let text = |at: usize| (&*read[at].record.key, String::from_utf8_lossy(&read[at].record.value).into_owned());
    assert_eq!(text(0), ("k", String::new()));
    assert_eq!(read[0].record.headers.len(), 2);
    assert_eq!((&*read[0].record.headers[0].1, &*read[0].record.headers[1].1), (&[][..], &[0_u8, 255][..]));
    assert_eq!(text(1), ("", "no key".into()));
    assert_eq!(text(2), ("\u{fffd}k", "odd key".into()));
}

#[tokio::test]
async fn more_than_is_kept_ready_comes_all_and_in_order() {
    let world = World::with(|options| options.ready_max = 16).await;
    fill(&world, 0, 100).await;
    let source = join(&world).await;

    let (mut all, begun) = (Vec::new(), Instant::now());
    while all.len() < 800 {
        let some = source.poll(7, PATIENCE).await.expect("polled");
        source.acknowledge(&positions(&some)).await.expect("acknowledged");
        all.extend(some);
        assert!(begun.elapsed() < SOON * 2, "{} of 800 came", all.len());
    }

    for partition in 0..2 {
        let of_it = all.iter().filter(|delivery| delivery.position.partition == partition);
        let offsets: Vec<u64> = of_it.map(|delivery| delivery.position.offset).collect();
        assert!(offsets.is_sorted_by(|a, b| a < b), "{offsets:?}");
    }
}
