//! Exactly once under zombies, crashes, cut connections and invalid records: the watermark always agrees with the committed records.
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::join;
use kafka::DeliveryGuarantee;
use kit::TestClock;
use kit::wait::scaled;
use outbox::topics::WATERMARK_TOPIC;
use ports::Error;
use ports::broker::{Batch, Broker, PublishOutcome};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::proxy::{CutAt, Proxy};
use crate::support::{
    Installation, P0, P1, P2, TIMEOUT, batch, is_aborted_for_now, noise, opened, options, servers, transactional_id,
    watermark_partition,
};

fn refused(published: &PublishOutcome) -> Vec<RowId> {
    let PublishOutcome::RowsRefused(refused) = published else { panic!("it should have been aborted: {published:?}") };
    refused.iter().map(|(row, _)| *row).collect()
}

#[tokio::test]
async fn zombie_commits_nothing_after_another_instance_fenced_its_session() {
    let zombie = Installation::new().await;
    let session = zombie.session(0).await;
    zombie.committed(&session, batch(P0, 1, zombie.records(&[("a", "1")]))).await;
    let other = zombie.other_instance(DeliveryGuarantee::ExactlyOnce).await;

    other.fence(&session).await;
    let results = [
        zombie.result(&session, batch(P0, 2, zombie.records(&[("a", "late")]))).await,
        zombie.result(&session, batch(P1, 3, zombie.records(&[("b", "late")]))).await,
    ];

    assert!(results.iter().all(|result| matches!(result, PublishOutcome::SessionLost(_))), "{results:?}");
    assert_eq!(other.values().await, ["1"]);
    assert_eq!((other.watermark(&session, P0).await, other.watermark(&session, P1).await), (Some(1), None));
    let next = zombie.session(0).await;
    zombie.committed(&next, batch(P0, 4, zombie.records(&[("a", "4")]))).await;
}

/// The relay requests a fence for each batch that a dead session left open; its successor must continue.
#[tokio::test(flavor = "multi_thread")]
async fn fencing_a_dead_session_again_does_not_end_its_successor() {
    let installation = Installation::new().await;
    let former = installation.session(0).await;
    installation.committed(&former, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    installation.fence(&former).await;
    let next = installation.session(0).await;

    installation.fence(&former).await;
    installation.committed(&next, batch(P0, 2, installation.records(&[("a", "2")]))).await;
    let late = installation.result(&former, batch(P1, 3, installation.records(&[("b", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");

    installation.fence(&next).await;
    let late = installation.result(&next, batch(P1, 4, installation.records(&[("b", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    assert_eq!(installation.values().await, ["1", "2"]);
}

/// Each partition with an open batch of a dead session requests the fence, all at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_fences_of_one_session_do_not_fence_each_other() {
    let installation = Installation::new().await;
    let former = installation.session(0).await;
    installation.committed(&former, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;

    let started = Instant::now();
    let fences = join_all((0..16).map(|_| other.kafka.fence(&former))).await;

    assert!(fences.iter().all(Result::is_ok), "{fences:?}");
    assert!(started.elapsed() < scaled(Duration::from_secs(30)), "{:?}", started.elapsed());
    let late = installation.result(&former, batch(P1, 2, installation.records(&[("b", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
}

/// A producer that stops with its transaction open: the broker has all records and the watermark, and the commit never arrives.
fn leave_transaction_open(installation: &Installation, session: &ProducerSessionId) {
    let (id, options) = (transactional_id(session), installation.kafka.options());
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", servers())
        .set("transactional.id", id)
        .create()
        .expect("a producer");
    producer.init_transactions(TIMEOUT).expect("the id is initialised");
    producer.begin_transaction().expect("begun");
    let (events, watermarks) = (options.topic("order.events"), options.topic(WATERMARK_TOPIC));
    producer.send(BaseRecord::to(&events).key("a").payload("never")).map_err(|(error, _)| error).expect("sent");
    let watermark = format!("9 {}", options.installation);
    let record = BaseRecord::to(&watermarks).partition(watermark_partition(session)).key("0").payload(&watermark);
    producer.send(record).map_err(|(error, _)| error).expect("sent");
    producer.flush(TIMEOUT).expect("delivered");
}

#[tokio::test]
async fn fence_aborts_the_open_transaction_of_a_crashed_producer() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 3, installation.records(&[("a", "3")]))).await;
    let committed = installation.by_key().await;
    leave_transaction_open(&installation, &session);

    assert_eq!(committed, [("a".into(), vec!["3".into()])].into());
    assert_eq!(installation.present_by_key().await, committed);

    // The watermark is undecided while the transaction is open; the read returns when the fence has aborted it.
    let (watermark, ()) = join!(installation.watermark(&session, P0), async {
        installation.fence(&session).await;
    });

    assert_eq!(watermark, Some(3));
    assert_eq!(installation.values().await, ["3"]);
}

/// The batch with a lease that ends its wait for a response that never comes.
fn cut_short(batch: Batch) -> Batch {
    Batch { time_left: scaled(Duration::from_secs(4)), ..batch }
}

async fn publish_with_unknown_outcome(when: CutAt) -> (Option<u64>, Vec<String>) {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    proxy.cut_at(when);

    let result = installation.result(&session, cut_short(batch(P0, 2, installation.records(&[("a", "2")])))).await;

    assert!(matches!(result, PublishOutcome::Unknown(_) | PublishOutcome::SessionLost(_)), "{result:?}");
    let late = installation.result(&session, batch(P1, 3, installation.records(&[("b", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;
    other.fence(&session).await;
    (other.watermark(&session, P0).await, other.values().await)
}

#[tokio::test]
async fn commit_that_never_reached_the_broker_is_not_done() {
    assert_eq!(publish_with_unknown_outcome(CutAt::BeforeTheEnd).await, (Some(1), vec!["1".into()]));
}

#[tokio::test]
async fn commit_with_a_lost_response_is_done() {
    assert_eq!(publish_with_unknown_outcome(CutAt::AfterTheEnd).await, (Some(2), vec!["1".into(), "2".into()]));
}

/// The failures of two batches that are expected together, when the commit of the first transaction never reaches the broker.
async fn failures_of_one_transaction() -> [PublishOutcome; 2] {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    proxy.cut_at(CutAt::BeforeTheEnd);
    let first = Batch { expected_batches: 1, ..cut_short(batch(P0, 2, installation.records(&[("a", "2")]))) };
    let second = cut_short(batch(P1, 3, installation.records(&[("b", "3")])));
    join!(installation.publish(&session, first), installation.publish(&session, second)).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_one_unanswered_transaction_report_one_failure() {
    for _ in 0..10 {
        match failures_of_one_transaction().await {
            [PublishOutcome::Unknown(a), PublishOutcome::Unknown(b)] => return assert_eq!(a.id, b.id),
            // The machine was too busy to queue the second batch within a millisecond: it was in no transaction.
            [PublishOutcome::Unknown(a), PublishOutcome::SessionLost(b)] => assert_ne!(a.id, b.id),
            // It was too busy to begin the commit.
            [first, _] if is_aborted_for_now(&first) => {}
            other => panic!("the commit never reached the broker: {other:?}"),
        }
    }
    panic!("no two batches shared a transaction");
}

/// librdkafka ends the process by an assertion when a commit's response arrives after a repeated commit call has timed out.
#[tokio::test(flavor = "multi_thread")]
async fn commit_response_that_arrives_at_the_commit_timeout_ends_no_process() {
    const SESSIONS: u32 = 32;
    /// A commit times out when its batch's lease expires.
    const LEASE: Duration = Duration::from_millis(1_500);
    let proxy = Proxy::to(&servers());
    let mut options = options(&proxy.address, &TestClock::default());
    options.partitions = SESSIONS;
    let installation = Installation::of(opened(options).await);
    let (mut committed, mut aborted) = (Vec::new(), Vec::new());
    for round in 1..=4 {
        let sessions = join_all((0..SESSIONS).map(|slot| installation.session(slot))).await;
        let publish = async |slot: u32| {
            let records = installation.records(&[(&slot.to_string(), &round.to_string())]);
            let short = Batch { time_left: LEASE, ..batch(PartitionNo(slot), round, records) };
            (slot, installation.publish(&sessions[slot as usize], short).await)
        };
        proxy.delay_ends(Instant::now() + LEASE - Duration::from_millis(1), Duration::from_micros(200));
        let results = join_all((0..SESSIONS).map(publish)).await;
        proxy.stop_delaying_ends();
        for (slot, result) in results {
            let sent = (slot.to_string(), round.to_string());
            match result {
                PublishOutcome::Committed(_) => committed.push(sent),
                PublishOutcome::RowsRefused(_) | PublishOutcome::Aborted { .. } => aborted.push(sent),
                PublishOutcome::Unknown(_) => {}
                other => panic!("session {slot}: {other:?}"),
            }
        }
    }
    let by_key = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await.by_key().await;
    assert!(by_key.values().all(|values| values.is_sorted_by(|one, next| one < next)), "{by_key:?}");
    assert!(committed.iter().all(|(key, value)| by_key[key].contains(value)), "{committed:?} in {by_key:?}");
    let is_visible = |(key, value): &(String, String)| by_key.get(key).is_some_and(|values| values.contains(value));
    assert!(!aborted.iter().any(is_visible), "{aborted:?} in {by_key:?}");
}

#[tokio::test]
async fn two_concurrent_sessions_keep_the_order_of_each_key() {
    let installation = Installation::new().await;
    let sessions = [installation.session(0).await, installation.session(1).await];
    let run = async |partition: u32| {
        for token in 1..=20 {
            let values: Vec<String> = (0..5).map(|index| format!("{token:03}-{index}")).collect();
            let keys = [format!("{partition}-x"), format!("{partition}-y")];
            let all = values
                .iter()
                .flat_map(|value| keys.iter().map(|key| installation.factory.record(key, value)))
                .collect();
            let partition_no = PartitionNo(partition);
            installation.committed(&sessions[partition as usize % 2], batch(partition_no, token, all)).await;
        }
    };

    join!(run(0), run(1), run(2), run(3));

    let by_key = installation.by_key().await;
    assert_eq!(by_key.len(), 8);
    for (key, values) in by_key {
        assert_eq!(values.len(), 100, "{key}");
        assert!(values.is_sorted(), "{key}: {values:?}");
    }
}

#[tokio::test]
async fn record_above_the_brokers_limit_is_refused_and_the_others_are_published() {
    let installation = Installation::with_small_batches(DeliveryGuarantee::ExactlyOnce).await;
    let session = installation.session(0).await;
    let large = noise(12_000);
    // One key, so that all records share a partition and a request.
    let mixed = batch(P0, 1, installation.records(&[("k", "1"), ("k", "2"), ("k", &large), ("k", "4")]));
    let valid = batch(P1, 1, installation.records(&[("k", "5"), ("k", "6")]));

    let (first, second) = join!(installation.result(&session, mixed.clone()), installation.result(&session, valid));

    assert_eq!(refused(&first), [mixed.records[2].0]);
    assert!(matches!(second, PublishOutcome::Committed(_)), "{second:?}");
    let mut rest = mixed;
    rest.records.remove(2);
    installation.committed(&session, rest).await;
    assert_eq!(installation.values().await, ["1", "2", "4", "5", "6"]);
}

/// How long the product knows the size of a refused record.
const REFUSAL_TTL: Duration = Duration::from_secs(5);

#[tokio::test]
async fn equally_large_records_are_refused_at_once_until_the_refusal_expires() {
    let installation = Installation::with_small_batches(DeliveryGuarantee::ExactlyOnce).await;
    let session = installation.session(0).await;
    let (large, larger) = (noise(12_000), noise(13_000));
    let mixed = |token| {
        let texts = [("a", "1"), ("b", large.as_str()), ("c", "2"), ("d", &larger), ("e", &large), ("f", "3")];
        batch(P0, token, installation.records(&texts))
    };
    let mut sent = Instant::now();
    assert_eq!(refused(&installation.result(&session, mixed(1)).await).len(), 1, "one by one");

    let mut token = 1;
    loop {
        token += 1;
        let (sent_before, next) = (std::mem::replace(&mut sent, Instant::now()), mixed(token));
        let large_rows = [1, 3, 4].map(|index| next.records[index].0);
        let refused = refused(&installation.result(&session, next).await);
        if refused == large_rows {
            break;
        }
        // On a busy machine the refusal has expired before the next batch was sent.
        assert!(sent_before.elapsed() >= REFUSAL_TTL && token < 50, "{refused:?}");
    }
    installation.set("max.message.bytes", "1000000").await;
    let started = Instant::now();
    for token in token + 1.. {
        match installation.publish(&session, mixed(token)).await {
            PublishOutcome::Committed(_) => break,
            other => assert!(started.elapsed() < scaled(Duration::from_secs(30)), "{other:?}"),
        }
    }
}

#[tokio::test]
async fn records_that_exceed_the_brokers_limit_only_together_are_published() {
    let installation = Installation::with_small_batches(DeliveryGuarantee::ExactlyOnce).await;
    let session = installation.session(0).await;
    let values: Vec<String> = (0..10).map(|index| format!("{index}{}", noise(900))).collect();
    let records = values.iter().map(|value| installation.factory.record("k", value)).collect();

    installation.committed(&session, batch(P0, 1, records)).await;

    assert_eq!(installation.by_key().await["k"], values);
}

#[tokio::test]
async fn lease_that_expires_in_a_shared_transaction_aborts_only_its_batch() {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    proxy.delay_writes(Duration::from_millis(600));
    let late = batch(P2, 2, installation.records(&[("c", "late")]));
    let short = Batch { time_left: Duration::from_millis(300), ..late };

    // Whether the third batch shares the first transaction or waits for it: its lease expires before that transaction ends.
    let (first, second, third) = join!(
        installation.result(&session, batch(P0, 2, installation.records(&[("a", "2")]))),
        installation.result(&session, batch(P1, 2, installation.records(&[("b", "2")]))),
        installation.publish(&session, short),
    );

    assert!(matches!(first, PublishOutcome::Committed(_)), "{first:?}");
    assert!(matches!(second, PublishOutcome::Committed(_)), "{second:?}");
    assert!(matches!(third, PublishOutcome::Aborted { .. }), "no row of it is at fault: {third:?}");
    assert_eq!(installation.values().await, ["1", "2", "2"]);
    assert_eq!(
        (installation.watermark(&session, P1).await, installation.watermark(&session, P2).await),
        (Some(2), None)
    );
}

#[tokio::test]
async fn watermark_of_another_installation_with_the_same_prefix_is_ignored() {
    let existing = Installation::new().await;
    let session = existing.session(0).await;
    existing.committed(&session, batch(P0, 9, existing.records(&[("a", "1")]))).await;
    let mut options = existing.kafka.options().clone();
    options.installation = uuid::Uuid::new_v4().to_string().into();

    let other = Installation::of(opened(options).await);

    assert_eq!(other.watermark(&session, P0).await, None);
    assert_eq!(other.present_watermark(P0).await, None);
}

#[tokio::test]
async fn batch_with_a_token_not_above_the_last_one_is_not_published() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 5, installation.records(&[("a", "1")]))).await;

    let again = installation.publish(&session, batch(P0, 5, installation.records(&[("a", "again")]))).await;

    assert!(matches!(again, PublishOutcome::Unknown(_)), "{again:?}");
    assert_eq!(installation.values().await, ["1"]);
}

#[tokio::test]
async fn batch_is_published_although_its_caller_was_dropped() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    // On a busy machine the call may end before it is dropped, or the broker may be too slow.
    for token in 1..=10 {
        let value = token.to_string();
        let records = installation.records(&[("a", &value)]);
        let mut call = Box::pin(installation.publish(&session, batch(P0, token, records)));
        let is_dropped_early = futures::poll!(&mut call).is_pending();
        drop(call);

        // The session publishes its next batch after it.
        installation.committed(&session, batch(P1, token, installation.records(&[("b", &value)]))).await;

        if is_dropped_early && installation.watermark(&session, P0).await == Some(token) {
            return assert!(installation.by_key().await["a"].contains(&value));
        }
    }
    panic!("no batch was published after its caller was dropped");
}

#[tokio::test]
async fn refused_append_returns_the_rejection() {
    let installation = Installation::with_small_batches(DeliveryGuarantee::ExactlyOnce).await;
    let records = installation.records(&[("a", "1"), ("b", &noise(12_000))]);

    let result = installation.append_result(records).await;

    assert!(matches!(result, Err(Error::Rejected(_))), "{result:?}");
    assert_eq!(installation.values().await, [""; 0]);
}
