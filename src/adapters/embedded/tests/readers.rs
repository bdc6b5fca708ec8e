//! The topic log for readers outside the service: shares of a read, gaps, waits, and the committed offsets of groups.
use std::time::Duration;

use domain::Timestamp;
use embedded::{Embedded, StoreProbe};
use outbox::OffsetCommitMode::{Forward, Reset};
use outbox::partition::topic_partition;
use ports::broker::topic_log::{NextRecords, OffsetCommitOutcome, ReadLimits, TopicAdmission, TopicLog};
use ports::broker::{Broker, Record};
use ports::probe::Probe;

use crate::support::*;

const ALL: [(u32, u64); 3] = [(0, 0), (1, 0), (2, 0)];
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

fn limits(records: u32, bytes: usize) -> ReadLimits {
    ReadLimits { records, bytes }
}

/// A key of each of the three partitions.
fn key(partition: u32) -> String {
    let mut keys = (0..100).map(|number| number.to_string());
    keys.find(|key| topic_partition(key.as_bytes(), 3) == partition).unwrap()
}

async fn append(store: &Embedded, partition: u32, count: usize) {
    let record = Record {
        topic: "t".into(),
        key: key(partition).into(),
        headers: Default::default(),
        value: b"12345".as_slice().into(),
        timestamp: Timestamp::from_millis(5),
    };
    store.append(vec![record; count]).await.unwrap();
}

/// The positions that a read returns, as (partition, offset); `None` when records were removed.
async fn read(store: &Embedded, from: &[(u32, u64)], limits: ReadLimits) -> Option<Vec<(u32, u64)>> {
    match store.read_next("t", from, limits).await.unwrap() {
        NextRecords::Found(found) => Some(found.iter().map(|d| (d.position.partition, d.position.offset)).collect()),
        NextRecords::Removed => None,
    }
}

#[tokio::test]
async fn a_busy_partition_leaves_the_others_their_share_of_a_read() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    append(&store, 2, 2).await;
    clock.advance(Duration::from_secs(1));
    append(&store, 0, 100).await;

    let shared = read(&store, &ALL, limits(10, 1_000)).await.unwrap();
    assert_eq!(shared[..2], [(2, 0), (2, 1)], "the records that wait longest come first");
    assert_eq!(shared[2..], (0..8).map(|offset| (0, offset)).collect::<Vec<_>>());
    assert_eq!(read(&store, &ALL, limits(1, 1_000)).await.unwrap(), [(2, 0)]);
    assert_eq!(read(&store, &[(0, 98), (1, 0)], limits(10, 1_000)).await.unwrap(), [(0, 98), (0, 99)]);
    assert_eq!(read(&store, &[(0, 0)], limits(10, 1)).await.unwrap(), [(0, 0)], "one record whatever its size");
    assert_eq!(read(&store, &[(0, 0)], limits(10, 11)).await.unwrap().len(), 3, "15 bytes are the first above 11");
    assert_eq!(read(&store, &[(0, 100), (1, 0), (2, 2)], limits(10, 1_000)).await.unwrap(), []);
}

#[tokio::test]
async fn records_deleted_behind_an_offset_are_reported_as_removed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    append(&store, 1, 3).await;
    clock.advance(RETENTION * 2);
    assert_eq!(store.sweep_log(100).await.unwrap(), 3);

    assert_eq!(read(&store, &ALL, limits(10, 1_000)).await, None);
    append(&store, 1, 1).await;
    assert_eq!(read(&store, &[(1, 2)], limits(10, 1_000)).await, None);
    assert_eq!(read(&store, &[(1, 3)], limits(10, 1_000)).await.unwrap(), [(1, 3)]);
    assert_eq!(store.view("t").await.unwrap().unwrap().partitions, [0..0, 3..4, 0..0]);
    assert_eq!(store.view("u").await.unwrap(), None);
}

#[tokio::test]
async fn a_wait_ends_with_a_new_record_of_its_partitions() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    append(&store, 0, 1).await;
    store.wait_for_records("t", &ALL).await.unwrap();

    let waits = store.wait_for_records("t", &[(0, 1), (2, 0)]);
    let appends = async {
        append(&store, 1, 1).await;
        append(&store, 2, 1).await;
    };
    let (arrived, ()) = tokio::join!(waits, appends);

    arrived.unwrap();
    assert!(store.wait_for_records("u", &ALL).await.is_err());
}

#[tokio::test]
async fn commits_are_durable_never_go_back_and_never_beyond_the_end() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    append(&store, 0, 5).await;
    append(&store, 1, 5).await;
    assert_eq!(store.committed("g", "t").await.unwrap(), [None; 3]);

    assert_eq!(store.commit("g", "t", &[(0, 3)], Forward).await.unwrap(), OffsetCommitOutcome::Committed);
    assert_eq!(store.commit("g", "t", &[(0, 1), (1, 4)], Forward).await.unwrap(), OffsetCommitOutcome::Committed);
    let beyond = store.commit("g", "t", &[(1, 5), (0, 6)], Forward).await.unwrap();
    assert_eq!(beyond, OffsetCommitOutcome::BeyondEnd { partition: 0, end: 5 });
    let committed = [Some(3), Some(4), Some(0)];
    assert_eq!(store.committed("g", "t").await.unwrap(), committed);

    drop(store);
    let store = inline(folder.path(), &clock);
    assert_eq!(store.committed("g", "t").await.unwrap(), committed);
    assert_eq!(store.committed("other", "t").await.unwrap(), [None; 3]);
    assert_eq!(store.commit("g", "t", &[(0, 1)], Reset).await.unwrap(), OffsetCommitOutcome::Committed);
    assert_eq!(store.committed("g", "t").await.unwrap()[0], Some(1));
    assert!(store.commit("g", "u", &[(0, 1)], Forward).await.is_err());
}

/// Time passes for the store's clock and for the monotonic one.
async fn pass(clock: &ManualClock, time: Duration) {
    clock.advance(time);
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn jump_of_the_clock_deletes_nothing_that_a_registered_group_has_not_read() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    append(&store, 0, 4).await;
    store.commit("commits", "t", &[(0, 2)], Forward).await.unwrap();
    store.register("reads", "t").await.unwrap();
    store.register("reads", "t").await.unwrap();

    for _ in 0..2 {
        clock.advance(RETENTION * 2);
        assert_eq!(store.sweep_log(100).await.unwrap(), 0);
    }
    store.commit("reads", "t", &[(0, 3)], Forward).await.unwrap();
    assert_eq!(store.sweep_log(100).await.unwrap(), 2, "the other group has read two records");

    pass(&clock, RETENTION / 2).await;
    assert_eq!(store.sweep_log(100).await.unwrap(), 0);
    pass(&clock, RETENTION * 3 / 4).await;
    assert_eq!(store.sweep_log(100).await.unwrap(), 2, "no group was seen within the retention");
}

#[tokio::test(start_paused = true)]
async fn time_without_a_service_deletes_nothing_that_a_group_has_not_read() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    append(&store, 0, 4).await;
    store.commit("g", "t", &[(0, 1)], Forward).await.unwrap();
    pass(&clock, RETENTION / 2).await;
    StoreProbe(store.clone()).check().await.unwrap();
    drop(store);

    pass(&clock, RETENTION * 2).await;
    drop(inline(folder.path(), &clock));
    let store = inline(folder.path(), &clock);
    assert_eq!(store.sweep_log(100).await.unwrap(), 1);
    pass(&clock, RETENTION * 3 / 4).await;
    assert_eq!(store.sweep_log(100).await.unwrap(), 3, "the time before the stop counts, once");
}

#[tokio::test(start_paused = true)]
async fn retention_keeps_the_unread_records_of_a_registered_group() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    append(&store, 0, 4).await;
    store.register("g", "t").await.unwrap();
    store.commit("g", "t", &[(0, 3)], Forward).await.unwrap();

    pass(&clock, RETENTION / 2).await;
    store.register("g", "t").await.unwrap();
    pass(&clock, RETENTION * 3 / 4).await;
    assert_eq!(store.sweep_log(100).await.unwrap(), 3, "the group was seen within the retention");
    pass(&clock, RETENTION / 2).await;
    assert_eq!(store.sweep_log(100).await.unwrap(), 1, "the group was not seen any more");

    store.register("new", "t").await.unwrap();
    assert_eq!(store.committed("new", "t").await.unwrap(), [Some(4), Some(0), Some(0)]);
    assert_eq!(read(&store, &[(0, 3)], limits(1, 1)).await, None, "the loss is reported to the late group");
}

#[tokio::test]
async fn the_number_of_topics_that_clients_add_is_bounded() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let names: Vec<String> = (0..1_001).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let too_many = TopicAdmission::TooManyTopics(1_000);

    assert_eq!(store.admit_topics(&names).await.unwrap(), too_many);
    assert_eq!(store.admit_topics(&names[..999]).await.unwrap(), TopicAdmission::Admitted, "all or none");
    assert_eq!(store.topic_names().await.unwrap(), Vec::<String>::new(), "each is created with its first record");
    store.create_topics(&names[..2]).await.unwrap();
    assert_eq!(store.admit_topics(&names[998..1_000]).await.unwrap(), TopicAdmission::Admitted);
    assert_eq!(store.admit_topics(&names[999..]).await.unwrap(), too_many);
    assert_eq!(store.admit_topics(&names[..1_000]).await.unwrap(), TopicAdmission::Admitted, "they exist");

    // The relay and the configuration create theirs nevertheless.
    store.create_topics(&["t1000"]).await.unwrap();
    assert_eq!(store.admit_topics(&names).await.unwrap(), TopicAdmission::Admitted);
}

#[tokio::test]
async fn released_topics_are_removed_unless_another_request_has_admitted_them() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let names: Vec<String> = (0..1_001).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let too_many = TopicAdmission::TooManyTopics(1_000);
    store.create_topics(&names[..1]).await.unwrap();
    assert_eq!(store.admit_topics(&names[..1_000]).await.unwrap(), TopicAdmission::Admitted);
    assert_eq!(
        store.admit_topics(&names[1..3]).await.unwrap(),
        TopicAdmission::Admitted,
        "a second request for two of them"
    );

    store.release_topics(&names[..1_000]);
    assert_eq!(
        store.admit_topics(&names[3..]).await.unwrap(),
        too_many,
        "two have the admission of the second request"
    );
    assert_eq!(store.admit_topics(&names[3..1_000]).await.unwrap(), TopicAdmission::Admitted);

    store.release_topics(&names[1..3]);
    assert_eq!(store.admit_topics(&names[1_000..]).await.unwrap(), TopicAdmission::Admitted);
    assert_eq!(store.admit_topics(&names[1..3]).await.unwrap(), too_many);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_groups_is_bounded_and_abandoned_ones_are_removed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    append(&store, 0, 1).await;
    for number in 0..1_000 {
        assert_eq!(store.register(&format!("g{number}"), "t").await.unwrap(), OffsetCommitOutcome::Committed);
    }

    assert_eq!(store.register("one-more", "t").await.unwrap(), OffsetCommitOutcome::TooManyGroups(1_000));
    assert_eq!(store.commit("g7", "t", &[(0, 1)], Forward).await.unwrap(), OffsetCommitOutcome::Committed);
    pass(&clock, RETENTION / 2).await;
    store.register("g7", "t").await.unwrap();
    pass(&clock, RETENTION * 3 / 4).await;

    assert_eq!(store.register("one-more", "t").await.unwrap(), OffsetCommitOutcome::Committed);
    assert_eq!(store.committed("g7", "t").await.unwrap()[0], Some(1));
    assert_eq!(store.committed("g8", "t").await.unwrap(), [None; 3]);
}
