//! Lost replies, unreachable servers, full disks: each error states what happened to the data.
use std::sync::Arc;
use std::time::Duration;

use domain::{Status, Subject};
use kit::Factory;
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};
use ports::orders::{Commit, CommitOutcome, OrderFilter, OrderStore, PageStart};
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, FencedOutcome, OutboxStore, Settlement};
use ports::partitions::{
    AcquireReason, Acquisition, InstanceId, LeaseFence, PartitionLeases, PartitionNo, ProducerSessionId,
};
use ports::probe::Probe;
use postgres::{Options, Postgres, PostgresOpenError, PostgresProbe};
use telemetry::Metrics;

use crate::proxy::{Cut, Proxy};
use crate::support::{Database, until};

const P0: PartitionNo = PartitionNo(0);

struct OutageFixture {
    store: Postgres,
    proxy: Proxy,
    factory: Factory,
    database: Database,
}

async fn fixture() -> OutageFixture {
    let database = Database::migrated().await;
    let proxy = Proxy::to(&database.url).await;
    let options =
        Options { url: proxy.url(&database.url).into(), relay_connections: 1, committers: 1, ..database.options("a") };
    let store = Postgres::open(options).await.unwrap();
    OutageFixture { store, proxy, factory: Factory::seeded(5, "orders".into()), database }
}

impl OutageFixture {
    async fn fence(&self) -> LeaseFence {
        self.try_fence().await.unwrap()
    }

    async fn try_fence(&self) -> Result<LeaseFence, Error> {
        let (name, reason) = (InstanceId("a".into()), AcquireReason::OutcomeUnknown);
        match self.store.acquire(P0, &name, reason, None, Duration::from_secs(600)).await? {
            Acquisition::Acquired(acquired) => Ok(acquired.fence),
            held => panic!("{held:?}"),
        }
    }

    async fn claim(&self, fence: &LeaseFence, session: &str) -> Result<ClaimOutcome, Error> {
        let claim = Claim {
            fence: fence.clone(),
            session: ProducerSessionId(session.into()),
            limit: 10,
            kind: ClaimKind::Ordinary,
        };
        self.store.claim(claim).await
    }

    async fn is_stored(&self, commit: &Commit) -> bool {
        self.store.find(commit.order.id).await.unwrap().is_some_and(|order| order.version == commit.order.version)
    }
}

#[tokio::test]
async fn an_open_can_be_dropped_inside_a_runtime_while_the_server_is_silent() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://posthaste@{}/postgres", silent.local_addr().unwrap());
    let options = Options { url: url.into(), ..Database::empty().await.options("a") };
    let mut opening = Box::pin(Postgres::open(options));
    let connection = tokio::select! {
        // The open only waits.
        _ = &mut opening => panic!("the server is silent"),
        accepted = silent.accept() => accepted,
    };

    drop(opening);

    assert!(connection.is_ok());
}

#[tokio::test]
async fn commit_with_a_lost_reply_is_resolved_as_committed() {
    let fixture = fixture().await;
    fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
    let with_events = fixture.factory.creation("ann", P0);
    let without = Commit { events: Vec::new(), ..fixture.factory.creation("ann", P0) };
    let change = fixture.factory.change(&with_events.order, Status::Shipped, P0);

    for (number, commit) in [with_events, without, change].into_iter().enumerate() {
        fixture.proxy.cut_at(b"COMMIT\0", Cut::AfterReply);
        assert_eq!(fixture.store.commit(commit.clone()).await.unwrap(), CommitOutcome::Done);
        assert_eq!(fixture.proxy.cuts(), number as u32 + 1, "the reply was lost");
        assert!(fixture.is_stored(&commit).await);
    }
}

#[tokio::test]
async fn commit_that_never_arrived_is_reported_as_unreachable() {
    let fixture = fixture().await;
    fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
    for commit in
        [fixture.factory.creation("ann", P0), Commit { events: Vec::new(), ..fixture.factory.creation("ann", P0) }]
    {
        fixture.proxy.cut_at(b"COMMIT\0", Cut::BeforeRequest);

        let result = fixture.store.commit(commit.clone()).await;

        assert!(matches!(result, Err(Error::Unreachable(_))), "{result:?}");
        assert!(!fixture.is_stored(&commit).await);
        assert_eq!(
            fixture.store.commit(commit).await.unwrap(),
            CommitOutcome::Done,
            "the next one uses a new connection"
        );
    }
}

/// The transaction is the youngest of all: by a snapshot's xmax it has not begun.
#[tokio::test]
async fn commit_that_still_runs_is_waited_for() {
    let fixture = fixture().await;
    fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
    let client = fixture.database.client().await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END';
                CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow();
                SELECT pg_advisory_lock(4711)";
    client.batch_execute(slow).await.unwrap();
    let commit = fixture.factory.creation("ann", P0);
    fixture.proxy.cut_at(b"COMMIT\0", Cut::DuringRequest);

    let (store, asked) = (fixture.store.clone(), commit.clone());
    let result = tokio::spawn(async move { store.commit(asked).await });
    for what in ["wait_event = 'advisory'", "query LIKE 'SELECT CASE WHEN $1 <%pg_xact_status%' AND state = 'idle'"] {
        let text = format!("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND {what}");
        until(what, async || client.query_opt(&text, &[]).await.unwrap()).await;
    }
    client.batch_execute("SELECT pg_advisory_unlock(4711)").await.unwrap();

    assert_eq!(result.await.unwrap().unwrap(), CommitOutcome::Done);
    assert!(fixture.is_stored(&commit).await);
}

#[tokio::test]
async fn commit_that_cannot_be_resolved_is_unknown() {
    let fixture = fixture().await;
    fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
    let commit = fixture.factory.creation("ann", P0);
    fixture.proxy.cut_at(b"COMMIT\0", Cut::AfterReply);

    let (store, asked) = (fixture.store.clone(), commit.clone());
    let result = tokio::spawn(async move { store.commit(asked).await });
    until("the connection to be cut", async || (fixture.proxy.cuts() == 1).then_some(())).await;
    fixture.proxy.down();
    let result = result.await.unwrap();

    fixture.proxy.up();
    // It may have been resolved before the proxy went down; any other result is wrong.
    assert!(matches!(result, Err(Error::Unknown(_)) | Ok(CommitOutcome::Done)), "{result:?}");
    // A connection may show only now that the proxy went down.
    let found = until("the server to be used again", async || fixture.store.find(commit.order.id).await.ok()).await;
    assert_eq!(found.map(|order| order.version), Some(commit.order.version));
}

#[tokio::test]
async fn claim_with_a_lost_reply_is_unknown_and_its_batch_is_open() {
    let fixture = fixture().await;
    fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
    let mut fence = fixture.fence().await;
    let ClaimOutcome::Batch(first) = fixture.claim(&fence, "session").await.unwrap() else { panic!("a row is due") };
    fence.counter = crate::relay::fixture::settle(&fixture.store, &fence, &first).await;
    fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
    fixture.proxy.cut_at(b"lost-session", Cut::AfterReply);

    let result = fixture.claim(&fence, "lost-session").await;

    assert!(matches!(result, Err(Error::Unknown(_))), "{result:?}");
    let acquired = fixture
        .store
        .acquire(P0, &fence.owner, AcquireReason::OutcomeUnknown, None, Duration::from_secs(600))
        .await
        .unwrap();
    let Acquisition::Acquired(acquired) = acquired else { panic!("{acquired:?}") };
    let open = acquired.open_batch.expect("the claim took effect");
    assert_eq!((&*open.session.0, open.claimer_died), ("lost-session", false));
}

#[tokio::test]
async fn settlement_with_a_lost_reply_can_be_repeated() {
    let fixture = fixture().await;
    fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
    let fence = fixture.fence().await;
    let ClaimOutcome::Batch(open) = fixture.claim(&fence, "session").await.unwrap() else { panic!("a row is due") };
    let settlement = Settlement { fence, token: open.token, positions: [].into(), by_fallback: vec![open.rows[0].id] };
    // The message with the token executes the statement; the one that prepares it contains no values.
    fixture.proxy.cut_at(&open.token.to_be_bytes(), Cut::AfterReply);

    let result = fixture.store.settle(settlement.clone()).await;
    let again = fixture.store.settle(settlement).await.unwrap();

    assert!(matches!(result, Err(Error::Unknown(_))), "{result:?}");
    assert_eq!(again, FencedOutcome::Done { counter: open.token + 1, rows: 0 });
    assert_eq!(fixture.store.depth().await.unwrap().sent, 1);
}

#[tokio::test]
async fn unreachable_server_is_reported_and_used_again_when_it_is_back() {
    let fixture = fixture().await;
    let commit = fixture.factory.creation("ann", P0);
    fixture.proxy.down();

    let (written, read) = (fixture.store.commit(commit.clone()).await, fixture.store.find(commit.order.id).await);
    assert!(matches!(written, Err(Error::Unreachable(_))), "{written:?}");
    assert!(matches!(read, Err(Error::Unreachable(_))), "{read:?}");
    assert!(PostgresProbe(fixture.store.clone()).check().await.is_err());

    fixture.proxy.up();
    until("the server to be used again", async || fixture.store.find(commit.order.id).await.ok()).await;
    // Another connection of the pool may be found to be broken only now.
    let committed = until("a commit to succeed", async || fixture.store.commit(commit.clone()).await.ok()).await;
    assert_eq!(committed, CommitOutcome::Done);
    let probe = PostgresProbe(fixture.store.clone());
    until("the probe to succeed", async || probe.check().await.ok()).await;
}

#[tokio::test]
async fn sessions_that_the_server_ended_are_replaced() {
    let fixture = fixture().await;
    for _ in 0..3 {
        let text = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let ended = fixture.database.client().await.query(text, &[]).await.unwrap();
        assert!(ended.iter().any(|row| row.get(0)), "the store has sessions");

        until("a commit to succeed", async || fixture.store.commit(fixture.factory.creation("ann", P0)).await.ok())
            .await;
        until("an acquisition to succeed", async || fixture.try_fence().await.ok()).await;
    }
}

#[tokio::test]
async fn sqlstates_of_failed_commits_become_errors_of_the_port() {
    let fixture = fixture().await;
    let client = fixture.database.client().await;
    let trigger = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'refused' USING ERRCODE = TG_ARGV[0]; END $$";
    client.batch_execute(trigger).await.unwrap();
    type Matches = fn(&Error) -> bool;
    let cases: [(&str, Matches); 4] = [
        ("25006", |error| matches!(error, Error::Unreachable(_))),
        ("53100", |error| matches!(error, Error::Full(_))),
        ("53200", |error| matches!(error, Error::Overloaded(_))),
        ("23514", |error| matches!(error, Error::Rejected(_))),
    ];

    for (state, expected) in cases {
        let text =
            format!("CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON orders EXECUTE FUNCTION refuse('{state}')");
        client.batch_execute(&text).await.unwrap();
        let result = fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap_err();
        assert!(expected(&result), "{state}: {result:?}");
    }
    client.batch_execute("DROP TRIGGER refuse ON orders; DROP FUNCTION refuse CASCADE").await.unwrap();
    fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
}

#[tokio::test]
async fn key_is_free_again_after_an_outage_in_which_its_release_failed() {
    let fixture = fixture().await;
    let (subject, lock) = (Subject::new("ann").unwrap(), Duration::from_secs(600));
    let begin = || fixture.store.begin(&subject, "one", &[1; 32], lock);
    assert_eq!(begin().await.unwrap(), BeginOutcome::Acquired);
    fixture.proxy.down();
    let released = fixture.store.abandon(&subject, "one").await;
    assert!(released.is_err(), "{released:?}");

    fixture.proxy.up();

    until("the key is free", async || matches!(begin().await, Ok(BeginOutcome::Acquired)).then_some(())).await;
}

#[tokio::test]
async fn probe_succeeds_after_a_full_disk_only_when_space_is_allocated() {
    let fixture = fixture().await;
    let client = fixture.database.client().await;
    let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON orders EXECUTE FUNCTION full_disk();
        CREATE TRIGGER full_disk BEFORE INSERT ON disk_space_probe EXECUTE FUNCTION full_disk()";
    let probe = PostgresProbe(fixture.store.clone());
    client.batch_execute(full).await.unwrap();
    probe.check().await.unwrap();
    assert!(matches!(fixture.store.commit(fixture.factory.creation("ann", P0)).await, Err(Error::Full(_))));

    assert!(matches!(probe.check().await, Err(Error::Full(_))), "no space can be allocated");

    client.batch_execute("DROP FUNCTION full_disk CASCADE").await.unwrap();
    probe.check().await.unwrap();
}

#[tokio::test]
async fn probe_samples_the_age_of_a_transaction_that_has_written() {
    let database = Database::own().await;
    // By this clock every transaction is an hour old.
    let clock = format!(
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
           AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour''';
         ALTER DATABASE {} SET search_path = public, pg_catalog",
        database.name
    );
    database.client().await.batch_execute(&clock).await.unwrap();
    let metrics = Arc::new(Metrics::new());
    let options = Options { metrics: Some(Arc::clone(&metrics)), ..database.options("a") };
    let probe = PostgresProbe(Postgres::open(options).await.unwrap());
    let writer = database.client().await;
    writer.batch_execute("BEGIN; INSERT INTO disk_space_probe VALUES ('x')").await.unwrap();

    probe.check().await.unwrap();

    let age = || metrics.db_oldest_transaction_age_seconds.get();
    until("a sample", async || (age() > 0.0).then_some(())).await;
    assert!(age() >= 3600.0, "{}", age());
}

#[tokio::test]
async fn slow_lists_leave_service_connections_to_other_calls() {
    let database = Database::own().await;
    let store = database.store("a").await;
    let probe = PostgresProbe(store.clone());
    let blocker = database.client().await;
    blocker.batch_execute("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let lists = (0..30).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.list(&OrderFilter::default(), PageStart::Offset(0), 10).await })
    });
    let lists: Vec<_> = lists.collect();
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass";
    until("a list waits", async || {
        let waiting: i64 = blocker.query_one(waiting, &[]).await.unwrap().get(0);
        (waiting > 0).then_some(())
    })
    .await;

    for n in 0..20 {
        let subject = Subject::new("ann").unwrap();
        let record = store.find_idempotency_record(&subject, &n.to_string(), Duration::from_secs(60)).await;
        assert!(record.unwrap().is_none());
    }
    let is_saturated = async || probe.saturation().filter(|share| *share >= 0.9);
    until("lists that wait for a server that does not answer are counted", is_saturated).await;
    blocker.batch_execute("ROLLBACK").await.unwrap();
    for list in lists {
        assert_eq!(list.await.unwrap().unwrap(), []);
    }
}

#[tokio::test]
async fn open_error_says_whether_a_later_attempt_may_succeed() {
    let database = Database::migrated().await;
    let nowhere = Options { url: "postgres://posthaste:pa55word@127.0.0.1:1/nowhere".into(), ..database.options("a") };
    let missing = Options { url: crate::support::url("posthaste_never_made").into(), ..database.options("a") };
    let changed = Options { partitions: 5, ..database.options("a") };

    let away = Postgres::open(nowhere).await.err().unwrap();
    assert!(away.is_temporary() && !away.to_string().contains("pa55word"), "{away}");
    let refused = Postgres::open(missing).await.err().unwrap();
    assert!(matches!(refused, PostgresOpenError::Refused { .. }) && !refused.is_temporary(), "{refused}");
    let partitions = Postgres::open(changed).await.err().unwrap();
    assert!(
        matches!(partitions, PostgresOpenError::PartitionsChanged { installed: 4, configured: 5, .. }),
        "{partitions}"
    );
}
