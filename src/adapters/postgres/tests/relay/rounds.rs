//! Claims and settlements of several partitions in one transaction: each gets its own result, and the failure of one does not affect the others.
mod locked_leases;

use std::time::Duration;

use kit::wait::scaled;
use ports::Error;
use ports::broker::Position;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, FencedOutcome, OutboxStore, RowStatus, SettledClaim, Settlement};
use ports::partitions::{LeaseFence, ProducerSessionId};
use postgres::Options;

use crate::relay::fixture::{LEASE, RelayFixture, batch, claim, settlement};

#[tokio::test]
async fn claims_of_several_partitions_share_a_transaction() {
    let fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    fixture.create(1, 2).await;

    let claimed = fixture.in_one_round(fixture.fences.iter().map(|fence| claim(&fixture.store, fence, 100))).await;

    let batches: Vec<_> = claimed.into_iter().map(|claimed| batch(claimed.unwrap())).collect();
    assert_eq!(batches.iter().map(|batch| batch.rows.len()).collect::<Vec<_>>(), [1, 3, 1, 1]);
    for (batch, fence) in batches.iter().zip(&fixture.fences) {
        assert_eq!((batch.token, batch.more), (fence.next_token(), false));
        assert!(batch.rows.is_sorted_by_key(|row| row.id));
        assert!(batch.rows.iter().all(|row| row.attempt == 1 && row.payload.is_some()));
        assert!(batch.rows.iter().all(|row| row.contract_checksum == Some(0x8000_0001)), "{batch:?}");
        assert!(batch.rows.iter().all(|row| batch.store_time >= row.created_at), "{batch:?}");
        assert!(batch.store_time.since(batch.rows[0].created_at) < scaled(Duration::from_secs(30)), "{batch:?}");
    }
    assert_eq!(fixture.statuses().await, [RowStatus::InFlight; 6]);
    assert_eq!(fixture.writers(&[0, 1, 2, 3]).await, 1);
}

#[tokio::test]
async fn settlements_and_claims_share_a_transaction() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let (first, second) = (fixture.claim_batch(0).await, fixture.claim_batch(1).await);
    assert_eq!(first.rows[0].contract_checksum, Some(0x8000_0001), "as the factory wrote it");

    enum Either {
        Claimed(ClaimOutcome),
        Settled(FencedOutcome),
    }
    let settle = async |partition: usize, batch| {
        let settled = fixture.store.settle(settlement(&fixture.fences[partition], batch)).await;
        Either::Settled(settled.unwrap())
    };
    let take = async |partition: usize| Either::Claimed(fixture.claim(partition).await);
    let calls: Vec<std::pin::Pin<Box<dyn Future<Output = Either>>>> =
        vec![Box::pin(settle(0, &first)), Box::pin(take(2)), Box::pin(settle(1, &second)), Box::pin(take(3))];
    let results = fixture.in_one_round(calls).await;

    let mut batches = 0;
    for result in results {
        match result {
            Either::Claimed(claimed) => batches += batch(claimed).rows.len(),
            Either::Settled(FencedOutcome::Done { rows, .. }) => assert_eq!(rows, 1),
            Either::Settled(FencedOutcome::Stale) => panic!("the batch is open"),
        }
    }
    assert_eq!((batches, fixture.writers(&[0, 1, 2, 3]).await), (2, 1));
    assert_eq!(fixture.store.depth().await.unwrap().sent, 2);
}

#[tokio::test]
async fn partitions_settle_and_claim_in_one_transaction() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let open = [fixture.claim_batch(0).await, fixture.claim_batch(1).await, fixture.claim_batch(2).await];
    fixture.create(0, 2).await;
    fixture.create(2, 1).await;
    fixture.sql("UPDATE outbox_lease SET epoch = epoch + 1 WHERE partition = 2").await;

    let calls = open.iter().zip(&fixture.fences).map(async |(open, fence)| {
        let session = ProducerSessionId("session".into());
        let claim = Claim { fence: fence.clone(), session, limit: 100, kind: ClaimKind::Ordinary };
        fixture.store.settle_and_claim(settlement(fence, open), claim).await.unwrap()
    });
    let results = fixture.in_one_round(calls).await;

    let [first, second, third]: [SettledClaim; 3] = results.try_into().unwrap();
    let done = |partition: usize| FencedOutcome::Done { counter: open[partition].token + 1, rows: 1 };
    assert_eq!((first.settled, second.settled, third.settled), (done(0), done(1), FencedOutcome::Stale));
    let next = batch(first.claimed.unwrap());
    assert_eq!((next.token, next.rows.len()), (open[0].token + 2, 2));
    assert!(matches!(second.claimed, Ok(ClaimOutcome::NoneDue { next_due: None, suspect_due: false })), "{second:?}");
    assert!(matches!(third.claimed, Ok(ClaimOutcome::Fenced)), "another owner's partition: {third:?}");
    assert_eq!(fixture.writers(&[0, 1]).await, 1);
    assert_eq!(fixture.store.depth().await.unwrap().sent, 2);
}

#[tokio::test]
async fn stale_and_expired_leases_fail_no_neighbour() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    fixture.sql("UPDATE outbox_lease SET expires_at = clock_timestamp() - interval '1 s' WHERE partition = 1").await;
    fixture.fences[2].epoch -= 1;

    let claimed = fixture.in_one_round(fixture.fences.iter().map(|fence| claim(&fixture.store, fence, 100))).await;

    let claimed: Vec<_> = claimed.into_iter().map(Result::unwrap).collect();
    assert!(
        matches!(
            claimed[..],
            [ClaimOutcome::Batch(_), ClaimOutcome::Fenced, ClaimOutcome::Fenced, ClaimOutcome::Batch(_)]
        ),
        "{claimed:?}"
    );
    assert_eq!(fixture.writers(&[0, 3]).await, 1);
    use RowStatus::{InFlight, Pending};
    assert_eq!(fixture.statuses().await, [InFlight, Pending, Pending, InFlight]);
}

#[tokio::test]
async fn claim_of_a_partition_with_an_open_batch_is_fenced_in_a_round() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let open = fixture.claim_batch(0).await;
    fixture.create(0, 1).await;

    let claimed =
        fixture.in_one_round(fixture.fences.iter().take(2).map(|fence| claim(&fixture.store, fence, 100))).await;

    assert!(matches!(claimed[..], [Ok(ClaimOutcome::Fenced), Ok(ClaimOutcome::Batch(_))]), "{claimed:?}");
    let settled = fixture.store.settle(settlement(&fixture.fences[0], &open)).await.unwrap();
    assert!(matches!(settled, FencedOutcome::Done { rows: 1, .. }), "the first batch is still open: {settled:?}");
}

#[tokio::test]
async fn an_empty_claim_returns_the_time_of_the_next_due_row() {
    let mut fixture = RelayFixture::new().await;
    fixture.create(0, 1).await;
    for partition in [1, 2] {
        fixture.create(partition, 1).await;
        fixture
            .sql(&format!(
                "UPDATE outbox SET status = 2 WHERE partition = {partition}; INSERT INTO outbox_waiting
                 SELECT partition, key, id, now() + interval '1 hour', true, false FROM outbox WHERE partition = {partition}"
            ))
            .await;
    }
    fixture.sql("UPDATE outbox_waiting SET suspect = true, due = now() - interval '1 s' WHERE partition = 2").await;
    fixture.fences[3].counter += 1;

    let claimed = fixture.in_one_round(fixture.fences.iter().map(|fence| claim(&fixture.store, fence, 100))).await;

    let claimed: Vec<_> = claimed.into_iter().map(Result::unwrap).collect();
    let ClaimOutcome::NoneDue { next_due: Some(next_due), suspect_due: false } = claimed[1] else {
        panic!("{claimed:?}")
    };
    assert!(next_due > Duration::from_secs(3_000) && next_due <= Duration::from_secs(3_600));
    assert!(
        matches!(
            claimed[..],
            [
                ClaimOutcome::Batch(_),
                _,
                ClaimOutcome::NoneDue { next_due: None, suspect_due: true },
                ClaimOutcome::Fenced
            ]
        ),
        "{claimed:?}"
    );
}

#[tokio::test]
async fn request_that_the_server_refuses_fails_no_neighbour() {
    let fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let request = |partition: usize, session: &str| Claim {
        fence: fixture.fences[partition].clone(),
        session: ProducerSessionId(session.into()),
        limit: 10,
        kind: ClaimKind::Ordinary,
    };

    let sessions = ["s", "no\0text", "s", "s"];
    let claims =
        sessions.iter().enumerate().map(|(partition, session)| fixture.store.claim(request(partition, session)));
    let claimed = fixture.in_one_round(claims).await;

    assert!(matches!(claimed[1], Err(Error::Rejected(_))), "{:?}", claimed[1]);
    assert_eq!(claimed.into_iter().filter_map(Result::ok).map(batch).count(), 3);
}

#[tokio::test]
async fn worker_without_the_lease_changes_nothing_in_a_round() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let open = [fixture.claim_batch(0).await, fixture.claim_batch(1).await, fixture.claim_batch(2).await];
    let mut zombie = fixture.fences[1].clone();
    fixture.acquire(1, LEASE).await;
    let settle = |fence: &LeaseFence, batch| fixture.store.settle(settlement(fence, batch));

    let settlements =
        [settle(&fixture.fences[0], &open[0]), settle(&zombie, &open[1]), settle(&fixture.fences[2], &open[2])];
    let settled: Vec<_> = fixture.in_one_round(settlements).await.into_iter().map(Result::unwrap).collect();

    assert!(matches!(settled[..], [FencedOutcome::Done { .. }, FencedOutcome::Stale, FencedOutcome::Done { .. }]));
    assert_eq!(fixture.statuses().await.iter().filter(|status| **status == RowStatus::InFlight).count(), 1);

    // Two claims of one partition never share a statement; the second finds another counter.
    zombie = fixture.fences[3].clone();
    let both =
        fixture.in_one_round([claim(&fixture.store, &zombie, 10), claim(&fixture.store, &fixture.fences[3], 10)]).await;
    assert!(matches!(both[..], [Ok(ClaimOutcome::Batch(_)), Ok(ClaimOutcome::Fenced)]), "{both:?}");
}

#[tokio::test]
async fn repeated_settlement_in_a_round_is_done_with_no_rows() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let (first, second) = (fixture.claim_batch(0).await, fixture.claim_batch(1).await);
    let repeated = settlement(&fixture.fences[0], &first);
    fixture.settle(0, &first).await;
    let other = settlement(&fixture.fences[1], &second);

    let settled = fixture.in_one_round([fixture.store.settle(repeated), fixture.store.settle(other)]).await;

    let counter = fixture.fences[0].counter;
    assert_eq!(settled[0].clone().unwrap(), FencedOutcome::Done { counter, rows: 0 });
    assert!(matches!(settled[1], Ok(FencedOutcome::Done { rows: 1, .. })));
}

#[tokio::test]
async fn archive_of_a_round_equals_that_of_single_settlements() {
    let mut fixture = RelayFixture::new().await;
    // Per partition, of the batch's ids, those with a position and those that went to a fallback.
    type Shape = fn(&[i64]) -> (Vec<i64>, Vec<i64>);
    let shapes: [Shape; 4] = [
        |ids| (ids.to_vec(), Vec::new()),
        |ids| (ids[1..].to_vec(), Vec::new()),
        |ids| (ids.to_vec(), vec![ids[0], ids[2]]),
        |ids| (vec![ids[2], 4_711, ids[0]], vec![ids[1]]),
    ];
    let mut archives = Vec::new();
    for grouped in [false, true] {
        let mut settlements = Vec::new();
        for (partition, shape) in shapes.iter().enumerate() {
            fixture.create(partition as u32, 3).await;
            if partition > 1 {
                let failed = "UPDATE outbox SET attempts = 1, deaths = 1, failure_type = 'NETWORK' WHERE id = (SELECT max(id) FROM outbox)";
                fixture.sql(failed).await;
            }
            let open = fixture.claim_batch(partition).await;
            let (known, by_fallback) = shape(&open.rows.iter().map(|row| row.id).collect::<Vec<_>>());
            let position = |(index, id): (usize, &i64)| {
                (
                    *id,
                    Position { topic: format!("t{index}").into(), partition: index as u32, offset: index as u64 * 10 },
                )
            };
            let positions = known.iter().enumerate().map(position).collect();
            let fence = fixture.fences[partition].clone();
            settlements.push(Settlement { fence, token: open.token, positions, by_fallback });
        }
        let calls = settlements.into_iter().map(|settlement| fixture.store.settle(settlement));
        let settled = if grouped {
            fixture.in_one_round(calls).await
        } else {
            let mut settled = Vec::new();
            for call in calls {
                settled.push(call.await);
            }
            settled
        };
        for (partition, settled) in settled.into_iter().enumerate() {
            let FencedOutcome::Done { counter, rows: 3 } = settled.unwrap() else { panic!("the batch is open") };
            fixture.fences[partition].counter = counter;
        }
        assert_eq!(fixture.writers(&[0, 1, 2, 3]).await, if grouped { 1 } else { 4 });
        let text = "WITH gone AS (DELETE FROM outbox_archive RETURNING *)
            SELECT string_agg(format('%s %s %s %s %s %s %s %s %s %s %s %s', partition, owner, events, last_id - first_id, topic_partitions,
              topic_offsets, topics, by_fallback, attempts, deaths, failure_types, reasons), '; ' ORDER BY partition) FROM gone";
        let row = fixture.client.query_one(text, &[]).await.unwrap();
        archives.push(row.get::<_, String>(0));
    }
    assert_eq!(archives[0], archives[1]);
    for shown in ["{NULL,0,1}", "{t,f,t}", "{1,1,2}", "{NULL,NULL,NETWORK}"] {
        assert!(archives[0].contains(shown), "{shown}: {}", archives[0]);
    }
}

#[tokio::test]
async fn claims_share_the_rows_of_a_round_and_the_rest_follows_alone() {
    let mut fixture = RelayFixture::with(|options| Options { relay_group_rows_max: 8, ..options }).await;
    for partition in [0, 1] {
        fixture.create(partition, 7).await;
    }

    let claims = [0, 1].map(|partition: usize| claim(&fixture.store, &fixture.fences[partition], 100));
    for (partition, claimed) in fixture.in_one_round(claims).await.into_iter().enumerate() {
        let claimed = batch(claimed.unwrap());
        assert_eq!((claimed.rows.len(), claimed.more), (4, true), "half of the round's rows");
        fixture.fences[partition].counter = claimed.token;
        fixture.settle(partition, &claimed).await;
    }
    for partition in [0, 1] {
        let rest = fixture.claim_batch(partition).await;
        assert_eq!((rest.rows.len(), rest.more), (3, false));
    }
}
