//! The embedded broker: positions, producer sessions, consumer groups and their waits.
use std::sync::Arc;
use std::time::Duration;

use domain::{Timestamp, WebhookId};
use embedded::{Embedded, Options, WriterMode};
use outbox::partition::topic_partition;
use ports::broker::consumer_groups::{ConsumerGroups, GroupMember};
use ports::broker::topic_log::{OffsetCommitOutcome, TopicLog};
use ports::broker::topics::TopicReader;
use ports::broker::{Batch, Broker, PublishOutcome, Record};
use ports::endpoint::webhooks::{Webhook, WebhookStore};
use ports::partitions::PartitionNo;

use crate::support::*;

/// Longer than the retention of the log.
const EIGHT_DAYS: Duration = Duration::from_secs(8 * 24 * 3600);

fn record(key: &str, value: &str) -> Record {
    Record {
        topic: "t".into(),
        key: key.into(),
        headers: [("h", [0, 255])].into_iter().collect(),
        value: value.as_bytes().into(),
        timestamp: Timestamp::from_millis(5),
    }
}

async fn join(store: &Embedded, member: u32, members: u32) -> Arc<dyn GroupMember> {
    store.join("g", &["t".to_string()], member, members).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn group_continues_after_its_last_acknowledged_record() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let source = join(&store, 0, 1).await;
    let positions = store.append((0..5).map(|n| record("same", &n.to_string())).collect()).await.unwrap();
    assert_eq!(positions[4].partition, topic_partition(b"same", 3));

    let got = source.poll(3, Duration::ZERO).await.unwrap();
    assert_eq!(got.iter().map(|d| d.position.offset).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(got[0].record, record("same", "0"));
    source.acknowledge(&[got[0].position.clone()]).await.unwrap();
    source.rewind().await.unwrap();
    assert_eq!(source.poll(1, Duration::ZERO).await.unwrap()[0].position.offset, 1);

    drop(source);
    let source = join(&store, 0, 1).await;
    assert_eq!(source.poll(10, Duration::ZERO).await.unwrap().len(), 4);
    assert!(source.poll(10, Duration::from_secs(1)).await.unwrap().is_empty());
    clock.advance(Duration::from_secs(3));
    let lag = source.lag().await.unwrap();
    assert_eq!(lag.iter().map(|lag| (lag.messages, lag.age)).max().unwrap(), (4, Duration::from_secs(3)));
}

#[tokio::test]
async fn members_divide_the_partitions_and_wake_on_new_records() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = Embedded::open(options(folder.path(), &clock)).unwrap();
    let (one, two) = (join(&store, 0, 2).await, join(&store, 1, 2).await);
    let both = async {
        let timeout = Duration::from_secs(30);
        tokio::join!(one.poll(100, timeout), two.poll(100, timeout))
    };
    let append = async { store.append((0..40).map(|n| record(&n.to_string(), "x")).collect()).await };

    let ((first, second), _) = tokio::join!(both, append);

    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.len() + second.len(), 40);
    assert!(first.iter().all(|d| d.position.partition % 2 == 0) && second.iter().all(|d| d.position.partition == 1));
}

#[tokio::test(start_paused = true)]
async fn paused_partition_resumes_with_the_same_record() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let source = join(&store, 0, 1).await;
    store.append(vec![record("k", "0"), record("k", "1")]).await.unwrap();
    let got = source.poll(10, Duration::ZERO).await.unwrap();

    source.pause(&got[1].position, Duration::from_secs(5)).await.unwrap();

    assert!(source.poll(10, Duration::from_secs(4)).await.unwrap().is_empty());
    let started = tokio::time::Instant::now();
    assert_eq!(source.poll(10, Duration::from_secs(60)).await.unwrap()[0].position, got[1].position);
    assert!(started.elapsed() <= Duration::from_millis(1100), "{:?}", started.elapsed());
}

#[tokio::test]
async fn poll_of_large_records_is_limited_in_all_partitions_together() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let source = join(&store, 0, 1).await;
    let value = "x".repeat(512 * 1024);
    for number in 0..90 {
        store.append(vec![record(&number.to_string(), &value)]).await.unwrap();
    }

    let (mut received, mut polls) = (0, 0);
    while received < 90 {
        let got = source.poll(1_000, Duration::ZERO).await.unwrap();
        assert!((1..=32).contains(&got.len()), "16 MiB are 32 records, and there are {}", got.len());
        (received, polls) = (received + got.len(), polls + 1);
    }

    assert_eq!((received, polls), (90, 3));
}

#[tokio::test]
async fn new_session_fences_the_former_one_across_restarts() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let batch = |token| Batch {
        partition: PartitionNo(1),
        token,
        records: vec![(1, record("k", "v"))],
        time_left: TTL,
        expected_batches: 0,
    };
    let first = store.open_session(0).await.unwrap();
    assert!(matches!(store.publish(&first, batch(1)).await, PublishOutcome::Committed(_)));
    drop(store);

    let store = inline(folder.path(), &clock);
    let second = store.open_session(0).await.unwrap();
    assert_ne!(first, second);
    assert!(matches!(store.publish(&first, batch(2)).await, PublishOutcome::SessionLost(_)));
    store.fence(&first).await.unwrap();
    assert!(matches!(store.publish(&second, batch(2)).await, PublishOutcome::Committed(_)));
    store.fence(&second).await.unwrap();
    store.fence(&second).await.unwrap();
    assert!(matches!(store.publish(&second, batch(3)).await, PublishOutcome::SessionLost(_)));
}

#[tokio::test]
async fn late_or_too_large_batch_leaves_no_record() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let session = store.open_session(0).await.unwrap();
    let large = "x".repeat(store.record_bytes_max() + 1);
    let batch = |value: &str, time_left| Batch {
        partition: PartitionNo(0),
        token: 1,
        records: vec![(1, record("k", "v")), (2, record("k", value))],
        time_left,
        expected_batches: 0,
    };

    let late = store.publish(&session, batch("v", Duration::ZERO)).await;
    assert!(matches!(late, PublishOutcome::Aborted { reached: false, .. }), "{late:?}");
    let PublishOutcome::RowsRefused(refused) = store.publish(&session, batch(&large, TTL)).await else { panic!() };
    assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2]);
    assert!(store.append(vec![record("k", &large)]).await.is_err());

    assert_eq!(store.watermark(PartitionNo(0), None).await.unwrap(), None);
    let ends: u64 = TopicReader::list(&store).await.unwrap()[0].partitions.iter().map(|kept| kept.end).sum();
    assert_eq!(ends, 0);
}

#[tokio::test]
async fn sweep_keeps_the_records_that_an_active_group_has_not_acknowledged() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let positions = store.append((0..4).map(|n| record("k", &n.to_string())).collect()).await.unwrap();
    clock.advance(EIGHT_DAYS);
    let source = join(&store, 0, 1).await;
    source.acknowledge(&positions[..2]).await.unwrap();

    assert_eq!(store.sweep_log(1).await.unwrap(), 1);
    assert_eq!(store.sweep_log(100).await.unwrap(), 1);
    let topics = TopicReader::list(&store).await.unwrap();
    assert_eq!(topics[0].partitions[positions[0].partition as usize], 2..4);
    let rest = TopicReader::read(&store, "t", positions[0].partition, 0, 10).await.unwrap();
    assert_eq!(rest[0].position.offset, 2);
    assert!(TopicReader::read(&store, "u", 0, 0, 1).await.unwrap_err().to_string().contains("there are: t"));
}

#[tokio::test]
async fn joined_group_that_acknowledges_nothing_keeps_its_records() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let source = join(&store, 0, 1).await;
    store.append((0..4).map(|n| record("k", &n.to_string())).collect()).await.unwrap();

    for _ in 0..2 {
        clock.advance(EIGHT_DAYS);
        assert_eq!(store.sweep_log(100).await.unwrap(), 0);
    }
    assert_eq!(source.poll(10, Duration::ZERO).await.unwrap().len(), 4);

    drop(source);
    clock.advance(EIGHT_DAYS);
    assert_eq!(store.sweep_log(100).await.unwrap(), 4, "a group that has ended does not hold the log back");
}

#[tokio::test(start_paused = true)]
async fn group_without_a_member_keeps_its_records_while_its_offsets_are_kept() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let topics = ["t".to_string(), "missing".to_string()];
    store.begin_at_end("g", &topics[..1]).await.unwrap();
    store.append((0..4).map(|n| record("k", &n.to_string())).collect()).await.unwrap();

    for _ in 0..3 {
        clock.advance(EIGHT_DAYS * 3 / 4);
        tokio::time::advance(EIGHT_DAYS * 3 / 4).await;
        store.keep_offsets("g", &topics).await.unwrap();
        assert_eq!(store.sweep_log(100).await.unwrap(), 0);
    }
    clock.advance(EIGHT_DAYS);
    assert_eq!(store.sweep_log(100).await.unwrap(), 0, "the clock has jumped");

    assert_eq!(join(&store, 0, 1).await.poll(10, Duration::ZERO).await.unwrap().len(), 4);
    assert_eq!(TopicReader::list(&store).await.unwrap().len(), 1, "no topic was created");
}

/// The retention is shorter than the interval at which the service keeps offsets, so none are kept here.
#[tokio::test]
async fn log_keeps_the_unread_records_of_an_inactive_webhook() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let retention = Duration::from_secs(60);
    let options =
        || Options { writer_mode: WriterMode::Inline, log_retention: retention, ..options(folder.path(), &clock) };
    let store = Embedded::open(options()).unwrap();
    let inactive = inactive_webhook();
    let topics = inactive.topics.clone();
    assert!(store.save_webhook(&inactive).await.unwrap());
    let poll = async |store: &Embedded| {
        let member = store.join(&inactive.group(), &topics, 0, 1).await.unwrap();
        member.poll(10, Duration::ZERO).await.unwrap().len()
    };
    store.append((0..4).map(|n| record("k", &n.to_string())).collect()).await.unwrap();
    assert_eq!(poll(&store).await, 4);

    clock.advance(retention * 20);
    assert_eq!(store.sweep_log(100).await.unwrap(), 0);
    store.close().await.unwrap();
    clock.advance(retention * 20);
    let store = Embedded::open(options()).unwrap();
    assert_eq!(store.sweep_log(100).await.unwrap(), 0, "the service was stopped");
    assert_eq!(poll(&store).await, 4);

    assert!(store.delete_webhook(inactive.id).await.unwrap());
    clock.advance(retention * 20);
    assert_eq!(store.sweep_log(100).await.unwrap(), 4, "a deleted webhook does not hold the log back");
}

fn inactive_webhook() -> Webhook {
    let at = Timestamp::from_millis(1_000);
    Webhook {
        id: WebhookId::new_v7(at, [1; 10]),
        version: 1,
        url: "https://example.org".into(),
        topics: vec!["t".into()],
        types: Vec::new(),
        ordered: true,
        active: false,
        disabled_reason: None,
        description: String::new(),
        secrets: Vec::new(),
        created_at: at,
        updated_at: at,
    }
}

#[tokio::test(start_paused = true)]
async fn new_group_never_replaces_a_joined_one() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let source = join(&store, 0, 1).await;
    let positions = store.append((0..4).map(|n| record("k", &n.to_string())).collect()).await.unwrap();
    source.acknowledge(&positions[..2]).await.unwrap();
    for number in 1..1_000 {
        let registered = TopicLog::register(&store, &format!("reader-{number}"), "t").await.unwrap();
        assert_eq!(registered, OffsetCommitOutcome::Committed);
    }
    assert_eq!(TopicLog::register(&store, "new", "t").await.unwrap(), OffsetCommitOutcome::TooManyGroups(1_000));

    clock.advance(EIGHT_DAYS);
    tokio::time::advance(EIGHT_DAYS).await;
    assert_eq!(TopicLog::register(&store, "new", "t").await.unwrap(), OffsetCommitOutcome::Committed);

    drop(source);
    let source = join(&store, 0, 1).await;
    assert_eq!(source.poll(10, Duration::ZERO).await.unwrap()[0].position, positions[2]);
}

#[tokio::test]
async fn acknowledgement_restores_an_offset_that_was_removed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let source = join(&store, 0, 1).await;
    let positions = store.append((0..4).map(|n| record("k", &n.to_string())).collect()).await.unwrap();
    let mut files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "db")).unwrap();
    rusqlite::Connection::open(file).unwrap().execute("DELETE FROM group_offset", []).unwrap();

    source.acknowledge(&positions[..2]).await.unwrap();

    drop(source);
    let source = join(&store, 0, 1).await;
    assert_eq!(source.poll(10, Duration::ZERO).await.unwrap()[0].position, positions[2]);
}

#[tokio::test]
async fn sweep_ends_at_the_first_young_record_of_a_partition() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    store.append(vec![record("k", "old")]).await.unwrap();
    clock.advance(EIGHT_DAYS);
    store.append(vec![record("k", "young")]).await.unwrap();
    clock.turn_back(EIGHT_DAYS);
    store.append(vec![record("k", "written while the clock was wrong")]).await.unwrap();
    clock.advance(EIGHT_DAYS);

    assert_eq!(store.sweep_log(100).await.unwrap(), 1, "the log has no hole behind a young record");

    clock.advance(EIGHT_DAYS);
    assert_eq!(store.sweep_log(100).await.unwrap(), 2);
}
