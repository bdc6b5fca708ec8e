//! The suite of `TopicReader`: reads of topics that acknowledge and change nothing.
use std::sync::Arc;

use ports::broker::topics::TopicView;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, MINUTE, P0, fixture};
use crate::wait::until_answered;

suite! { $ topics:
    topics_are_listed_by_name,
    a_topic_shows_the_offsets_of_each_partition,
    a_partition_is_read_from_an_offset_up_to_a_limit,
    reading_beyond_the_end_returns_nothing,
    reading_begins_at_the_first_retained_record,
    reading_acknowledges_nothing,
    the_offsets_of_a_group_are_where_it_continues,
}

async fn view<B: Backend>(fixture: &Fixture<'_, B>) -> TopicView {
    let views = fixture.views().await;
    views.into_iter().find(|view| view.name == *fixture.topic()).expect("the topic is listed")
}

/// Appends `count` records of one key and returns their topic partition.
async fn append_records<B: Backend>(fixture: &Fixture<'_, B>, count: usize) -> u32 {
    let records = (0..count).map(|at| fixture.factory.record("k", &at.to_string())).collect();
    let positions = fixture.append(records).await;
    fixture.backend.settle();
    positions[0].partition
}

async fn topics_are_listed_by_name<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    for suffix in ["-dlt", "", "-retry-0"] {
        let mut record = fixture.factory.record("k", "1");
        record.topic = Arc::from(format!("{}{suffix}", fixture.topic()));
        fixture.append(vec![record]).await;
    }

    let names: Vec<String> = fixture.views().await.into_iter().map(|view| view.name).collect();

    assert!(names.is_sorted(), "{names:?}");
    for suffix in ["", "-dlt", "-retry-0"] {
        assert!(names.contains(&format!("{}{suffix}", fixture.topic())), "{names:?}");
    }
}

async fn a_topic_shows_the_offsets_of_each_partition<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let partition = append_records(&fixture, 3).await;

    for (at, kept) in (0..).zip(view(&fixture).await.partitions) {
        let count = kept.end - kept.start;
        // The markers of a transactional broker use offsets too.
        assert!(if at == partition { count >= 3 } else { count == 0 }, "partition {at}: {kept:?}");
    }
}

async fn a_partition_is_read_from_an_offset_up_to_a_limit<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let partition = append_records(&fixture, 5).await;
    let read = async |offset, limit| {
        let read = fixture.read(partition, offset, limit).await;
        read.into_iter().map(|message| (message.position.offset, message.record.value)).collect::<Vec<_>>()
    };

    let all = read(0, 100).await;
    assert_eq!(all.iter().map(|(_, value)| &**value).collect::<Vec<_>>(), [b"0", b"1", b"2", b"3", b"4"]);
    assert_eq!(read(0, 2).await, all[..2]);
    assert_eq!(read(all[3].0, 100).await, all[3..]);
}

async fn reading_beyond_the_end_returns_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let partition = append_records(&fixture, 2).await;
    let next = view(&fixture).await.partitions[partition as usize].end;

    assert_eq!(fixture.read(partition, next, 10).await, []);
    assert_eq!(fixture.read(partition, next + 1_000, 10).await, []);
}

async fn reading_begins_at_the_first_retained_record<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let partition = append_records(&fixture, 2).await;
    let first = view(&fixture).await.partitions[partition as usize].start;

    let read = fixture.read(partition, 0, 1).await;

    assert!(read[0].position.offset >= first);
}

async fn reading_acknowledges_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    fixture.published(&session, fixture.batch(P0, 1, fixture.records([("k", "1"), ("k", "2")]))).await;
    let member = fixture.join("g").await;

    fixture.visible().await;

    let polled = fixture.poll_all(&member, 2).await;
    fixture.visible().await;
    assert_eq!(polled.len(), 2);
    assert_eq!(fixture.lag_when(&member, 2).await, 2);
}

async fn the_offsets_of_a_group_are_where_it_continues<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let partition = append_records(&fixture, 3).await as usize;
    let (topics, topic) = (backend.topics(), fixture.topic());
    let offsets = async || {
        let read = || topics.group_offsets("g", &topic);
        until_answered(MINUTE, read).await.expect("the offsets are read")
    };
    assert_eq!(offsets().await.get(partition), Some(&None));
    let member = fixture.join("g").await;
    let polled = fixture.poll_all(&member, 3).await;

    fixture.acknowledge(&member, &[polled[1].position.clone()]).await;

    let after = offsets().await;
    assert_eq!(after[partition], Some(polled[1].position.offset + 1));
    assert!(
        (0..).zip(&after).all(|(at, offset)| at == partition || offset.is_none_or(|offset| offset == 0)),
        "{after:?}"
    );
}
