//! A broker that is not there, goes away, comes back: nothing waits for ever, nothing is lost, and all goes on within seconds.
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka::{BrokerProbe, Guarantee, Kafka};
use kit::TestClock;
use ports::Error;
use ports::broker::{Broker, Published};
use ports::probe::Probe;
use ports::source::{ConsumerGroups, GroupMember};
use ports::topics::TopicReader;

use crate::proxy::Proxy;
use crate::support::{P0, SOON, World, batch, opened, options, servers};

/// No call may keep its caller longer than this when no broker is there.
const AT_ONCE: Duration = Duration::from_secs(8);

async fn opens_again(world: &World) -> ports::partitions::ProducerSessionId {
    let begun = Instant::now();
    loop {
        match world.kafka.open_session(0).await {
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

    let refused = world.kafka.open_session(0).await;
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

/// A broker that has just started may name none. Such an answer makes the library's clients forget every way to a broker, for good.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_were_told_of_no_brokers_are_replaced() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let proxy = Proxy::to(&servers());
        let mut options = options(&proxy.address, &TestClock::default());
        options.guarantee = guarantee;
        let world = World::of(opened(options).await);
        let mut lane = world.lane(0).await;
        world.committed(&lane, batch(P0, 1, world.records(&[("a", "1")]))).await;
        let mut member = join(&world).await;
        assert_eq!(received(&world, &mut member).await, "1");
        assert_eq!(world.values().await, ["1"]);

        proxy.name_nobody(true);
        proxy.cut();
        proxy.mend();
        let begun = Instant::now();
        while proxy.named_nobody() < CLIENTS {
            let looks = async { tokio::join!(world.kafka.list(), world.kafka.watermark(P0)) };
            // Whoever is asked reaches nobody, and takes its time.
            drop(tokio::time::timeout(Duration::from_millis(200), looks).await);
            assert!(begun.elapsed() < SOON, "only {} were told", proxy.named_nobody());
        }
        proxy.name_nobody(false);

        soon("the broker answers its probe", async || BrokerProbe(world.kafka.clone()).check().await.ok()).await;
        let mut token = 1;
        soon("a batch is published", async || {
            token += 1;
            match world.publish(&lane, batch(P0, token, world.records(&[("a", "2")]))).await {
                Published::Committed(_) => return Some(()),
                Published::SessionLost(_) => lane = opens_again(&world).await,
                Published::Aborted { refused, .. } if refused.is_empty() => {}
                other => panic!("nothing of it can have reached anybody: {other:?}"),
            }
            None
        })
        .await;
        assert_eq!(received(&world, &mut member).await, "2");
        soon("a watermark is told", async || world.kafka.watermark(P0).await.ok()).await;
        soon("topics are listed", async || world.kafka.list().await.ok()).await;
        assert_eq!(world.values().await, ["1", "2"]);
    }
}

/// A producer whose records nobody takes, while others reach the brokers, is what may be wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_sends_in_vain_makes_room_for_a_new_client() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let proxy = Proxy::to(&servers());
        let mut options = options(&proxy.address, &TestClock::default());
        (options.guarantee, options.deliver_within) = (guarantee, Duration::from_secs(2));
        let world = World::of(opened(options).await);
        let lane = world.lane(0).await;
        world.committed(&lane, batch(P0, 1, world.records(&[("a", "1")]))).await;

        proxy.shut_producers_out();
        let mut token = 1;
        soon("the session ends", async || {
            drop(BrokerProbe(world.kafka.clone()).check().await);
            token += 1;
            match world.publish(&lane, batch(P0, token, world.records(&[("a", "in vain")]))).await {
                Published::SessionLost(_) => Some(()),
                Published::Aborted { refused, reached: false, .. } if refused.is_empty() => None,
                other => panic!("{guarantee:?}: nothing of it can have reached anybody: {other:?}"),
            }
        })
        .await;

        proxy.mend();
        let next = opens_again(&world).await;
        world.committed(&next, batch(P0, token + 1, world.records(&[("a", "2")]))).await;
        assert_eq!(world.values().await, ["1", "2"]);
    }
}

/// Of an adapter that does everything: the producer, the group's member, and two each of whoever asks about the cluster, looks for watermarks
/// and looks for operators.
const CLIENTS: u64 = 8;

async fn soon<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = attempt().await {
            return done;
        }
        assert!(begun.elapsed() < SOON, "in vain: {what}");
    }
}

async fn join(world: &World) -> Arc<dyn GroupMember> {
    let topic = world.kafka.options().topic("order.events");
    soon("a member joins", async || world.kafka.join("g", std::slice::from_ref(&topic), 0, 1).await.ok()).await
}

/// The next value that the group gets; whoever meets an error joins anew, as consumers do.
async fn received(world: &World, member: &mut Arc<dyn GroupMember>) -> String {
    soon("a message comes", async || match member.poll(1, Duration::from_millis(500)).await {
        Ok(deliveries) => {
            let delivery = deliveries.first()?;
            member.acknowledge(std::slice::from_ref(&delivery.position)).await.ok()?;
            Some(String::from_utf8_lossy(&delivery.record.value).into_owned())
        }
        Err(_) => {
            *member = join(world).await;
            None
        }
    })
    .await
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
                Published::Unknown(_) | Published::SessionLost(_) => break true,
                other @ Published::Partial { .. } => panic!("{other:?}"),
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
