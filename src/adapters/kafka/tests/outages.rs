//! A broker that is not there, goes away, comes back: nothing waits for ever, nothing is lost, and all goes on within seconds.
use std::time::{Duration, Instant};

use kafka::{BrokerProbe, Guarantee, Kafka};
use kit::TestClock;
use ports::Error;
use ports::broker::{Broker, Published};
use ports::probe::Probe;
use ports::source::Sources;

use crate::proxy::Proxy;
use crate::support::{P0, SOON, World, batch, opened, options, servers};

/// No call may keep its caller longer than this when no broker is there.
const AT_ONCE: Duration = Duration::from_secs(8);

async fn opens_again(world: &World) -> ports::partitions::LaneId {
    let begun = Instant::now();
    loop {
        match world.kafka.open_lane(0).await {
            Ok(lane) => return lane,
            Err(error) => assert!(begun.elapsed() < SOON, "not back: {error}"),
        }
    }
}

#[tokio::test]
async fn a_service_starts_without_its_broker_and_makes_the_topics_when_it_comes() {
    let proxy = Proxy::to(&servers());
    proxy.cut();
    let begun = Instant::now();
    let world = World::of(Kafka::open(options(&proxy.address, &TestClock::default())).expect("opened"));
    assert!(begun.elapsed() < Duration::from_secs(1), "opening waits for nobody");

    let refused = world.kafka.open_lane(0).await;
    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    assert!(matches!(world.kafka.watermark(P0).await, Err(Error::Unreachable(_))));
    assert!(matches!(world.kafka.append(world.records(&[("a", "1")])).await, Err(Error::Unreachable(_))));
    assert!(world.kafka.join("g", &["t".into()], 0, 1).await.is_err());
    assert!(BrokerProbe(world.kafka.clone()).check().await.is_err());
    assert!(begun.elapsed() < AT_ONCE * 3, "{:?}", begun.elapsed());

    proxy.mend();
    let lane = opens_again(&world).await;
    world.committed(&lane, batch(P0, 1, world.records(&[("a", "1")]))).await;
    BrokerProbe(world.kafka.clone()).check().await.expect("well again");
}

#[tokio::test]
async fn a_batch_that_never_reached_a_broker_gets_its_attempt_back() {
    let proxy = Proxy::to(&servers());
    let world = World::of(opened(options(&proxy.address, &TestClock::default())).await);
    let lane = world.lane(0).await;
    world.committed(&lane, batch(P0, 1, world.records(&[("a", "1")]))).await;
    proxy.cut();
    // The client has noticed once it says so itself.
    assert!(BrokerProbe(world.kafka.clone()).check().await.is_err());
    let begun = Instant::now();

    let answer = world.publish(&lane, batch(P0, 2, world.records(&[("a", "2")]))).await;

    match answer {
        Published::Aborted { refused, reached, .. } => assert!(refused.is_empty() && !reached, "{reached}"),
        other => panic!("nothing of it can have reached anybody: {other:?}"),
    }
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    proxy.mend();
    let begun = Instant::now();
    loop {
        match world.publish(&lane, batch(P0, 2, world.records(&[("a", "2")]))).await {
            Published::Committed(_) => break,
            // Its first transaction after the outage may still meet the end of it.
            Published::Aborted { refused, .. } if refused.is_empty() => {}
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < SOON, "not back");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "back after {:?}", begun.elapsed());
    assert_eq!(world.values().await, ["1", "2"]);
}

#[tokio::test]
async fn an_outage_in_the_middle_of_work_ends_in_one_truth() {
    let proxy = Proxy::to(&servers());
    let world = World::of(opened(options(&proxy.address, &TestClock::default())).await);
    let mut lane = world.lane(0).await;
    let (mut token, mut truth) = (0, 0);
    for writes in [1, 6, 13] {
        // Batches go one after another until the wire is cut among the writes of one of them.
        proxy.cut_after(writes);
        let doubt = loop {
            token += 1;
            let value = token.to_string();
            match world.publish(&lane, batch(P0, token, world.records(&[("k", &value), ("k", &value)]))).await {
                Published::Committed(_) => truth += 1,
                Published::Aborted { .. } => break false,
                Published::Unknown(_) | Published::LaneLost(_) => break true,
                other @ Published::Partly { .. } => panic!("{other:?}"),
            }
        };
        proxy.mend();
        if doubt {
            let fellow = world.fellow(Guarantee::ExactlyOnce).await;
            fellow.kafka.fence(&lane).await.expect("fenced");
            truth += usize::from(fellow.watermark(P0).await == Some(token));
        }
        lane = opens_again(&world).await;
    }

    let values = &world.by_key().await["k"];
    assert_eq!(values.len(), truth * 2);
    let numbers: Vec<u64> = values.iter().map(|value| value.parse().expect("a number")).collect();
    assert!(numbers.is_sorted() && numbers.chunks(2).all(|pair| pair[0] == pair[1]), "{numbers:?}");
}
