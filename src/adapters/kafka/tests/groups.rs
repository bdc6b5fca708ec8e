//! Group members on a real broker: rebalances let in-flight messages finish, and messages of other applications are read unchanged.
mod lag;
mod mixed_groups;
mod removed_records;
mod retry_topics;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kafka::DeliveryGuarantee;
use kit::wait::{scaled, until_answered};
use outbox::partition::topic_partition;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, ConsumerRecord, GroupMember};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{Installation, TIMEOUT, request_deletion, servers, until_empty};

const POLL_TIMEOUT: Duration = Duration::from_millis(300);

fn group_id(installation: &Installation) -> String {
    format!("{}group", installation.kafka.options().topic_prefix)
}

async fn join(installation: &Installation) -> Arc<dyn GroupMember> {
    let topics = [installation.kafka.options().topic("order.events")];
    let group = group_id(installation);
    until_answered(TIMEOUT, || installation.kafka.join(&group, &topics, 0, 1)).await.expect("joined")
}

async fn polled(source: &Arc<dyn GroupMember>, at_least: usize) -> Vec<ConsumerRecord> {
    let (started, mut all) = (Instant::now(), Vec::new());
    while all.len() < at_least {
        all.extend(source.poll(100, POLL_TIMEOUT).await.expect("the poll succeeds"));
        assert!(started.elapsed() < scaled(TIMEOUT), "{} of {at_least} came", all.len());
    }
    all
}

/// Acknowledges messages, again while the broker is too slow to answer.
async fn acknowledged(member: &Arc<dyn GroupMember>, positions: &[Position]) -> AckOutcome {
    until_answered(TIMEOUT, || member.acknowledge(positions)).await.expect("acknowledged")
}

/// The group takes the partitions of a member that is silent for a session time-out. A member is paused with its process, so the time-out is longer
/// here; a still longer one would delay the start of each rebalance.
async fn long_sessions(set: impl FnOnce(&mut kafka::Options)) -> Installation {
    Installation::with(|options| {
        options.session_timeout = scaled(options.session_timeout).min(options.session_timeout * 2);
        set(options);
    })
    .await
}

fn positions(messages: &[ConsumerRecord]) -> Vec<Position> {
    messages.iter().map(|message| message.position.clone()).collect()
}

/// Appends `count` records for each of eight keys, which use both partitions of the topic.
async fn fill(installation: &Installation, from: usize, count: usize) {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let records = (from..from + count)
        .flat_map(|index| keys.map(|key| installation.factory.record(key, &format!("{key}-{index:03}"))));
    installation.append(records.collect()).await;
}

async fn assigned_partitions(source: &Arc<dyn GroupMember>) -> usize {
    source.lag().await.expect("read").len()
}

#[tokio::test]
async fn in_flight_messages_finish_before_their_partition_is_revoked() {
    let installation = long_sessions(|options| options.handover_timeout = scaled(options.handover_timeout)).await;
    fill(&installation, 0, 5).await;
    let first = join(&installation).await;
    let in_flight = polled(&first, 40).await;

    let second = join(&installation).await;
    let mut early = second.poll(100, POLL_TIMEOUT * 3).await.expect("polled");
    assert_eq!(early.len(), 0, "no partition moves while its messages are in flight");
    acknowledged(&first, &positions(&in_flight)).await;
    let started = Instant::now();
    while (assigned_partitions(&first).await, assigned_partitions(&second).await) != (1, 1) {
        early.extend(second.poll(100, POLL_TIMEOUT).await.expect("polled"));
        assert!(started.elapsed() < scaled(TIMEOUT), "the partitions were never rebalanced");
    }
    fill(&installation, 5, 1).await;
    let (mut all, started) = (early, Instant::now());
    while all.len() < 8 {
        all.extend(first.poll(100, POLL_TIMEOUT).await.expect("polled"));
        all.extend(second.poll(100, POLL_TIMEOUT).await.expect("polled"));
        assert!(started.elapsed() < scaled(TIMEOUT), "{} of 8 came", all.len());
    }

    let before: BTreeSet<Position> = positions(&in_flight).into_iter().collect();
    assert!(positions(&all).iter().all(|position| !before.contains(position)), "no message was delivered twice");
    assert_eq!(all.len(), 8);
}

#[tokio::test]
async fn slow_member_loses_its_partition_and_keeps_the_others() {
    let installation = long_sessions(|options| options.handover_timeout = Duration::from_millis(500)).await;
    fill(&installation, 0, 2).await;
    let slow = join(&installation).await;
    let in_flight = polled(&slow, 16).await;

    let second = join(&installation).await;
    let taken = polled(&second, 1).await;

    assert!(positions(&in_flight).contains(&taken[0].position), "the other member receives the message again");
    slow.pause(&taken[0].position, TIMEOUT).await.expect("a lost partition needs no pause");
    let late = acknowledged(&slow, &positions(&in_flight)).await;
    assert_eq!(late, AckOutcome::PartitionsLost, "only the messages of the other partition are acknowledged");
    drop(second);
    let of_lost = |message: &&ConsumerRecord| message.position.partition == taken[0].position.partition;
    let again = polled(&slow, in_flight.iter().filter(of_lost).count()).await;
    assert!(again.iter().all(|message| of_lost(&message)), "the others were acknowledged: {again:?}");
}

#[tokio::test]
async fn acknowledgement_of_a_message_delivered_before_a_revocation_is_refused() {
    let installation = long_sessions(|options| options.handover_timeout = Duration::from_millis(500)).await;
    fill(&installation, 0, 2).await;
    let slow = join(&installation).await;
    let in_flight = polled(&slow, 16).await;
    let second = join(&installation).await;
    let taken = polled(&second, 1).await;
    let partition = taken[0].position.partition;
    let of_it: Vec<Position> =
        positions(&in_flight).into_iter().filter(|position| position.partition == partition).collect();
    polled(&second, of_it.len().saturating_sub(taken.len())).await;
    acknowledged(&second, &of_it).await;
    drop(second);
    let started = Instant::now();
    while assigned_partitions(&slow).await != 2 {
        assert!(started.elapsed() < scaled(TIMEOUT), "the partition never came back");
    }

    let late = slow.acknowledge(&of_it[..1]).await.expect("the member goes on");

    assert_eq!(late, AckOutcome::PartitionsLost, "the slow member has delivered nothing since the partition came back");
    drop(slow);
    let again = polled(&join(&installation).await, 16 - of_it.len()).await;
    assert!(again.iter().all(|message| message.position.partition != partition), "the offset went back");
}

/// Polls and acknowledges without a pause, and appends records when there are none, until the flag is set.
async fn consume(installation: &Installation, member: &Arc<dyn GroupMember>, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let some = member.poll(1, Duration::from_millis(20)).await.expect("polled");
        if some.is_empty() {
            fill(installation, 0, 20).await;
        }
        // Those of a lost partition are not acknowledged, which is no failure. A broker that is too slow leaves the outcome unknown.
        while let Err(error) = member.acknowledge(&positions(&some)).await {
            assert!(matches!(error, Error::Unknown(_)), "a rebalance refuses no acknowledgement: {error}");
        }
    }
}

/// A member that has joined again waits for the others, and commits meanwhile in the generation that ends then.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledgement_fails_while_members_join_and_leave() {
    let installation = long_sessions(|options| options.topic_partitions = 3).await;
    let [first, second] = [join(&installation).await, join(&installation).await];
    let ends = AtomicBool::new(false);

    let rebalances = async {
        for _ in 0..3 {
            let (third, started) = (join(&installation).await, Instant::now());
            while assigned_partitions(&third).await == 0 {
                assert!(started.elapsed() < scaled(TIMEOUT), "the third member never got a partition");
                third.poll(1, POLL_TIMEOUT).await.expect("polled");
            }
            drop(third);
            while assigned_partitions(&first).await + assigned_partitions(&second).await < 3 {
                assert!(started.elapsed() < scaled(TIMEOUT * 2), "its partition never came back");
                tokio::task::yield_now().await;
            }
        }
        ends.store(true, Ordering::Relaxed);
    };

    tokio::join!(consume(&installation, &first, &ends), consume(&installation, &second, &ends), rebalances);
}

#[tokio::test]
async fn member_reads_all_messages_of_a_topic_that_was_created_again() {
    let installation = Installation::new().await;
    fill(&installation, 0, 5).await;
    let mut member = join(&installation).await;
    acknowledged(&member, &positions(&polled(&member, 40).await)).await;
    let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;
    let topic = installation.kafka.options().topic("order.events");
    request_deletion(&topic).await;
    // The adapter of the member creates it too, if it looks for deleted topics now.
    let names = [topic.as_str()];
    until_answered(TIMEOUT, || other.kafka.ensure_topics(&names)).await.expect("created");
    until_empty(&topic, 2).await;
    fill(&installation, 5, 3).await;

    let (mut read, started) = (Vec::new(), Instant::now());
    while read.len() < 24 {
        match member.poll(100, POLL_TIMEOUT).await {
            Ok(some) => read.extend(some),
            // The client has read that the topic is missing, or its adapter has. The consumer actors join again, and read what they did not
            // acknowledge.
            Err(_) => {
                read.clear();
                member = join(&installation).await;
            }
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "{} of 24 came", read.len());
    }

    assert_eq!(read.len(), 24);
    acknowledged(&member, &positions(&read)).await;
    drop(member);
    fill(&installation, 8, 1).await;
    let later = polled(&join(&installation).await, 8).await;
    assert_eq!(later.len(), 8, "the group continues after the new messages");
}

/// A group begins at the end while the transaction of an event commits. Returns how long that took, and what the group receives when another
/// event has been sent.
async fn begin_during_a_commit() -> (Duration, Vec<String>) {
    let installation = Installation::new().await;
    let (options, topic) = (installation.kafka.options(), installation.kafka.options().topic("order.events"));
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers()).set("transactional.id", format!("{}other", options.topic_prefix));
    let producer: BaseProducer = config.create().expect("a producer");
    producer.init_transactions(TIMEOUT).expect("initialised");
    producer.begin_transaction().expect("begun");
    let partition = topic_partition(b"a", options.topic_partitions) as i32;
    let record = BaseRecord::to(&topic).partition(partition).key("a").payload("sent before");
    producer.send(record).map_err(|(error, _)| error).expect("sent");
    producer.flush(TIMEOUT).expect("delivered");

    let (group, topics, started) = (group_id(&installation), [topic], Instant::now());
    let begin = || installation.kafka.begin_at_end(&group, &topics);
    let (set, ()) = tokio::join!(until_answered(TIMEOUT, begin), async {
        // The list waits half a second for open transactions.
        installation.topics().await;
        producer.commit_transaction(TIMEOUT).expect("committed");
    });
    set.expect("the offsets are set");
    let took = started.elapsed();
    installation.append(installation.records(&[("a", "sent after")])).await;
    let read = polled(&join(&installation).await, 1).await;
    (took, read.iter().map(|message| String::from_utf8_lossy(&message.record.value).into_owned()).collect())
}

/// A coordinator acknowledges a commit before the last stable offset has passed it.
#[tokio::test(flavor = "multi_thread")]
async fn group_that_begins_at_the_end_skips_the_events_of_ending_transactions() {
    let mut late = Vec::new();
    for _ in 0..10 {
        let (took, received) = begin_during_a_commit().await;
        // It waits for two seconds, in which a busy machine may not commit.
        if took < Duration::from_secs(2) {
            return assert_eq!(received, ["sent after"]);
        }
        late.push(received);
    }
    assert!(late.iter().any(|received| *received == ["sent after"]), "{late:?}");
}

#[tokio::test]
async fn leaving_member_gives_up_its_partitions_at_once() {
    let installation = long_sessions(|_| {}).await;
    fill(&installation, 0, 2).await;
    let first = join(&installation).await;
    let second = join(&installation).await;
    let started = Instant::now();
    while (assigned_partitions(&first).await, assigned_partitions(&second).await) != (1, 1) {
        first.poll(1, POLL_TIMEOUT).await.expect("polled");
        first.rewind().await.expect("rewound");
        assert!(started.elapsed() < scaled(TIMEOUT), "the partitions were never rebalanced");
    }

    drop(first);
    let started = Instant::now();
    polled(&second, 16).await;

    assert!(started.elapsed() < scaled(Duration::from_secs(5)), "it took {:?}", started.elapsed());
}

#[tokio::test]
async fn partition_that_was_paused_when_it_was_revoked_is_read_again() {
    let installation = long_sessions(|options| options.prefetch_max = 16).await;
    fill(&installation, 0, 100).await;
    let first = join(&installation).await;
    polled(&first, 1).await;
    first.rewind().await.expect("rewound: its buffers are full, and no message is in flight");

    let second = join(&installation).await;
    let started = Instant::now();
    while (assigned_partitions(&first).await, assigned_partitions(&second).await) != (1, 1) {
        assert!(started.elapsed() < scaled(TIMEOUT), "the partitions were never rebalanced");
    }
    drop(second);

    let (mut read, started) = (BTreeSet::new(), Instant::now());
    while read.len() < 800 {
        let some = positions(&first.poll(100, POLL_TIMEOUT).await.expect("polled"));
        acknowledged(&first, &some).await;
        read.extend(some);
        assert!(started.elapsed() < scaled(TIMEOUT), "{} of 800 came", read.len());
    }
}

#[tokio::test]
async fn messages_of_other_applications_are_read_unchanged() {
    let installation = Installation::new().await;
    let topic = installation.kafka.options().topic("order.events");
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", servers()).create().expect("a producer");
    let headers = OwnedHeaders::new().insert(Header { key: "none", value: None::<&[u8]> });
    let headers = headers.insert(Header { key: "bytes", value: Some(&[0_u8, 255][..]) });
    let tombstone: BaseRecord<'_, str, [u8]> = BaseRecord::to(&topic).partition(0).key("k").headers(headers);
    producer.send(tombstone).map_err(|(error, _)| error).expect("sent");
    let bare: BaseRecord<'_, str, str> = BaseRecord::to(&topic).partition(0).payload("no key");
    producer.send(bare).map_err(|(error, _)| error).expect("sent");
    let odd = BaseRecord::to(&topic).partition(0).key(&[0xff_u8, b'k'][..]).payload("odd key");
    producer.send(odd).map_err(|(error, _)| error).expect("sent");
    producer.flush(TIMEOUT).expect("delivered");

    let read = polled(&join(&installation).await, 3).await;

    let text =
        |index: usize| (&*read[index].record.key, String::from_utf8_lossy(&read[index].record.value).into_owned());
    assert_eq!(text(0), ("k", String::new()));
    let names: Vec<&str> = read[0].record.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["none", "bytes", "kafka_null-value"]);
    let value = |name| read[0].record.header(name);
    assert_eq!((value("none"), value("bytes")), (Some([].as_slice()), Some([0, 255].as_slice())));
    assert_eq!(text(1), ("", "no key".into()));
    assert_eq!(text(2), ("\u{fffd}k", "odd key".into()));
}

/// As a consumer forwards a message that failed, and as an operator redrives a dead letter.
#[tokio::test]
async fn record_that_is_appended_again_keeps_its_key_its_value_and_its_partition() {
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", servers()).create().expect("a producer");
    let number = 200_i64.to_be_bytes();
    for guarantee in [DeliveryGuarantee::ExactlyOnce, DeliveryGuarantee::AtLeastOnce] {
        let installation = Installation::with(|options| options.guarantee = guarantee).await;
        let topic = installation.kafka.options().topic("order.events");
        let partition = outbox::partition::topic_partition(&number, 2);
        let record = || BaseRecord::<[u8], [u8]>::to(&topic).partition(partition as i32);
        producer.send(record().key(&number).payload(b"value")).map_err(|(error, _)| error).expect("sent");
        producer.send(record().key(&number)).map_err(|(error, _)| error).expect("sent");
        producer.send(record().payload(b"no key")).map_err(|(error, _)| error).expect("sent");
        producer.flush(TIMEOUT).expect("delivered");
        let member = join(&installation).await;
        let read = polled(&member, 3).await;

        let records = read.into_iter().map(|message| message.record).collect();
        installation.append(records).await;

        let again = polled(&member, 3).await;
        let parts = |message: &ConsumerRecord| {
            let bytes = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            let ConsumerRecord { record, .. } = message;
            (bytes(record.key_bytes()), bytes(record.value_bytes()), record.headers.len())
        };
        let with_key: Vec<&ConsumerRecord> =
            again.iter().filter(|message| message.record.key_bytes().is_some()).collect();
        assert!(with_key.iter().all(|message| message.position.partition == partition), "{with_key:?}");
        let (key, value) = (Some(number.to_vec()), Some(b"value".to_vec()));
        assert_eq!(with_key.into_iter().map(parts).collect::<Vec<_>>(), [(key.clone(), value, 1), (key, None, 2)]);
        let without: Vec<_> = again.iter().map(parts).filter(|(key, ..)| key.is_none()).collect();
        assert_eq!(without, [(None, Some(b"no key".to_vec()), 1)]);
    }
}

#[tokio::test]
async fn more_messages_than_the_prefetch_limit_arrive_in_order() {
    let installation = long_sessions(|options| options.prefetch_max = 16).await;
    fill(&installation, 0, 100).await;
    let source = join(&installation).await;

    let (mut all, started) = (Vec::new(), Instant::now());
    while all.len() < 800 {
        let some = source.poll(7, POLL_TIMEOUT).await.expect("polled");
        acknowledged(&source, &positions(&some)).await;
        all.extend(some);
        assert!(started.elapsed() < scaled(TIMEOUT * 2), "{} of 800 came", all.len());
    }

    for partition in 0..2 {
        let of_it = all.iter().filter(|message| message.position.partition == partition);
        let offsets: Vec<u64> = of_it.map(|message| message.position.offset).collect();
        assert!(offsets.is_sorted_by(|a, b| a < b), "{offsets:?}");
    }
}
