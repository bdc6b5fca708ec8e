//! The faults do what they say: done or not done is decided by the script, and told or not told too.
use std::sync::Arc;
use std::time::Duration;

use kit::faults::{Call, FaultyBroker, FaultyOrders, Mishap, Script};
use kit::{Backend, Factory, Reference};
use ports::Error;
use ports::broker::{Batch, Broker, Published};
use ports::orders::OrderStore;
use ports::partitions::PartitionNo;

const P0: PartitionNo = PartitionNo(0);

struct Bench {
    real: Reference,
    broker: Arc<FaultyBroker>,
    script: Script,
    make: Factory,
}

async fn bench() -> Bench {
    let (real, script) = (Reference::fresh().await, Script::seeded(7));
    let broker = Arc::new(FaultyBroker::around(real.broker(), script.clone()));
    let make = Factory::seeded(7, real.topic());
    Bench { real, broker, script, make }
}

impl Bench {
    fn batch(&self, token: u64) -> Batch {
        let record = self.make.record("key", &token.to_string());
        Batch { partition: P0, token, records: vec![(1, record)], time_left: Duration::from_secs(30) }
    }

    async fn watermark(&self) -> Option<u64> {
        self.real.broker().watermark(P0).await.expect("the real broker answers")
    }
}

#[tokio::test]
async fn an_unknown_outcome_may_have_happened_or_not() {
    let bench = bench().await;
    let lane = bench.broker.open_session(0).await.expect("opened");
    bench.script.once(Call::Publish, Mishap::UnknownNotDone);
    bench.script.once(Call::Publish, Mishap::UnknownDone);

    assert!(matches!(bench.broker.publish(&lane, bench.batch(1)).await, Published::Unknown(_)));
    assert_eq!(bench.watermark().await, None);
    assert!(matches!(bench.broker.publish(&lane, bench.batch(2)).await, Published::Unknown(_)));
    assert_eq!(bench.watermark().await, Some(2));
    assert!(matches!(bench.broker.publish(&lane, bench.batch(3)).await, Published::Committed(_)));
}

#[tokio::test]
async fn a_lost_lane_is_really_lost() {
    let bench = bench().await;
    let lane = bench.broker.open_session(0).await.expect("opened");
    bench.script.once(Call::Publish, Mishap::LaneLost);

    for token in [1, 2] {
        assert!(matches!(bench.broker.publish(&lane, bench.batch(token)).await, Published::SessionLost(_)));
    }
}

#[tokio::test]
async fn a_hung_publish_goes_on_when_released_and_meets_the_fence() {
    let bench = bench().await;
    let lane = bench.broker.open_session(0).await.expect("opened");
    bench.script.once(Call::Publish, Mishap::Hang);
    let mut hung = Box::pin(bench.broker.publish(&lane, bench.batch(1)));
    assert!(futures::poll!(&mut hung).is_pending());

    bench.broker.fence(&lane).await.expect("fenced");
    bench.script.release();

    assert!(matches!(hung.await, Published::SessionLost(_)));
    assert_eq!(bench.watermark().await, None);
}

#[tokio::test(start_paused = true)]
async fn slowness_takes_virtual_time() {
    let bench = bench().await;
    let lane = bench.broker.open_session(0).await.expect("opened");
    let begun = tokio::time::Instant::now();
    bench.script.once(Call::Publish, Mishap::Slow(Duration::from_secs(60)));

    assert!(matches!(bench.broker.publish(&lane, bench.batch(1)).await, Published::Committed(_)));

    assert_eq!(begun.elapsed(), Duration::from_secs(60));
}

#[tokio::test]
async fn picked_records_are_refused_until_calm() {
    let bench = bench().await;
    let lane = bench.broker.open_session(0).await.expect("opened");
    bench.script.refuse(|record| &*record.key == "key");

    let answer = bench.broker.publish(&lane, bench.batch(1)).await;
    assert!(matches!(&answer, Published::Aborted { refused, .. } if refused.len() == 1), "{answer:?}");
    assert!(bench.broker.append(vec![bench.make.record("key", "1")]).await.is_err());

    bench.script.calm();
    assert!(matches!(bench.broker.publish(&lane, bench.batch(1)).await, Published::Committed(_)));
}

#[tokio::test]
async fn a_store_fails_before_or_after() {
    let bench = bench().await;
    let orders = FaultyOrders::around(bench.real.orders(), bench.script.clone());
    let (before, after) = (bench.make.creation("ann", P0), bench.make.creation("ann", P0));
    let (never, done) = (before.order.id, after.order.id);
    bench.script.once(Call::Commit, Mishap::Unreachable);
    bench.script.once(Call::Commit, Mishap::UnknownDone);

    assert!(matches!(orders.commit(before).await, Err(Error::Unreachable(_))));
    assert!(matches!(orders.commit(after).await, Err(Error::Unknown(_))));

    assert_eq!(orders.find(never).await.expect("found"), None);
    assert!(orders.find(done).await.expect("found").is_some());
    assert_eq!(bench.script.met().len(), 2);
}

#[tokio::test]
async fn a_seed_repeats_its_mishaps() {
    let run = async |seed| {
        let real = Reference::fresh().await;
        let script = Script::seeded(seed);
        let broker = FaultyBroker::around(real.broker(), script.clone());
        script.sometimes(0.3, Call::Watermark, Mishap::Unreachable);
        let mut answers = Vec::new();
        for _ in 0..64 {
            answers.push(broker.watermark(P0).await.is_ok());
        }
        answers
    };

    assert_eq!(run(7).await, run(7).await);
    assert_ne!(run(7).await, run(8).await);
}
