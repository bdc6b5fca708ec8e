//! Answers that never come, servers that go away, disks that are full: what is told is what is so.
use std::time::Duration;

use domain::Status;
use kit::Factory;
use ports::Error;
use ports::orders::{Commit, Committed, OrderStore};
use ports::outbox::{Claim, ClaimKind, Claimed, FencedOutcome, OutboxStore, Settlement};
use ports::partitions::{
    AcquireReason, Acquisition, Fence, InstanceId, PartitionLeases, PartitionNo, ProducerSessionId,
};
use ports::probe::Probe;
use postgres::{OpenError, Options, Postgres, StoreProbe};

use crate::proxy::{Break, Wire};
use crate::support::{Database, until};

const P0: PartitionNo = PartitionNo(0);

struct Bench {
    store: Postgres,
    wire: Wire,
    make: Factory,
    database: Database,
}

async fn bench() -> Bench {
    let database = Database::migrated().await;
    let wire = Wire::to(&database.url).await;
    let options = Options { url: wire.url(&database.url), relays: 1, committers: 1, ..database.options("a") };
    let store = Postgres::open(options).await.unwrap();
    Bench { store, wire, make: Factory::seeded(5, "orders".into()), database }
}

impl Bench {
    async fn fence(&self) -> Fence {
        match self
            .store
            .acquire(P0, &InstanceId("a".into()), AcquireReason::Uncertain, None, Duration::from_secs(600))
            .await
            .unwrap()
        {
            Acquisition::Taken(acquired) => acquired.fence,
            held => panic!("{held:?}"),
        }
    }

    async fn claim(&self, fence: &Fence, lane: &str) -> Result<Claimed, Error> {
        let claim = Claim {
            fence: fence.clone(),
            session: ProducerSessionId(lane.into()),
            limit: 10,
            kind: ClaimKind::Ordinary,
        };
        self.store.claim(claim).await
    }

    async fn stands(&self, commit: &Commit) -> bool {
        self.store.find(commit.order.id).await.unwrap().is_some_and(|order| order.version == commit.order.version)
    }
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_found_out() {
    let bench = bench().await;
    bench.store.commit(bench.make.creation("ann", P0)).await.unwrap();
    let with_events = bench.make.creation("ann", P0);
    let without = Commit { events: Vec::new(), ..bench.make.creation("ann", P0) };
    let change = bench.make.change(&with_events.order, Status::Shipped, P0);

    for (number, commit) in [with_events, without, change].into_iter().enumerate() {
        bench.wire.break_at(b"COMMIT\0", Break::After);
        assert_eq!(bench.store.commit(commit.clone()).await.unwrap(), Committed::Done);
        assert_eq!(bench.wire.broken(), number as u32 + 1, "the answer was lost");
        assert!(bench.stands(&commit).await);
    }
}

#[tokio::test]
async fn a_commit_that_never_arrived_changed_nothing_and_says_so() {
    let bench = bench().await;
    bench.store.commit(bench.make.creation("ann", P0)).await.unwrap();
    for commit in [bench.make.creation("ann", P0), Commit { events: Vec::new(), ..bench.make.creation("ann", P0) }] {
        bench.wire.break_at(b"COMMIT\0", Break::Before);

        let told = bench.store.commit(commit.clone()).await;

        assert!(matches!(told, Err(Error::Unreachable(_))), "{told:?}");
        assert!(!bench.stands(&commit).await);
        assert_eq!(bench.store.commit(commit).await.unwrap(), Committed::Done, "the next one goes by a new connection");
    }
}

/// The youngest transaction of all: a snapshot's xmax says that it has not begun.
#[tokio::test]
async fn a_commit_that_is_still_at_work_is_waited_for() {
    let bench = bench().await;
    bench.store.commit(bench.make.creation("ann", P0)).await.unwrap();
    let client = bench.database.client().await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END';
                CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow();
                SELECT pg_advisory_lock(4711)";
    client.batch_execute(slow).await.unwrap();
    let commit = bench.make.creation("ann", P0);
    bench.wire.break_at(b"COMMIT\0", Break::During);

    let (store, asked) = (bench.store.clone(), commit.clone());
    let told = tokio::spawn(async move { store.commit(asked).await });
    for what in ["wait_event = 'advisory'", "query LIKE 'SELECT CASE WHEN $1 <%pg_xact_status%' AND state = 'idle'"] {
        let text = format!("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND {what}");
        until(what, async || client.query_opt(&text, &[]).await.unwrap()).await;
    }
    client.batch_execute("SELECT pg_advisory_unlock(4711)").await.unwrap();

    assert_eq!(told.await.unwrap().unwrap(), Committed::Done);
    assert!(bench.stands(&commit).await);
}

#[tokio::test]
async fn a_commit_that_cannot_be_found_out_is_unknown() {
    let bench = bench().await;
    bench.store.commit(bench.make.creation("ann", P0)).await.unwrap();
    let commit = bench.make.creation("ann", P0);
    bench.wire.break_at(b"COMMIT\0", Break::After);

    let (store, asked) = (bench.store.clone(), commit.clone());
    let told = tokio::spawn(async move { store.commit(asked).await });
    until("the wire to break", async || (bench.wire.broken() == 1).then_some(())).await;
    bench.wire.down();
    let told = told.await.unwrap();

    bench.wire.up();
    // Whether it was found out before the wire went down is chance; a guess would be wrong either way.
    assert!(matches!(told, Err(Error::Unknown(_)) | Ok(Committed::Done)), "{told:?}");
    assert!(bench.stands(&commit).await);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_unknown_and_stands() {
    let bench = bench().await;
    bench.store.commit(bench.make.creation("ann", P0)).await.unwrap();
    let mut fence = bench.fence().await;
    let Claimed::Batch(first) = bench.claim(&fence, "lane").await.unwrap() else { panic!("a row is due") };
    fence.counter = crate::relay::settle(&bench.store, &fence, &first).await;
    bench.store.commit(bench.make.creation("ann", P0)).await.unwrap();
    bench.wire.break_at(b"lost-lane", Break::After);

    let told = bench.claim(&fence, "lost-lane").await;

    assert!(matches!(told, Err(Error::Unknown(_))), "{told:?}");
    let acquired =
        bench.store.acquire(P0, &fence.owner, AcquireReason::Uncertain, None, Duration::from_secs(600)).await.unwrap();
    let Acquisition::Taken(acquired) = acquired else { panic!("{acquired:?}") };
    let open = acquired.in_flight.expect("the claim was heard");
    assert_eq!((&*open.session.0, open.claimer_died), ("lost-lane", false));
}

#[tokio::test]
async fn a_settlement_whose_answer_was_lost_is_repeated() {
    let bench = bench().await;
    bench.store.commit(bench.make.creation("ann", P0)).await.unwrap();
    let fence = bench.fence().await;
    let Claimed::Batch(open) = bench.claim(&fence, "lane").await.unwrap() else { panic!("a row is due") };
    let settlement = Settlement { fence, token: open.token, positions: Vec::new(), by_fallback: vec![open.rows[0].id] };
    // The name of the fence is in the message; its statement is prepared before, in a message of its own without values.
    bench.wire.break_at(&open.token.to_be_bytes(), Break::After);

    let told = bench.store.settle(settlement.clone()).await;
    let again = bench.store.settle(settlement).await.unwrap();

    assert!(matches!(told, Err(Error::Unknown(_))), "{told:?}");
    assert_eq!(again, FencedOutcome::Done { counter: open.token + 1, rows: 0 });
    assert_eq!(bench.store.depth().await.unwrap().sent, 1);
}

#[tokio::test]
async fn a_server_that_is_away_is_unreachable_and_taken_up_again_when_it_is_back() {
    let bench = bench().await;
    let commit = bench.make.creation("ann", P0);
    bench.wire.down();

    let (written, read) = (bench.store.commit(commit.clone()).await, bench.store.find(commit.order.id).await);
    assert!(matches!(written, Err(Error::Unreachable(_))), "{written:?}");
    assert!(matches!(read, Err(Error::Unreachable(_))), "{read:?}");
    assert!(StoreProbe(bench.store.clone()).check().await.is_err());

    bench.wire.up();
    until("the store to be back", async || bench.store.find(commit.order.id).await.ok()).await;
    assert_eq!(bench.store.commit(commit).await.unwrap(), Committed::Done);
    StoreProbe(bench.store.clone()).check().await.unwrap();
}

#[tokio::test]
async fn sessions_that_the_server_ended_are_replaced() {
    let bench = bench().await;
    for _ in 0..3 {
        let text = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        bench.database.client().await.batch_execute(text).await.unwrap();

        until("a commit to go through", async || bench.store.commit(bench.make.creation("ann", P0)).await.ok()).await;
        bench.fence().await;
    }
}

#[tokio::test]
async fn a_server_that_only_reads_is_unreachable_for_writers() {
    let bench = bench().await;
    let client = bench.database.client().await;
    let trigger = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'refused' USING ERRCODE = TG_ARGV[0]; END $$";
    client.batch_execute(trigger).await.unwrap();
    type Judge = fn(&Error) -> bool;
    let cases: [(&str, Judge); 4] = [
        ("25006", |error| matches!(error, Error::Unreachable(_))),
        ("53100", |error| matches!(error, Error::Full(_))),
        ("53200", |error| matches!(error, Error::Overloaded(_))),
        ("23514", |error| matches!(error, Error::Rejected(_))),
    ];

    for (state, expected) in cases {
        let text =
            format!("CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON orders EXECUTE FUNCTION refuse('{state}')");
        client.batch_execute(&text).await.unwrap();
        let told = bench.store.commit(bench.make.creation("ann", P0)).await.unwrap_err();
        assert!(expected(&told), "{state}: {told:?}");
    }
    client.batch_execute("DROP TRIGGER refuse ON orders; DROP FUNCTION refuse CASCADE").await.unwrap();
    bench.store.commit(bench.make.creation("ann", P0)).await.unwrap();
}

#[tokio::test]
async fn after_a_full_disk_the_probe_beats_only_when_room_is_seen() {
    let bench = bench().await;
    let client = bench.database.client().await;
    let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON orders EXECUTE FUNCTION full_disk();
        CREATE TRIGGER full_disk BEFORE INSERT ON room EXECUTE FUNCTION full_disk()";
    let probe = StoreProbe(bench.store.clone());
    client.batch_execute(full).await.unwrap();
    probe.check().await.unwrap();
    assert!(matches!(bench.store.commit(bench.make.creation("ann", P0)).await, Err(Error::Full(_))));

    assert!(matches!(probe.check().await, Err(Error::Full(_))), "nothing can be written");

    client.batch_execute("DROP FUNCTION full_disk CASCADE").await.unwrap();
    probe.check().await.unwrap();
}

#[tokio::test]
async fn who_opens_is_told_whether_waiting_helps() {
    let database = Database::migrated().await;
    let nowhere = Options { url: "postgres://posthaste:pa55word@127.0.0.1:1/nowhere".into(), ..database.options("a") };
    let missing = Options { url: crate::support::url("posthaste_never_made"), ..database.options("a") };
    let changed = Options { partitions: 5, ..database.options("a") };

    let away = Postgres::open(nowhere).await.err().unwrap();
    assert!(away.may_pass() && !away.to_string().contains("pa55word"), "{away}");
    let refused = Postgres::open(missing).await.err().unwrap();
    assert!(matches!(refused, OpenError::Refused { .. }) && !refused.may_pass(), "{refused}");
    let partitions = Postgres::open(changed).await.err().unwrap();
    assert!(matches!(partitions, OpenError::PartitionsChanged { installed: 4, configured: 5, .. }), "{partitions}");
}
