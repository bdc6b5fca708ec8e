//! Cases of `GroupMember`: which messages a poll delivers, and in which order.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ports::broker::consumer_groups::ConsumerRecord;

use crate::backend::Backend;
use crate::conformance::consumer_groups::fixture::sorted_values;
use crate::conformance::fixture::backend::{MINUTE, P0, fixture};
use crate::wait::until_answered;

pub(super) async fn messages_are_delivered_in_order_per_partition<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a", "b", "c", "d", "e"], 6).await;

    let all = fixture.poll_all(&fixture.join("g").await, 30).await;

    assert_eq!(all.len(), 30);
    let mut last = BTreeMap::new();
    for ConsumerRecord { position, .. } in &all {
        let before = last.insert(position.partition, position.offset);
        assert!(before.is_none_or(|before| before < position.offset), "{position:?} after {before:?}");
    }
}

pub(super) async fn a_poll_returns_at_most_its_limit<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a", "b", "c"], 4).await;
    let member = fixture.join("g").await;

    let mut seen = Vec::new();
    while seen.len() < 12 {
        let some = fixture.poll(&member, 5).await;
        assert!(some.len() <= 5, "{} messages", some.len());
        seen.extend(some);
    }

    assert_eq!(seen.len(), 12);
}

pub(super) async fn a_message_is_delivered_once<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a", "b"], 3).await;
    let member = fixture.join("g").await;

    let mut seen = sorted_values(&fixture.poll_all(&member, 6).await);

    let total = seen.len();
    seen.dedup();
    assert_eq!((total, seen.len()), (6, 6));
    assert_eq!(fixture.poll_all(&member, 0).await, []);
}

pub(super) async fn an_empty_topic_delivers_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let member = fixture.join("g").await;

    assert_eq!(fixture.poll(&member, 10).await, []);
    member.acknowledge(&[]).await.expect("an empty acknowledgement succeeds");
    member.rewind().await.expect("a rewind without deliveries succeeds");
}

pub(super) async fn one_member_reads_several_topics<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let other: Arc<str> = format!("{}-retry-0", fixture.topic()).into();
    let mut record = fixture.factory.record("a", "retried");
    record.topic = Arc::clone(&other);
    fixture.append_rounds(&["a"], 1).await;
    fixture.append(vec![record]).await;
    backend.settle();

    let topics = [fixture.topic().to_string(), other.to_string()];
    let groups = backend.consumer_groups();
    let member = until_answered(MINUTE, || groups.join("g", &topics, 0, 1)).await.expect("joined");

    assert_eq!(sorted_values(&fixture.poll_all(&member, 2).await), ["a-000", "retried"]);
}

pub(super) async fn members_share_the_partitions<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let members = [fixture.member("g", 0, 2).await, fixture.member("g", 1, 2).await];
    fixture.wait_for_assignment(&members).await;
    fixture.append_rounds(&["a", "b", "c", "d", "e", "f", "g", "h"], 2).await;

    let (mut all, mut of_partition, started) = (Vec::new(), BTreeMap::new(), Instant::now());
    let mut is_first = true;
    while std::mem::take(&mut is_first) || all.len() < 16 && started.elapsed() < fixture.delivery_max() {
        for (index, member) in members.iter().enumerate() {
            for message in fixture.poll_all(member, 0).await {
                let owner = of_partition.entry(message.position.partition).or_insert(index);
                assert_eq!(*owner, index, "a partition has one member");
                all.push(message);
            }
        }
    }

    let mut seen = sorted_values(&all);
    seen.dedup();
    assert_eq!((all.len(), seen.len()), (16, 16));
}

pub(super) async fn a_new_message_reaches_a_member_at_the_end<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let member = fixture.join("g").await;
    assert_eq!(fixture.poll_all(&member, 0).await, []);

    fixture.append_rounds(&["a"], 1).await;

    assert_eq!(sorted_values(&fixture.poll_all(&member, 1).await), ["a-000"]);
}

pub(super) async fn an_aborted_batch_is_never_delivered<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    let mut batch = fixture.batch(P0, 1, fixture.records([("a", "aborted"), ("a", "")]));
    batch.records[1].1.value = vec![0; backend.broker().record_bytes_max() + 1].into();
    fixture.result(&session, batch).await;
    fixture.published(&session, fixture.batch(P0, 2, fixture.records([("a", "committed")]))).await;
    backend.settle();

    assert_eq!(sorted_values(&fixture.poll_all(&fixture.join("g").await, 1).await), ["committed"]);
}
