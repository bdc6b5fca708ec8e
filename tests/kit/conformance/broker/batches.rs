//! Cases of `Broker`: published batches, their positions and their watermarks.

use ports::broker::{Position, Record};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, P1, fixture};
use crate::conformance::fixture::broker::value_text;
use crate::murmur2::topic_partition;

pub(super) async fn a_published_batch_and_its_watermark_are_visible_together<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    assert_eq!(fixture.present_watermark(P0).await, None);
    let session = fixture.session(0).await;

    fixture.published(&session, fixture.batch(P0, 7, fixture.records([("a", "1"), ("b", "2")]))).await;

    assert_eq!(fixture.values().await, ["1", "2"]);
    assert_eq!(fixture.watermark(&session, P0).await, Some(7));
}

pub(super) async fn a_record_reads_back_exactly_as_it_was_published<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    let mut record = fixture.factory.record("clé-☕", "");
    record.value = [0_u8, 255, 10, 13, 0].as_slice().into();
    record.headers.push("ce_type", b"twice");
    record.headers.push("x-empty", b"");

    fixture.published(&session, fixture.batch(P0, 1, vec![record.clone()])).await;

    let [message] = &fixture.visible().await[..] else { panic!("one record was published") };
    assert_eq!(message.record, record);
}

pub(super) async fn every_row_is_returned_with_its_position<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    let batch = fixture.batch(P0, 3, fixture.records([("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")]));

    let mut positions = fixture.published(&session, batch.clone()).await;

    positions.sort();
    assert_eq!(positions.len(), 4);
    let visible = fixture.visible().await;
    for ((row, position), (wanted, record)) in positions.iter().zip(&batch.records) {
        let found =
            visible.iter().find(|message| message.position == *position).expect("the record is at its position");
        assert_eq!((row, &found.record), (wanted, record));
    }
}

pub(super) async fn a_keys_records_are_in_the_order_of_the_batches<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;

    for token in 1..=6 {
        let values = [format!("{token}a"), format!("{token}b"), format!("{token}c")];
        let [a, b, c] = &values;
        fixture
            .published(
                &session,
                fixture.batch(P0, token, fixture.records([("k", a), ("other", "-"), ("k", b), ("k", c)])),
            )
            .await;
    }

    let of_the_key = fixture.visible().await.into_iter().filter(|message| &*message.record.key == "k");
    let seen: Vec<(Position, String)> =
        of_the_key.map(|message| (message.position, value_text(&message.record))).collect();
    assert_eq!(seen.len(), 18);
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{seen:?}");
}

pub(super) async fn a_key_has_the_topic_partition_that_javas_clients_choose<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    let keys = ["21", "foobar", "a-little-bit-long-string", "0198c0de-0000-7000-8000-000000000001", "é"];
    fixture.published(&session, fixture.batch(P0, 1, fixture.records(keys.map(|key| (key, "published"))))).await;
    fixture.append(fixture.records(keys.map(|key| (key, "appended")))).await;

    let views = fixture.views().await;
    let view = views.iter().find(|view| view.name == *fixture.topic()).expect("the topic is listed");
    let partitions = u32::try_from(view.partitions.len()).expect("few");
    let visible = fixture.visible().await;
    assert_eq!(visible.len(), 10);
    for message in visible {
        let key = &message.record.key;
        assert_eq!(message.position.partition, topic_partition(key.as_bytes(), partitions), "{key}");
    }
}

pub(super) async fn each_partition_has_its_own_watermark<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;

    fixture.published(&session, fixture.batch(P0, 5, fixture.records([("a", "1")]))).await;
    fixture.published(&session, fixture.batch(P1, 9, fixture.records([("b", "2")]))).await;

    assert_eq!((fixture.watermark(&session, P0).await, fixture.watermark(&session, P1).await), (Some(5), Some(9)));
}

pub(super) async fn the_watermark_is_the_highest_committed_token<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut session = fixture.session(0).await;
    for token in [3, 8, 21] {
        fixture.published(&session, fixture.batch(P0, token, fixture.records([("a", "1")]))).await;
        fixture.fence(&session).await;
        assert_eq!(fixture.watermark(&session, P0).await, Some(token));
        assert_eq!(fixture.present_watermark(P0).await, Some(token), "a decided token is present for every later read");
        session = fixture.session(0).await;
    }
}

pub(super) async fn a_record_of_the_largest_size_is_published<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    let value = vec![b'x'; backend.broker().record_bytes_max()];
    let record = Record { value: value.clone().into(), ..fixture.factory.record("a", "") };

    fixture.published(&session, fixture.batch(P0, 1, vec![record])).await;

    assert_eq!(fixture.visible().await[0].record.value.len(), value.len());
}
