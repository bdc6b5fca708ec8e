//! Each injected fault has its documented effect: whether the call is executed, and whether the caller receives its result.
use std::sync::Arc;
use std::time::Duration;

use kit::faults::{Call, FaultScript, FaultyBroker, FaultyOrders, InjectedFault};
use kit::{Backend, Factory, Reference};
use ports::Error;
use ports::broker::{Batch, Broker, PublishOutcome};
use ports::orders::OrderStore;
use ports::partitions::PartitionNo;

const P0: PartitionNo = PartitionNo(0);

struct Fixture {
    reference: Reference,
    broker: Arc<FaultyBroker>,
    script: FaultScript,
    factory: Factory,
}

async fn fixture() -> Fixture {
    let (reference, script) = (Reference::fresh().await, FaultScript::seeded(7));
    let broker = Arc::new(FaultyBroker::wrap(reference.broker(), script.clone()));
    let factory = Factory::seeded(7, reference.topic());
    Fixture { reference, broker, script, factory }
}

impl Fixture {
    fn batch(&self, token: u64) -> Batch {
        let record = self.factory.record("key", &token.to_string());
        Batch {
            partition: P0,
            token,
            records: vec![(1, record)],
            time_left: Duration::from_secs(30),
            expected_batches: 0,
        }
    }

    async fn watermark(&self) -> Option<u64> {
        self.reference.broker().watermark(P0, None).await.expect("the watermark is read")
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_either_done_or_not_done() {
    let fixture = fixture().await;
    let session = fixture.broker.open_session(0).await.expect("opened");
    fixture.script.once(Call::Publish, InjectedFault::UnknownNotDone);
    fixture.script.once(Call::Publish, InjectedFault::UnknownDone);

    assert!(matches!(fixture.broker.publish(&session, fixture.batch(1)).await, PublishOutcome::Unknown(_)));
    assert_eq!(fixture.watermark().await, None);
    assert!(matches!(fixture.broker.publish(&session, fixture.batch(2)).await, PublishOutcome::Unknown(_)));
    assert_eq!(fixture.watermark().await, Some(2));
    assert!(matches!(fixture.broker.publish(&session, fixture.batch(3)).await, PublishOutcome::Committed(_)));
}

#[tokio::test]
async fn a_lost_session_stays_lost() {
    let fixture = fixture().await;
    let session = fixture.broker.open_session(0).await.expect("opened");
    fixture.script.once(Call::Publish, InjectedFault::SessionLost);

    for token in [1, 2] {
        assert!(matches!(fixture.broker.publish(&session, fixture.batch(token)).await, PublishOutcome::SessionLost(_)));
    }
}

#[tokio::test]
async fn a_publish_released_after_a_fence_is_rejected() {
    let fixture = fixture().await;
    let session = fixture.broker.open_session(0).await.expect("opened");
    fixture.script.once(Call::Publish, InjectedFault::Hang);
    let mut hung = Box::pin(fixture.broker.publish(&session, fixture.batch(1)));
    assert!(futures::poll!(&mut hung).is_pending());

    fixture.broker.fence(&session).await.expect("fenced");
    fixture.script.release();

    assert!(matches!(hung.await, PublishOutcome::SessionLost(_)));
    assert_eq!(fixture.watermark().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_virtual_time() {
    let fixture = fixture().await;
    let session = fixture.broker.open_session(0).await.expect("opened");
    let start = tokio::time::Instant::now();
    fixture.script.once(Call::Publish, InjectedFault::Slow(Duration::from_secs(60)));

    assert!(matches!(fixture.broker.publish(&session, fixture.batch(1)).await, PublishOutcome::Committed(_)));

    assert_eq!(start.elapsed(), Duration::from_secs(60));
}

#[tokio::test]
async fn selected_records_are_refused_until_cleared() {
    let fixture = fixture().await;
    let session = fixture.broker.open_session(0).await.expect("opened");
    fixture.script.refuse(|record| &*record.key == "key");

    let published = fixture.broker.publish(&session, fixture.batch(1)).await;
    assert!(matches!(&published, PublishOutcome::RowsRefused(refused) if refused.len() == 1), "{published:?}");
    assert!(fixture.broker.append(vec![fixture.factory.record("key", "1")]).await.is_err());

    fixture.script.clear();
    assert!(matches!(fixture.broker.publish(&session, fixture.batch(1)).await, PublishOutcome::Committed(_)));
}

#[tokio::test]
async fn a_store_call_fails_before_or_after_it_is_executed() {
    let fixture = fixture().await;
    let orders = FaultyOrders::wrap(fixture.reference.orders(), fixture.script.clone());
    let (before, after) = (fixture.factory.creation("ann", P0), fixture.factory.creation("ann", P0));
    let (not_written, written) = (before.order.id, after.order.id);
    fixture.script.once(Call::Commit, InjectedFault::Unreachable);
    fixture.script.once(Call::Commit, InjectedFault::UnknownDone);

    assert!(matches!(orders.commit(before).await, Err(Error::Unreachable(_))));
    assert!(matches!(orders.commit(after).await, Err(Error::Unknown(_))));

    assert_eq!(orders.find(not_written).await.expect("found"), None);
    assert!(orders.find(written).await.expect("found").is_some());
    assert_eq!(fixture.script.injected().len(), 2);
}

#[tokio::test]
async fn a_seed_reproduces_its_faults() {
    let run = async |seed| {
        let reference = Reference::fresh().await;
        let script = FaultScript::seeded(seed);
        let broker = FaultyBroker::wrap(reference.broker(), script.clone());
        script.sometimes(0.3, Call::Watermark, InjectedFault::Unreachable);
        let mut results = Vec::new();
        for _ in 0..64 {
            results.push(broker.watermark(P0, None).await.is_ok());
        }
        results
    };

    assert_eq!(run(7).await, run(7).await);
    assert_ne!(run(7).await, run(8).await);
}
