//! The open batch is in the lease row: a claim writes no row of the outbox, and readers derive what is in flight.
use std::time::Duration;

use ports::FailureType;
use ports::outbox::{BatchOutcome, Disposition, Exclusion, ExclusionOutcome, FencedOutcome, OutboxStore, PoisonPolicy};
use ports::partitions::{AcquireReason, Acquisition, PartitionLeases, PartitionNo};

use crate::relay::fixture::{RelayFixture, batch, claim};

/// Inserts $2 events of different keys into a partition, as creations do, without their orders.
const INSERT: &str = "WITH e AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic,
         region, payload) SELECT gen_random_uuid(), gen_random_uuid(), $1, 1, now(), 0, 0, 'ORDER_CREATED', 'orders', 'eu', 'x'
       FROM generate_series(1, $2) RETURNING id, key, partition)
     INSERT INTO outbox (partition, id, key, bytes) SELECT partition, id, key, 1 FROM e";

const LEASE: Duration = Duration::from_secs(600);

/// What the view shows of a partition's rows: status, owner, token, attempts, whether an attempt is due, failure.
async fn read_rows(fixture: &RelayFixture, partition: i32) -> Vec<String> {
    let text = "SELECT format('%s %s %s %s %s %s', status, lease_owner, lease_version, retry_count, next_attempt_at IS NOT NULL,
           last_failure_reason) FROM outbox_rows WHERE partition = $1 ORDER BY id";
    fixture.client.query(text, &[&partition]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// The versions of all rows of the outbox and of those that wait.
async fn versions(fixture: &RelayFixture) -> String {
    let text = "SELECT string_agg(concat(ctid, ' ', xmin), ', ' ORDER BY id) || (SELECT coalesce(string_agg(concat(ctid, ' ', xmin), ', '
           ORDER BY id), '') FROM outbox_waiting) FROM outbox";
    fixture.client.query_one(text, &[]).await.unwrap().get(0)
}

fn exclusion(row: i64) -> Exclusion {
    let disposition = Disposition::Retry(Duration::from_secs(60));
    Exclusion { row, attempts: 1, disposition, failure_type: FailureType::Network, reason: "away".into() }
}

impl RelayFixture {
    /// Makes the first row of a partition FAILED and due, after two attempts.
    async fn fail_first(&self, partition: i32) {
        self.sql(&format!(
            "UPDATE outbox SET status = 2, attempts = 2, next_attempt_at = now() - interval '1 s'
               WHERE id = (SELECT min(id) FROM outbox WHERE partition = {partition});
             INSERT INTO outbox_waiting SELECT partition, key, id, next_attempt_at, true, false FROM outbox
               WHERE partition = {partition} AND status = 2"
        ))
        .await;
    }

    async fn resolve(&mut self, partition: usize, token: u64, outcome: BatchOutcome) -> u64 {
        match self
            .store
            .resolve(&self.fences[partition], token, outcome, &PoisonPolicy::default())
            .await
            .unwrap()
            .closed
        {
            FencedOutcome::Done { counter, rows } => {
                self.fences[partition].counter = counter;
                rows
            }
            FencedOutcome::Stale => panic!("the batch is open"),
        }
    }
}

#[tokio::test]
async fn claims_write_no_outbox_row_and_a_return_writes_only_due_heads() {
    let mut fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    fixture.create(1, 3).await;
    let before = versions(&fixture).await;

    let alone = fixture.claim_batch(0).await;
    let claims = [1, 2].map(|partition: usize| claim(&fixture.store, &fixture.fences[partition], 100));
    let grouped: Vec<_> =
        fixture.in_one_round(claims).await.into_iter().map(|claimed| batch(claimed.unwrap())).collect();
    for (partition, open) in [(0, &alone), (1, &grouped[0]), (2, &grouped[1])] {
        fixture.fences[partition].counter = open.token;
        assert_eq!(fixture.resolve(partition, open.token, BatchOutcome::NotSent).await, open.rows.len() as u64);
    }

    assert_eq!(versions(&fixture).await, before);
    let again = fixture.claim_batch(1).await;
    assert!(again.rows.len() == 4 && again.rows.iter().all(|row| row.attempt == 1));
}

#[tokio::test]
async fn rows_of_the_open_batch_are_shown_in_flight_with_their_attempt() {
    let mut fixture = RelayFixture::new().await;
    fixture.create(0, 3).await;
    fixture.fail_first(0).await;
    assert_eq!(read_rows(&fixture, 0).await, ["FAILED  0 2 t ", "PENDING  0 0 f ", "PENDING  0 0 f "]);

    let open = batch(claim(&fixture.store, &fixture.fences[0], 2).await.unwrap());
    fixture.fences[0].counter = open.token;

    let token = open.token;
    let in_flight =
        [format!("IN_FLIGHT a {token} 3 f "), format!("IN_FLIGHT a {token} 1 f "), "PENDING  0 0 f ".into()];
    assert_eq!(read_rows(&fixture, 0).await, in_flight);
    let depth = fixture.store.depth().await.unwrap();
    assert_eq!((depth.pending, depth.in_flight, depth.failed, depth.parked), (1, 2, 0, 0));
    fixture.sql("UPDATE outbox_lease SET owner = 'b', epoch = epoch + 1 WHERE partition = 0").await;
    assert_eq!(read_rows(&fixture, 0).await, in_flight, "the claimer stays");
}

#[tokio::test]
async fn excluded_rows_leave_the_batch_and_record_its_claim() {
    let mut fixture = RelayFixture::new().await;
    fixture.create(0, 3).await;
    let open = fixture.claim_batch(0).await;
    let ids: Vec<i64> = open.rows.iter().map(|row| row.id).collect();

    let excluded = fixture.store.exclude(&fixture.fences[0], open.token, &[exclusion(ids[1])]).await.unwrap();

    let ExclusionOutcome::Done { token: rest, rows: 1 } = excluded else { panic!("{excluded:?}") };
    fixture.fences[0].counter = rest;
    let left: Vec<i64> =
        fixture.client.query_one("SELECT open_ids FROM outbox_lease WHERE partition = 0", &[]).await.unwrap().get(0);
    assert_eq!(left, [ids[0], ids[2]]);
    let in_flight = format!("IN_FLIGHT a {rest} 1 f ");
    let failed = format!("FAILED a {} 1 t away", open.token);
    assert_eq!(read_rows(&fixture, 0).await, [in_flight.clone(), failed.clone(), in_flight]);
    assert_eq!(fixture.resolve(0, rest, BatchOutcome::ClaimerDied).await, 2);
    let returned = format!("PENDING a {rest} 1 f ");
    assert_eq!(read_rows(&fixture, 0).await, [returned.clone(), failed, returned], "a death keeps the attempt");
}

/// Exclusions of an earlier version raised the counter and kept the token, under which the rest was published.
#[tokio::test]
async fn batch_with_an_exclusion_of_an_earlier_version_is_resolved_by_its_token() {
    let mut fixture = RelayFixture::new().await;
    fixture.create(0, 3).await;
    let open = fixture.claim_batch(0).await;
    fixture.sql("UPDATE outbox_lease SET counter = counter + 1, open_ids = open_ids[2:] WHERE partition = 0").await;

    let owner = fixture.fences[0].owner.clone();
    let acquired =
        fixture.store.acquire(PartitionNo(0), &owner, AcquireReason::OutcomeUnknown, Some(open.token), LEASE).await;
    let Acquisition::Acquired(acquired) = acquired.unwrap() else { panic!("the owner takes it again") };
    fixture.fences[0] = acquired.fence;

    assert_eq!(acquired.open_batch.map(|open| open.token), Some(open.token));
    assert_eq!(fixture.resolve(0, open.token, BatchOutcome::Published).await, 2);
    let states: Vec<String> = read_rows(&fixture, 0).await.iter().map(|row| row[..4].to_owned()).collect();
    assert_eq!(states, ["PEND", "SENT", "SENT"], "the excluded row is not settled");
}

#[tokio::test]
async fn batch_too_large_for_the_page_of_its_lease_row_loses_no_row() {
    let mut fixture = RelayFixture::new().await;
    fixture.client.execute(INSERT, &[&0, &1_000]).await.unwrap();
    // Rows that died once are claimed in smaller batches.
    let steps = [(1_000, BatchOutcome::NotSent), (1_000, BatchOutcome::ClaimerDied), (125, BatchOutcome::Published)];
    for (rows, outcome) in steps {
        let open = batch(claim(&fixture.store, &fixture.fences[0], 1_000).await.unwrap());
        assert_eq!(open.rows.len(), rows);
        assert_eq!(fixture.store.depth().await.unwrap().in_flight, rows as u64);
        fixture.fences[0].counter = open.token;
        assert_eq!(fixture.resolve(0, open.token, outcome).await, rows as u64);
    }

    let depth = fixture.store.depth().await.unwrap();
    assert_eq!((depth.pending, depth.in_flight, depth.sent), (875, 0, 125));
    let attempts = "SELECT count(*), min(attempts), max(attempts) FROM outbox";
    let row = fixture.client.query_one(attempts, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1), row.get::<_, i32>(2)), (875, 1, 1));
}
