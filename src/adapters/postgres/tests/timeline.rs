//! A change of the server's timeline: sessions of the former one end, and nothing can be acquired until the change is accepted. The tests
//! change the timeline that the store remembers, instead of the server's.
use std::collections::BTreeMap;
use std::time::Duration;

use ports::outbox::ClaimOutcome;
use ports::partitions::{
    AcquireReason, Acquisition, InstanceId, PartitionLeases, PartitionNo, Renewal, TimelineAcceptance, TimelineChange,
    Token,
};
use postgres::{Options, Postgres};

use crate::proxy::{Cut, Proxy};
use crate::relay::fixture::{RelayFixture, claim};
use crate::support::{Database, pooled, until};

const TTL: Duration = Duration::from_secs(600);

/// Makes the remembered timeline another one than the server's, as a fail-over does.
const FORGET: &str = "UPDATE store_timeline SET timeline = '1/00000000', adopted = true";

const END_RELAY_CONNECTIONS: &str = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'posthaste relay%'";

async fn acquire(store: &Postgres, partition: u32, watermark: Option<Token>) -> Acquisition {
    let owner = InstanceId("a".into());
    let acquired = store.acquire(PartitionNo(partition), &owner, AcquireReason::OutcomeUnknown, watermark, TTL).await;
    acquired.expect("the acquisition returns")
}

async fn timeline_change(store: &Postgres) -> TimelineChange {
    match acquire(store, 0, None).await {
        Acquisition::TimelineChanged(change) => change,
        other => panic!("the timeline has changed: {other:?}"),
    }
}

async fn column(database: &Database, text: &str) -> Vec<String> {
    let rows = database.client().await.query(text, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn epochs(database: &Database) -> Vec<String> {
    column(database, "SELECT epoch::text FROM outbox_lease ORDER BY partition").await
}

#[tokio::test]
async fn first_timeline_is_remembered_and_needs_no_acceptance() {
    let database = Database::migrated().await;
    let store = database.store("a").await;

    assert!(matches!(acquire(&store, 0, None).await, Acquisition::Acquired(_)));

    let present = "SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)";
    assert_eq!(
        column(&database, "SELECT timeline FROM store_timeline WHERE adopted").await,
        column(&database, present).await
    );
}

#[tokio::test]
async fn sessions_of_the_former_timeline_claim_nothing() {
    let fixture = RelayFixture::new().await;
    fixture.create_in_all().await;
    let before = epochs(&fixture.database).await;

    // The connections of the former timeline end with its server.
    fixture.sql(FORGET).await;
    fixture.sql(END_RELAY_CONNECTIONS).await;

    for fence in &fixture.fences {
        let claimed = until("a new connection claims", async || claim(&fixture.store, fence, 10).await.ok()).await;
        assert!(matches!(claimed, ClaimOutcome::Fenced), "{claimed:?}");
    }
    let raised: Vec<String> = before.iter().map(|epoch| (epoch.parse::<u64>().unwrap() + 1).to_string()).collect();
    assert_eq!(epochs(&fixture.database).await, raised, "once, whatever the number of connections");
}

#[tokio::test]
async fn partitions_are_acquired_above_the_watermarks_once_the_change_is_accepted() {
    let database = Database::migrated().await;
    let store = database.store("a").await;
    let Acquisition::Acquired(first) = acquire(&store, 0, None).await else { panic!("it is free") };
    database.client().await.batch_execute(FORGET).await.unwrap();

    let change = timeline_change(&store).await;
    assert_eq!(timeline_change(&store).await, change, "nothing else is acquired meanwhile");
    let watermarks = BTreeMap::from([(PartitionNo(0), 50), (PartitionNo(1), 0), (PartitionNo(3), 7)]);
    let accepted = store.accept_timeline(&change, &watermarks).await.unwrap();
    let again = store.accept_timeline(&change, &watermarks).await.unwrap();

    assert_eq!(
        (accepted, again),
        (TimelineAcceptance::Accepted { partitions_behind: 2 }, TimelineAcceptance::AlreadyDone)
    );
    for (partition, above) in [(0, 50), (1, 0), (2, 0), (3, 7)] {
        let Acquisition::Acquired(acquired) = acquire(&store, partition, None).await else { panic!("it is accepted") };
        assert!(acquired.fence.counter > above, "{partition}: {acquired:?}");
        assert!(partition != 0 || acquired.fence.epoch > first.fence.epoch + 1, "{acquired:?}");
    }
}

#[tokio::test]
async fn repeated_acceptance_returns_what_the_one_with_the_lost_reply_found() {
    let database = Database::migrated().await;
    let proxy = Proxy::to(&database.url).await;
    let options = Options { url: proxy.url(&database.url).into(), relay_connections: 1, ..database.options("a") };
    let (store, other) = (Postgres::open(options).await.unwrap(), database.store("b").await);
    assert!(matches!(acquire(&store, 0, None).await, Acquisition::Acquired(_)));

    for (cut, behind, expected) in [
        (Cut::AfterReply, 50, [TimelineAcceptance::AlreadyDone, TimelineAcceptance::Accepted { partitions_behind: 1 }]),
        (
            Cut::BeforeRequest,
            90,
            [TimelineAcceptance::Accepted { partitions_behind: 1 }, TimelineAcceptance::AlreadyDone],
        ),
    ] {
        database.client().await.batch_execute(FORGET).await.unwrap();
        let change = timeline_change(&store).await;
        let watermarks = BTreeMap::from([(PartitionNo(0), behind)]);
        proxy.cut_at(b"COMMIT\0", cut);
        store.accept_timeline(&change, &watermarks).await.expect_err("the reply was lost");

        let elsewhere = other.accept_timeline(&change, &watermarks).await.unwrap();
        let repeated = store.accept_timeline(&change, &watermarks).await.unwrap();
        let again = store.accept_timeline(&change, &watermarks).await.unwrap();

        assert_eq!(([elsewhere, repeated], again), (expected, TimelineAcceptance::AlreadyDone), "{cut:?}");
    }
}

/// The worker that made the call has died.
#[tokio::test]
async fn repeated_acceptance_returns_what_the_one_of_a_dropped_call_found() {
    let database = Database::migrated().await;
    let store = database.store("a").await;
    assert!(matches!(acquire(&store, 0, None).await, Acquisition::Acquired(_)));
    database.client().await.batch_execute(FORGET).await.unwrap();
    let change = timeline_change(&store).await;
    let watermarks = BTreeMap::from([(PartitionNo(0), 50)]);

    let dropped = futures::poll!(store.accept_timeline(&change, &watermarks));
    assert!(dropped.is_pending(), "its statements have begun");
    until("the change is accepted", async || {
        (column(&database, "SELECT adopted::text FROM store_timeline").await == ["true"]).then_some(())
    })
    .await;
    let repeated = store.accept_timeline(&change, &watermarks).await.unwrap();
    let again = store.accept_timeline(&change, &watermarks).await.unwrap();

    assert_eq!(
        (repeated, again),
        (TimelineAcceptance::Accepted { partitions_behind: 1 }, TimelineAcceptance::AlreadyDone)
    );
}

#[tokio::test]
async fn acceptance_of_a_timeline_that_has_changed_again_is_refused() {
    let database = Database::migrated().await;
    let (first, second) = (database.store("a").await, database.store("b").await);
    assert!(matches!(acquire(&first, 0, None).await, Acquisition::Acquired(_)));
    database.client().await.batch_execute(FORGET).await.unwrap();
    let former = timeline_change(&first).await;

    // Another fail-over, which the store still has to notice.
    database.client().await.batch_execute("UPDATE store_timeline SET timeline = '1/00000002'").await.unwrap();
    let refused = first.accept_timeline(&former, &BTreeMap::from([(PartitionNo(0), 9)])).await.unwrap();
    assert_eq!(refused, TimelineAcceptance::AlreadyDone);
    let present = timeline_change(&second).await;

    assert_eq!(
        second.accept_timeline(&present, &BTreeMap::new()).await.unwrap(),
        TimelineAcceptance::Accepted { partitions_behind: 0 }
    );
    assert!(matches!(acquire(&first, 0, None).await, Acquisition::Acquired(_)));
}

#[tokio::test]
async fn change_is_noticed_by_a_process_that_starts_after_it() {
    let database = Database::migrated().await;
    let store = database.store("a").await;
    assert!(matches!(acquire(&store, 0, None).await, Acquisition::Acquired(_)));
    store.close().await.unwrap();
    database.client().await.batch_execute(FORGET).await.unwrap();

    let store = database.store("b").await;
    let change = timeline_change(&store).await;
    assert_eq!(change.complete_until, None, "no heartbeat shows how far the store came");
    store.heartbeat(&InstanceId("b".into()), TTL).await.unwrap();
    database.client().await.batch_execute(FORGET).await.unwrap();
    assert!(timeline_change(&store).await.complete_until.is_some(), "the last heartbeat shows it");
}

#[tokio::test]
async fn behind_a_pooler_a_heartbeat_notices_the_change() {
    let database = Database::migrated().await;
    let options = Options { url: pooled(&database.url).into(), pooler: true, notify: false, ..database.options("a") };
    let store = Postgres::open(options).await.unwrap();
    let owner = InstanceId("a".into());
    let Acquisition::Acquired(acquired) = acquire(&store, 0, None).await else { panic!("it is free") };
    let fence = acquired.fence;
    database.client().await.batch_execute(FORGET).await.unwrap();

    store.heartbeat(&owner, TTL).await.unwrap();

    let renewed = store.renew(&owner, &[(fence.partition, fence.epoch)], TTL).await.unwrap();
    assert_eq!(renewed, Renewal::default(), "the session of the former timeline has ended");
    assert!(matches!(acquire(&store, 0, None).await, Acquisition::TimelineChanged(_)));
}

#[tokio::test]
async fn role_without_rights_beyond_the_tables_sees_the_timeline() {
    let database = Database::own().await;
    let role = format!("{}_plain", database.name);
    let client = database.client().await;
    let grants = format!(
        "CREATE ROLE {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};
         GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA public TO {role}"
    );
    client.batch_execute(&grants).await.unwrap();
    let separator = if database.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}options=-c%20role%3D{role}", database.url);
    let opened = Postgres::open(Options { url: url.into(), migrate: false, ..database.options("a") }).await;
    let store = opened.expect("the role may use the tables");
    let first = acquire(&store, 1, None).await;
    client.batch_execute(FORGET).await.unwrap();

    let second = acquire(&store, 0, None).await;

    drop(store);
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
    assert!(matches!(first, Acquisition::Acquired(_)), "{first:?}");
    assert!(matches!(second, Acquisition::TimelineChanged(_)), "{second:?}");
}
