//! At least once: no transactions, so a batch may be partly done; keys keep their order, and the other mode's watermarks still count.
use kafka::Guarantee;
use ports::broker::{Broker, Published};

use crate::support::{P0, P1, World, batch, noise};

async fn world() -> World {
    World::with(|options| options.guarantee = Guarantee::AtLeastOnce).await
}

#[tokio::test]
async fn a_batch_is_published_in_order_and_leaves_no_watermark() {
    let world = world().await;
    let lane = world.lane(0).await;
    let values: Vec<String> = (0..50).map(|at| format!("{at:03}")).collect();
    let records = values.iter().flat_map(|value| ["a", "b", "c"].map(|key| world.make.record(key, value))).collect();

    let answer = world.publish(&lane, batch(P0, 1, records)).await;

    assert!(matches!(&answer, Published::Committed(positions) if positions.len() == 150), "{answer:?}");
    let by_key = world.by_key().await;
    assert_eq!(by_key.len(), 3);
    for (key, seen) in by_key {
        assert_eq!(seen, values, "{key}");
    }
    assert_eq!(world.watermark(P0).await, None);
}

#[tokio::test]
async fn a_key_stops_at_its_refused_record_and_the_others_go_on() {
    let world = world().await;
    world.set("max.message.bytes", "3000").await;
    let lane = world.lane(0).await;
    let large = noise(12_000);
    let batch = batch(P0, 1, world.records(&[("k", "1"), ("other", "2"), ("k", &large), ("k", "4"), ("other", "5")]));

    let answer = world.publish(&lane, batch.clone()).await;

    let Published::Partial { mut sent, refused } = answer else { panic!("{answer:?}") };
    sent.sort();
    let rows = |at: &[usize]| at.iter().map(|at| batch.records[*at].0).collect::<Vec<_>>();
    assert_eq!(sent.iter().map(|(row, _)| *row).collect::<Vec<_>>(), rows(&[0, 1, 4]));
    assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), rows(&[2]));
    assert_eq!(world.values().await, ["1", "2", "5"]);
}

#[tokio::test]
async fn an_innocent_record_is_not_refused_with_its_neighbour() {
    let world = world().await;
    world.set("max.message.bytes", "3000").await;
    let lane = world.lane(0).await;
    let large = noise(12_000);
    // Many keys, so that the guilty record travels in company.
    let keys: Vec<String> = (0..20).map(|at| format!("key-{at}")).collect();
    let mut records: Vec<_> = keys.iter().map(|key| world.make.record(key, "fine")).collect();
    records.push(world.make.record("guilty", &large));
    let mut left = batch(P0, 1, records);
    let guilty = left.records[20].0;

    let mut blamed = Vec::new();
    for _ in 0..5 {
        match world.publish(&lane, left.clone()).await {
            Published::Committed(_) => break,
            Published::Partial { sent, refused } => {
                blamed.extend(refused.iter().map(|(row, _)| *row));
                let gone = |row: &i64| blamed.contains(row) || sent.iter().any(|(other, _)| other == row);
                left.records.retain(|(row, _)| !gone(row));
            }
            other => panic!("{other:?}"),
        }
    }

    assert_eq!(blamed, [guilty]);
    assert_eq!(world.values().await.len(), 20);
}

#[tokio::test]
async fn a_session_that_was_fenced_sends_nothing_more() {
    let world = world().await;
    let lane = world.lane(0).await;
    world.committed(&lane, batch(P0, 1, world.records(&[("a", "1")]))).await;

    world.kafka.fence(&lane).await.expect("fenced");

    let late = world.publish(&lane, batch(P0, 2, world.records(&[("a", "late")]))).await;
    assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    assert_eq!(world.values().await, ["1"]);
}

#[tokio::test]
async fn what_the_other_mode_left_open_is_still_resolved() {
    let before = World::new().await;
    let lane = before.lane(0).await;
    before.committed(&lane, batch(P0, 5, before.records(&[("a", "5")]))).await;

    let after = before.fellow(Guarantee::AtLeastOnce).await;
    after.kafka.fence(&lane).await.expect("fenced");

    assert_eq!(after.watermark(P0).await, Some(5));
    let late = before.publish(&lane, batch(P1, 6, before.records(&[("b", "late")]))).await;
    assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    let next = after.lane(0).await;
    after.committed(&next, batch(P0, 6, after.records(&[("a", "6")]))).await;
    assert_eq!(after.by_key().await["a"], ["5", "6"]);
}

#[tokio::test]
async fn records_are_appended_without_transactions_too() {
    let world = world().await;

    let positions = world.kafka.append(world.records(&[("k", "1"), ("k", "2")])).await.expect("appended");

    assert!(positions[0] < positions[1]);
    assert_eq!(world.by_key().await["k"], ["1", "2"]);
}
