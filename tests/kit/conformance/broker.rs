//! The suite of `Broker`: a batch and its watermark stand or fall together, and a fenced lane says nothing more.
//! Reads through `Topics`, which a broker's backend offers too.
use std::sync::Arc;

use ports::broker::{Batch, Position, Published, Record};
use ports::outbox::RowId;
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use ports::source::Delivery;

use super::broker_aborts::*;
use super::given::{Given, HOUR, P0, P1, given};
use crate::backend::Backend;
use crate::murmur::partition_of;

suite! { $ broker:
    a_published_batch_and_its_watermark_are_visible_together,
    a_record_reads_back_exactly_as_it_was_published,
    every_row_is_answered_with_its_place,
    a_keys_records_stand_in_the_order_of_the_batches,
    a_key_stands_where_javas_clients_would_put_it,
    watermarks_belong_to_one_partition_each,
    a_watermark_is_the_highest_token_ever_committed,
    the_sessions_of_one_slot_have_different_names,
    a_newly_opened_lane_ends_the_former_session_of_its_slot,
    lanes_of_other_slots_go_on,
    a_fenced_lane_cannot_publish,
    fencing_twice_is_harmless,
    a_lane_of_a_former_life_can_be_fenced,
    what_was_committed_before_the_fence_stays,
    a_refused_record_aborts_its_batch_and_is_named,
    an_aborted_batch_is_never_visible,
    the_rest_of_a_refused_batch_goes_under_the_same_token,
    a_batch_whose_lease_is_over_is_not_committed,
    batches_of_several_partitions_each_get_their_answer,
    a_refused_neighbour_costs_nobody_a_record,
    appended_records_are_visible_at_once_and_in_order,
    an_append_is_all_or_nothing,
    an_append_leaves_watermarks_alone,
    a_record_of_the_largest_size_goes,
}

impl<B: Backend> Given<'_, B> {
    pub(super) async fn lane(&self, slot: u32) -> ProducerSessionId {
        self.backend.broker().open_session(slot).await.expect("a lane is opened")
    }

    pub(super) fn batch(&self, partition: PartitionNo, token: Token, records: Vec<Record>) -> Batch {
        let rows = (1..).zip(records).map(|(at, record)| (row_of(token, at), record));
        Batch { partition, token, records: rows.collect(), time_left: HOUR }
    }

    pub(super) fn records<const N: usize>(&self, keys_and_values: [(&str, &str); N]) -> Vec<Record> {
        keys_and_values.into_iter().map(|(key, value)| self.make.record(key, value)).collect()
    }

    pub(super) async fn published(&self, lane: &ProducerSessionId, batch: Batch) -> Vec<(RowId, Position)> {
        match self.backend.broker().publish(lane, batch).await {
            Published::Committed(positions) => positions,
            other => panic!("it should have been committed: {other:?}"),
        }
    }

    pub(super) async fn watermark(&self, partition: PartitionNo) -> Option<Token> {
        self.backend.broker().watermark(partition).await.expect("a watermark is told")
    }

    /// Every committed record of the topic, partition by partition.
    pub(super) async fn visible(&self) -> Vec<Delivery> {
        let topics = self.backend.topics();
        let views = topics.list().await.expect("topics are listed");
        let mut all = Vec::new();
        for view in views.iter().filter(|view| view.name == *self.topic()) {
            for (partition, (first, _)) in (0..).zip(&view.partitions) {
                all.extend(topics.read(&view.name, partition, *first, 10_000).await.expect("a partition is read"));
            }
        }
        all
    }

    pub(super) async fn values(&self) -> Vec<String> {
        let mut values: Vec<String> = self.visible().await.iter().map(|delivery| text(&delivery.record)).collect();
        values.sort();
        values
    }

    pub(super) fn too_large(&self, key: &str) -> Record {
        let value = vec![b'x'; self.backend.broker().record_bytes_max() + 1];
        Record { value: value.into(), ..self.make.record(key, "") }
    }
}

pub(super) fn row_of(token: Token, at: RowId) -> RowId {
    RowId::try_from(token).expect("tokens of cases are small") * 1_000 + at
}

fn text(record: &Record) -> String {
    String::from_utf8_lossy(&record.value).into_owned()
}

async fn a_published_batch_and_its_watermark_are_visible_together<B: Backend>(backend: &B) {
    let given = given(backend);
    assert_eq!(given.watermark(P0).await, None);
    let lane = given.lane(0).await;

    given.published(&lane, given.batch(P0, 7, given.records([("a", "1"), ("b", "2")]))).await;

    assert_eq!(given.values().await, ["1", "2"]);
    assert_eq!(given.watermark(P0).await, Some(7));
}

async fn a_record_reads_back_exactly_as_it_was_published<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    let mut record = given.make.record("clé-☕", "");
    record.value = [0_u8, 255, 10, 13, 0].as_slice().into();
    record.headers.push(("ce_type".into(), b"twice".as_slice().into()));
    record.headers.push(("x-empty".into(), Arc::from([])));

    given.published(&lane, given.batch(P0, 1, vec![record.clone()])).await;

    let [delivery] = &given.visible().await[..] else { panic!("one record was published") };
    assert_eq!(delivery.record, record);
}

async fn every_row_is_answered_with_its_place<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    let batch = given.batch(P0, 3, given.records([("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")]));

    let mut positions = given.published(&lane, batch.clone()).await;

    positions.sort();
    assert_eq!(positions.len(), 4);
    let visible = given.visible().await;
    for ((row, position), (wanted, record)) in positions.iter().zip(&batch.records) {
        let found = visible.iter().find(|delivery| delivery.position == *position).expect("it stands there");
        assert_eq!((row, &found.record), (wanted, record));
    }
}

async fn a_keys_records_stand_in_the_order_of_the_batches<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;

    for token in 1..=6 {
        let values = [format!("{token}a"), format!("{token}b"), format!("{token}c")];
        let [a, b, c] = &values;
        given
            .published(&lane, given.batch(P0, token, given.records([("k", a), ("other", "-"), ("k", b), ("k", c)])))
            .await;
    }

    let of_the_key = given.visible().await.into_iter().filter(|delivery| &*delivery.record.key == "k");
    let seen: Vec<(Position, String)> =
        of_the_key.map(|delivery| (delivery.position, text(&delivery.record))).collect();
    assert_eq!(seen.len(), 18);
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{seen:?}");
}

async fn a_key_stands_where_javas_clients_would_put_it<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    let keys = ["21", "foobar", "a-little-bit-long-string", "0198c0de-0000-7000-8000-000000000001", "é"];
    given.published(&lane, given.batch(P0, 1, given.records(keys.map(|key| (key, "published"))))).await;
    backend.broker().append(given.records(keys.map(|key| (key, "appended")))).await.expect("appended");

    let views = backend.topics().list().await.expect("topics are listed");
    let view = views.iter().find(|view| view.name == *given.topic()).expect("the topic is there");
    let partitions = u32::try_from(view.partitions.len()).expect("few");
    let visible = given.visible().await;
    assert_eq!(visible.len(), 10);
    for delivery in visible {
        let key = &delivery.record.key;
        assert_eq!(delivery.position.partition, partition_of(key.as_bytes(), partitions), "{key}");
    }
}

async fn watermarks_belong_to_one_partition_each<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;

    given.published(&lane, given.batch(P0, 5, given.records([("a", "1")]))).await;
    given.published(&lane, given.batch(P1, 9, given.records([("b", "2")]))).await;

    assert_eq!((given.watermark(P0).await, given.watermark(P1).await), (Some(5), Some(9)));
}

async fn a_watermark_is_the_highest_token_ever_committed<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut lane = given.lane(0).await;
    for token in [3, 8, 21] {
        given.published(&lane, given.batch(P0, token, given.records([("a", "1")]))).await;
        backend.broker().fence(&lane).await.expect("fenced");
        assert_eq!(given.watermark(P0).await, Some(token));
        lane = given.lane(0).await;
    }
}

async fn the_sessions_of_one_slot_have_different_names<B: Backend>(backend: &B) {
    let given = given(backend);

    let names = [given.lane(0).await, given.lane(1).await, given.lane(0).await];

    assert_ne!(names[0], names[1]);
    assert_ne!(names[1], names[2]);
}

async fn a_newly_opened_lane_ends_the_former_session_of_its_slot<B: Backend>(backend: &B) {
    let given = given(backend);
    let former = given.lane(0).await;
    given.published(&former, given.batch(P0, 1, given.records([("a", "1")]))).await;
    let present = given.lane(0).await;

    // A session of the same name would be the same session: then the new one may of course publish.
    if former != present {
        let late = backend.broker().publish(&former, given.batch(P0, 2, given.records([("a", "late")]))).await;
        assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    }

    given.published(&present, given.batch(P0, 3, given.records([("a", "3")]))).await;
    assert_eq!(given.values().await, ["1", "3"]);
}

async fn lanes_of_other_slots_go_on<B: Backend>(backend: &B) {
    let given = given(backend);
    let (first, second) = (given.lane(0).await, given.lane(1).await);

    backend.broker().fence(&first).await.expect("fenced");
    given.published(&second, given.batch(P0, 1, given.records([("a", "1")]))).await;
    let first = given.lane(0).await;

    given.published(&second, given.batch(P0, 2, given.records([("a", "2")]))).await;
    given.published(&first, given.batch(P1, 1, given.records([("b", "3")]))).await;
}

async fn a_fenced_lane_cannot_publish<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    given.published(&lane, given.batch(P0, 1, given.records([("a", "1")]))).await;

    backend.broker().fence(&lane).await.expect("fenced");

    for token in [2, 3] {
        let late = backend.broker().publish(&lane, given.batch(P0, token, given.records([("a", "late")]))).await;
        assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    }
    assert_eq!(given.values().await, ["1"]);
    assert_eq!(given.watermark(P0).await, Some(1));
}

async fn fencing_twice_is_harmless<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;

    for _ in 0..3 {
        backend.broker().fence(&lane).await.expect("fenced");
    }

    let next = given.lane(0).await;
    given.published(&next, given.batch(P0, 1, given.records([("a", "1")]))).await;
}

async fn a_lane_of_a_former_life_can_be_fenced<B: Backend>(backend: &B) {
    let given = given(backend);

    backend.broker().fence(&ProducerSessionId("of-an-instance-long-gone-0".into())).await.expect("fenced");

    assert_eq!(given.watermark(P0).await, None);
}

async fn what_was_committed_before_the_fence_stays<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    given.published(&lane, given.batch(P0, 4, given.records([("a", "1")]))).await;

    backend.broker().fence(&lane).await.expect("fenced");

    assert_eq!(given.values().await, ["1"]);
    assert_eq!(given.watermark(P0).await, Some(4));
}

async fn appended_records_are_visible_at_once_and_in_order<B: Backend>(backend: &B) {
    let given = given(backend);
    let records = given.records([("k", "1"), ("k", "2"), ("k", "3")]);

    let positions = backend.broker().append(records.clone()).await.expect("appended");

    let visible = given.visible().await;
    assert_eq!(visible.iter().map(|delivery| &delivery.record).collect::<Vec<_>>(), records.iter().collect::<Vec<_>>());
    assert_eq!(visible.into_iter().map(|delivery| delivery.position).collect::<Vec<_>>(), positions);
}

async fn an_append_leaves_watermarks_alone<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    given.published(&lane, given.batch(P0, 3, given.records([("a", "1")]))).await;

    backend.broker().append(given.records([("a", "2")])).await.expect("appended");

    assert_eq!(given.watermark(P0).await, Some(3));
    assert_eq!(given.values().await, ["1", "2"]);
}

async fn a_record_of_the_largest_size_goes<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    let value = vec![b'x'; backend.broker().record_bytes_max()];
    let record = Record { value: value.clone().into(), ..given.make.record("a", "") };

    given.published(&lane, given.batch(P0, 1, vec![record])).await;

    assert_eq!(given.visible().await[0].record.value.len(), value.len());
}
