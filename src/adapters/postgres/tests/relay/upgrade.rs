//! Batches that an earlier version opened: their rows are marked in the outbox, and the lease row does not name them.
use ports::operators::{OutboxOperators, RowFilter, RowView};
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, ClaimOutcome, FencedOutcome, OutboxStore, PoisonPolicy, RowStatus,
};
use ports::partitions::{LeaseFence, ProducerSessionId};
use postgres::{Options, Postgres, migrate};
use tokio_postgres::Client;

use crate::relay::fixture::{LEASE, acquire, batch, claim, settle};
use crate::relay::migration_files::database_of_version;
use crate::support::Database;

/// The last migration of the version that records rows.
const EARLIER: usize = 2;

/// Five rows of partition 0: the second is a FAILED head that is due.
const ROWS: &str = "WITH e AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic,
         region, payload) SELECT gen_random_uuid(), gen_random_uuid(), 0, 1, now(), 0, 0, 'ORDER_CREATED', 'orders', 'eu', 'x'
       FROM generate_series(1, 5) RETURNING id, key, partition)
     INSERT INTO outbox (partition, id, key, bytes) SELECT partition, id, key, 1 FROM e;
     UPDATE outbox SET status = 2, attempts = 3, reason = 'away', failure_type = 'NETWORK', next_attempt_at = now() - interval '1 s' WHERE id = 2;
     INSERT INTO outbox_waiting SELECT partition, key, id, next_attempt_at, true, false FROM outbox WHERE id = 2";

/// The claim of the first four rows as the earlier version does it; the claimer's lease has expired.
const CLAIM: &str = "UPDATE outbox SET status = 1, lease_owner = 'old', lease_version = 7, attempts = attempts + 1, next_attempt_at = NULL
       WHERE id <= 4;
     UPDATE outbox_lease SET owner = 'old', epoch = 3, expires_at = now(), counter = 7, in_flight = 7, lane = 'session', claim_epoch = 3,
       first_id = 1, last_id = 4 WHERE partition = 0";

/// The close of a batch as the earlier version does it, after it found no row marked.
const CLOSE: &str = "UPDATE outbox_lease SET counter = counter + 1, in_flight = NULL, lane = NULL, claim_epoch = NULL, died = false, trial = false,
       first_id = NULL, last_id = NULL, closed = in_flight WHERE partition = 0";

/// A database of the earlier version with an open batch.
async fn earlier_version() -> (Database, Client) {
    let database = database_of_version(EARLIER).await;
    let client = database.client().await;
    client.batch_execute(ROWS).await.unwrap();
    client.batch_execute(CLAIM).await.unwrap();
    (database, client)
}

async fn open(database: &Database) -> Postgres {
    Postgres::open(Options { migrate: true, ..database.options("a") }).await.unwrap()
}

async fn rows(store: &Postgres) -> Vec<RowView> {
    store.rows(&RowFilter::default(), 100).await.unwrap()
}

/// Status and attempts of each row.
async fn read_rows(store: &Postgres) -> Vec<(RowStatus, u32)> {
    rows(store).await.iter().map(|row| (row.status, row.retry_count)).collect()
}

/// The numbers of rows that are pending, in flight and failed.
async fn counts(store: &Postgres) -> (u64, u64, u64) {
    let depth = store.depth().await.unwrap();
    (depth.pending, depth.in_flight, depth.failed)
}

#[tokio::test]
async fn batch_that_is_open_at_the_upgrade_is_resolved_by_its_outcome() {
    use RowStatus::{Failed, InFlight, Pending, Sent};
    let claimed = [(InFlight, 1), (InFlight, 4), (InFlight, 1), (InFlight, 1), (Pending, 0)];
    let cases = [
        (BatchOutcome::Published, [(Sent, 1), (Sent, 4), (Sent, 1), (Sent, 1), (Pending, 0)]),
        (BatchOutcome::NotSent, [(Pending, 0), (Failed, 3), (Pending, 0), (Pending, 0), (Pending, 0)]),
        (BatchOutcome::ClaimerDied, [(Pending, 1), (Failed, 4), (Pending, 1), (Pending, 1), (Pending, 0)]),
    ];
    for (outcome, expected) in cases {
        let (database, client) = earlier_version().await;
        let store = open(&database).await;
        assert_eq!(read_rows(&store).await, claimed, "before the acquisition");
        let before = rows(&store).await;
        assert_eq!(counts(&store).await, (1, 4, 0));

        let acquired = acquire(&store, 0, LEASE).await;

        assert_eq!(
            acquired.open_batch.map(|open| (open.token, open.session.0.to_string())),
            Some((7, "session".into()))
        );
        assert_eq!(rows(&store).await, before, "the conversion changes nothing that is shown");
        assert_eq!(counts(&store).await, (1, 4, 0));
        let resolved = store.resolve(&acquired.fence, 7, outcome, &PoisonPolicy::default()).await.unwrap().closed;
        let FencedOutcome::Done { counter, rows: 4 } = resolved else { panic!("{outcome:?}: {resolved:?}") };
        assert_eq!(read_rows(&store).await, expected, "{outcome:?}");
        let left = client.query_one("SELECT count(*) FROM outbox WHERE status = 1", &[]).await.unwrap();
        assert_eq!(left.get::<_, i64>(0), 0);

        // Everything that was not published is sent now, and nothing else.
        let mut fence = LeaseFence { counter, ..acquired.fence };
        let mut sent = Vec::new();
        while sent.len() < 10 {
            let claimed = claim(&store, &fence, 100).await.unwrap();
            let ClaimOutcome::Batch(claimed) = claimed else { break };
            sent.extend(claimed.rows.iter().map(|row| row.id));
            fence.counter = settle(&store, &fence, &claimed).await;
        }
        sent.sort_unstable();
        assert_eq!(sent, if outcome == BatchOutcome::Published { vec![5] } else { vec![1, 2, 3, 4, 5] }, "{outcome:?}");
    }
}

#[tokio::test]
async fn suspect_of_a_trial_that_is_open_at_the_upgrade_stays_one() {
    let (database, client) = earlier_version().await;
    let trial = "UPDATE outbox SET status = 0, attempts = 0, lease_version = 0 WHERE id IN (1, 3, 4); UPDATE outbox SET deaths = 3 WHERE id = 2;
         UPDATE outbox_waiting SET suspect = true; UPDATE outbox_lease SET trial = true, first_id = 2, last_id = 2 WHERE partition = 0";
    client.batch_execute(trial).await.unwrap();
    let store = open(&database).await;
    let acquired = acquire(&store, 0, LEASE).await;

    let resolved =
        store.resolve(&acquired.fence, 7, BatchOutcome::NotSent, &PoisonPolicy::default()).await.unwrap().closed;

    let FencedOutcome::Done { counter, rows: 1 } = resolved else { panic!("{resolved:?}") };
    let session = ProducerSessionId("session".into());
    let fence = LeaseFence { counter, ..acquired.fence };
    let trial = Claim { fence, session, limit: 1, kind: ClaimKind::Trial };
    let again = batch(store.claim(trial).await.unwrap());
    assert_eq!(again.rows.iter().map(|row| (row.id, row.attempt)).collect::<Vec<_>>(), [(2, 4)]);
}

#[tokio::test]
async fn earlier_version_that_still_runs_closes_only_its_own_batches() {
    let (database, client) = earlier_version().await;
    migrate(&database.options("a")).await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute(CLOSE).await.unwrap();
    client.batch_execute("ROLLBACK").await.unwrap();

    let store = open(&database).await;
    acquire(&store, 0, LEASE).await;

    let refused = client.batch_execute(CLOSE).await.unwrap_err();
    assert_eq!(refused.code(), Some(&tokio_postgres::error::SqlState::CHECK_VIOLATION));
    assert_eq!(read_rows(&store).await.iter().filter(|(status, _)| *status == RowStatus::InFlight).count(), 4);
}
