//! The daily partitions of the archive: created ahead, dropped as a whole, without blocking settlements.
use std::time::Duration;

use domain::Status;
use kit::Factory;
use kit::wait::scaled;
use ports::Error;
use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RowFilter};
use ports::orders::OrderStore;
use ports::outbox::{Claim, ClaimKind, OutboxStore};
use ports::partitions::{
    AcquireReason, Acquisition, InstanceId, LeaseFence, PartitionLeases, PartitionNo, ProducerSessionId,
};
use postgres::{Options, Postgres};

use crate::support::{Database, advance};

const P0: PartitionNo = PartitionNo(0);
const DAY: Duration = Duration::from_secs(86_400);

async fn fence(store: &Postgres) -> LeaseFence {
    match store.acquire(P0, &InstanceId("a".into()), AcquireReason::OutcomeUnknown, None, DAY * 90).await.unwrap() {
        Acquisition::Acquired(acquired) => acquired.fence,
        held => panic!("{held:?}"),
    }
}

async fn send_one(store: &Postgres, factory: &Factory, fence: &mut LeaseFence) {
    store.commit(factory.creation("ann", P0)).await.unwrap();
    let claim =
        Claim { fence: fence.clone(), session: ProducerSessionId("l".into()), limit: 10, kind: ClaimKind::Ordinary };
    let batch = crate::relay::fixture::batch(store.claim(claim).await.unwrap());
    fence.counter = crate::relay::fixture::settle(store, fence, &batch).await;
}

async fn days(client: &tokio_postgres::Client) -> Vec<String> {
    let text = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = 'outbox_archive'::regclass AND c.relname ~ '[0-9]{8}$' ORDER BY 1";
    client.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn days_are_created_ahead_and_a_missing_one_fails_no_settlement() {
    let database = Database::own().await;
    let (store, client, factory) =
        (database.store("a").await, database.client().await, Factory::seeded(2, "orders".into()));
    let mut fence = fence(&store).await;
    let ahead = days(&client).await;
    assert!(ahead.len() >= 7, "{ahead:?}");
    for day in &ahead {
        client.batch_execute(&format!("DROP TABLE {day}")).await.unwrap();
    }

    send_one(&store, &factory, &mut fence).await;
    assert_eq!(store.depth().await.unwrap().sent, 1);
    OutboxStore::sweep(&store, DAY * 7, 10).await.unwrap();

    let again = days(&client).await;
    assert!(again.len() + 1 >= ahead.len(), "all but today, whose row is in the default partition: {again:?}");
    send_one(&store, &factory, &mut fence).await;
}

/// A day long past, to which all archived rows are moved.
const PAST_DAY: &str =
    "CREATE TABLE outbox_archive_20200101 PARTITION OF outbox_archive FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z');
     UPDATE outbox_archive SET sent_at = '2020-01-01 12:00Z'";

/// A store with all archived rows in a day long past.
struct PastDay {
    store: Postgres,
    client: tokio_postgres::Client,
    factory: Factory,
    fence: LeaseFence,
}

impl PastDay {
    async fn with_two_events(database: &Database, options: Options) -> Self {
        let (store, client) = (Postgres::open(options).await.unwrap(), database.client().await);
        let (factory, mut fence) = (Factory::seeded(2, "orders".into()), fence(&store).await);
        send_one(&store, &factory, &mut fence).await;
        send_one(&store, &factory, &mut fence).await;
        client.batch_execute(PAST_DAY).await.unwrap();
        Self { store, client, factory, fence }
    }
}

#[tokio::test]
async fn past_day_is_dropped_also_with_a_retention_of_an_hour() {
    let database = Database::own().await;
    let PastDay { store, client, factory, mut fence } =
        PastDay::with_two_events(&database, database.options("a")).await;
    send_one(&store, &factory, &mut fence).await;

    assert_eq!(OutboxStore::sweep(&store, DAY / 24, 10).await.unwrap(), 2);

    assert!(!days(&client).await.contains(&"outbox_archive_20200101".to_string()));
    let counts = "SELECT (SELECT sum(events)::int8 FROM outbox_archive), (SELECT archive_forgotten FROM installation)";
    let counts = client.query_one(counts, &[]).await.unwrap();
    assert_eq!((counts.get::<_, i64>(0), counts.get::<_, i64>(1)), (1, 2), "the event of today remains");
    assert_eq!(store.depth().await.unwrap().sent, 1);
}

#[tokio::test]
async fn large_day_that_was_never_analysed_is_counted_before_it_is_dropped() {
    let database = Database::own().await;
    // Every day counts as large.
    let options = Options { archive_counted_bytes_max: 0, ..database.options("a") };
    let PastDay { store, client, .. } = PastDay::with_two_events(&database, options).await;

    assert_eq!(OutboxStore::sweep(&store, DAY * 7, 10).await.unwrap(), 2);

    assert!(!days(&client).await.contains(&"outbox_archive_20200101".to_string()));
    assert_eq!(store.depth().await.unwrap().sent, 0);
}

#[tokio::test]
async fn past_day_is_dropped_as_a_whole_and_a_reader_blocks_no_settlement() {
    let database = Database::own().await;
    // A sweep that waited for as long as other statements would be noticed also on a busy machine.
    let long = scaled(Duration::from_secs(60));
    let options = Options { lock_timeout: long, statement_timeout: long, ..database.options("a") };
    let PastDay { store, client, factory, mut fence } = PastDay::with_two_events(&database, options).await;
    let reader = database.client().await;
    reader.batch_execute("BEGIN; SELECT count(*) FROM outbox_archive").await.unwrap();

    let in_use = OutboxStore::sweep(&store, DAY * 7, 10).await;
    assert!(
        matches!(&in_use, Err(Error::Unreachable(reason)) if reason.contains("lock timeout")),
        "the reader holds the day: {in_use:?}"
    );
    let started = std::time::Instant::now();
    let sweeping = OutboxStore::sweep(&store, DAY * 7, 10);
    let (swept, ()) = futures::join!(sweeping, send_one(&store, &factory, &mut fence));
    assert!(swept.is_err() && started.elapsed() < long / 4, "{:?}", started.elapsed());
    reader.batch_execute("COMMIT").await.unwrap();

    assert_eq!(OutboxStore::sweep(&store, DAY * 7, 10).await.unwrap(), 2);
    assert_eq!(store.depth().await.unwrap().sent, 1);
    assert!(!days(&client).await.contains(&"outbox_archive_20200101".to_string()));
}

#[tokio::test]
async fn payloads_of_unsent_rows_are_not_deleted() {
    let database = Database::own().await;
    let (store, client, factory) =
        (database.store("a").await, database.client().await, Factory::seeded(2, "orders".into()));
    let mut fence = fence(&store).await;
    for _ in 0..3 {
        send_one(&store, &factory, &mut fence).await;
    }
    store.commit(factory.creation("ann", P0)).await.unwrap();
    advance(&client, DAY * 10).await;

    for _ in 0..3 {
        OutboxStore::sweep(&store, DAY * 7, 10).await.unwrap();
    }

    let left: i64 = client.query_one("SELECT count(*) FROM outbox_event", &[]).await.unwrap().get(0);
    assert_eq!((left, store.depth().await.unwrap().pending), (1, 1));
}

/// The ids of the events that are left after everything was sent long ago and swept in pages of two.
async fn left_after_sweep(store: &Postgres, client: &tokio_postgres::Client) -> Vec<i64> {
    advance(client, DAY * 10).await;
    for _ in 0..8 {
        OutboxStore::sweep(store, DAY * 7, 2).await.unwrap();
    }
    let rows = client.query("SELECT id FROM outbox_event ORDER BY id", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn parked_row_keeps_its_key_and_no_later_event() {
    let database = Database::own().await;
    let (store, client, factory) =
        (database.store("a").await, database.client().await, Factory::seeded(2, "orders".into()));
    let audit = Audit { operator: "ann".into(), reason: String::new() };
    let head = factory.creation("ann", P0);
    let follower = factory.change(&head.order, Status::Processing, P0);
    store.commit(head).await.unwrap();
    store.commit(follower).await.unwrap();
    let mut blocked: Vec<i64> = store.rows(&RowFilter::default(), 10).await.unwrap().iter().map(|row| row.id).collect();
    blocked.sort_unstable();
    let [first, second] = blocked[..] else { panic!("two rows") };
    assert!(matches!(store.park(first, &audit).await.unwrap(), OperatorOutcome::Done(_)));
    let mut fence = self::fence(&store).await;
    for _ in 0..5 {
        send_one(&store, &factory, &mut fence).await;
    }

    // The newest event stays until there is a newer one.
    assert_eq!(left_after_sweep(&store, &client).await, [first, second, second + 5]);

    store.retry(first, &audit).await.unwrap();
    let mut fence = self::fence(&store).await;
    send_one(&store, &factory, &mut fence).await;
    send_one(&store, &factory, &mut fence).await;
    assert_eq!(left_after_sweep(&store, &client).await, [second + 7], "the same process deletes what it passed over");
}
