//! The suite of `Topics`: a look that changes nothing.
use std::sync::Arc;

use ports::topics::TopicView;

use super::given::{Given, P0, given};
use crate::backend::Backend;

suite! { $ topics:
    topics_are_listed_by_name,
    a_topic_shows_how_far_each_partition_goes,
    a_partition_is_read_from_an_offset_and_at_most_so_much,
    reading_beyond_the_end_shows_nothing,
    reading_begins_at_the_first_that_is_kept,
    reading_acknowledges_nothing,
}

async fn view<B: Backend>(given: &Given<'_, B>) -> TopicView {
    let views = given.backend.topics().list().await.expect("topics are listed");
    views.into_iter().find(|view| view.name == *given.topic()).expect("the topic is listed")
}

/// So many records of one key: returns the partition they stand in.
async fn filled<B: Backend>(given: &Given<'_, B>, count: usize) -> u32 {
    let records = (0..count).map(|at| given.make.record("k", &at.to_string())).collect();
    let positions = given.backend.broker().append(records).await.expect("appended");
    positions[0].partition
}

async fn topics_are_listed_by_name<B: Backend>(backend: &B) {
    let given = given(backend);
    for suffix in ["-dlt", "", "-retry-0"] {
        let mut record = given.make.record("k", "1");
        record.topic = Arc::from(format!("{}{suffix}", given.topic()));
        backend.broker().append(vec![record]).await.expect("appended");
    }

    let names: Vec<String> =
        backend.topics().list().await.expect("topics are listed").into_iter().map(|view| view.name).collect();

    assert!(names.is_sorted(), "{names:?}");
    for suffix in ["", "-dlt", "-retry-0"] {
        assert!(names.contains(&format!("{}{suffix}", given.topic())), "{names:?}");
    }
}

async fn a_topic_shows_how_far_each_partition_goes<B: Backend>(backend: &B) {
    let given = given(backend);
    let partition = filled(&given, 3).await;

    for (at, (first, next)) in (0..).zip(view(&given).await.partitions) {
        let kept = next - first;
        // A transactional broker's markers take offsets too.
        assert!(if at == partition { kept >= 3 } else { kept == 0 }, "partition {at}: {first}..{next}");
    }
}

async fn a_partition_is_read_from_an_offset_and_at_most_so_much<B: Backend>(backend: &B) {
    let given = given(backend);
    let partition = filled(&given, 5).await;
    let read = async |offset, limit| {
        let read = backend.topics().read(&given.topic(), partition, offset, limit).await.expect("read");
        read.into_iter().map(|delivery| (delivery.position.offset, delivery.record.value)).collect::<Vec<_>>()
    };

    let all = read(0, 100).await;
    assert_eq!(all.iter().map(|(_, value)| &**value).collect::<Vec<_>>(), [b"0", b"1", b"2", b"3", b"4"]);
    assert_eq!(read(0, 2).await, all[..2]);
    assert_eq!(read(all[3].0, 100).await, all[3..]);
}

async fn reading_beyond_the_end_shows_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    let partition = filled(&given, 2).await;
    let (_, next) = view(&given).await.partitions[partition as usize];

    assert_eq!(backend.topics().read(&given.topic(), partition, next, 10).await.expect("read"), []);
    assert_eq!(backend.topics().read(&given.topic(), partition, next + 1_000, 10).await.expect("read"), []);
}

async fn reading_begins_at_the_first_that_is_kept<B: Backend>(backend: &B) {
    let given = given(backend);
    let partition = filled(&given, 2).await;
    let (first, _) = view(&given).await.partitions[partition as usize];

    let read = backend.topics().read(&given.topic(), partition, 0, 1).await.expect("read");

    assert!(read[0].position.offset >= first);
}

async fn reading_acknowledges_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    given.published(&lane, given.batch(P0, 1, given.records([("k", "1"), ("k", "2")]))).await;
    let source = backend.sources().join("g", &[given.topic().to_string()], 0, 1).await.expect("joined");

    given.visible().await;

    let polled = source.poll(10, backend.patience()).await.expect("polled");
    given.visible().await;
    assert_eq!(polled.len(), 2);
    assert_eq!(source.lag().await.expect("told").iter().map(|lag| lag.messages).sum::<u64>(), 2);
}
