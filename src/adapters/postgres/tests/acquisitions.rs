//! Instances that acquire the same partitions at the same time do not block each other: none waits for a row that another one has locked. Nor
//! does a renewal; and a dead instance is no member, also after the server's clock was set back.
use std::time::Duration;

use futures::future::join_all;
use kit::wait::scaled;
use ports::partitions::{
    AcquireReason, Acquisition, Epoch, InstanceId, PartitionLeases, PartitionNo, ReleaseOutcome, Renewal,
};
use postgres::{Options, Postgres};
use tokio_postgres::Client;

use crate::support::{Database, until};

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(3_600);
const LOCK: &str = "BEGIN; SELECT FROM outbox_lease WHERE partition = 0 FOR UPDATE";

async fn acquire(store: &Postgres, partition: u32, name: &str, reason: AcquireReason) -> Acquisition {
    let acquired = store.acquire(PartitionNo(partition), &InstanceId(name.into()), reason, None, LEASE).await;
    acquired.expect("the server replied before the lock time-out")
}

#[tokio::test]
async fn a_partition_that_another_instance_is_about_to_acquire_is_skipped() {
    let database = Database::migrated().await;
    // A statement that waited for the row would fail after this time.
    let options = Options { relay_lock_timeout: Duration::from_secs(2), ..database.options("a") };
    let store = Postgres::open(options).await.unwrap();
    let other = database.client().await;

    other.batch_execute(LOCK).await.unwrap();
    let passed = acquire(&store, 0, "a", AcquireReason::Unowned).await;
    let next = acquire(&store, 1, "a", AcquireReason::Unowned).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    let free = acquire(&store, 0, "a", AcquireReason::Unowned).await;

    assert!(matches!(passed, Acquisition::Held { remaining: Duration::ZERO, .. }), "{passed:?}");
    assert!(matches!(next, Acquisition::Acquired(_)), "{next:?}");
    assert!(matches!(free, Acquisition::Acquired(_)), "{free:?}");
}

#[tokio::test]
async fn an_instance_waits_for_the_row_of_its_own_partition() {
    let database = Database::migrated().await;
    let store = Postgres::open(database.options("a")).await.unwrap();
    assert!(matches!(acquire(&store, 0, "a", AcquireReason::Unowned).await, Acquisition::Acquired(_)));
    let other = database.client().await;
    other.batch_execute(LOCK).await.unwrap();

    let (again, unlocked) = tokio::join!(acquire(&store, 0, "a", AcquireReason::Unowned), async {
        tokio::task::yield_now().await;
        other.batch_execute("ROLLBACK").await
    });

    unlocked.unwrap();
    assert!(matches!(again, Acquisition::Acquired(_)), "{again:?}");
}

/// Acquires partitions and returns them as a renewal names them.
async fn hold(store: &Postgres, partitions: u32) -> Vec<(PartitionNo, Epoch)> {
    let mut held = Vec::new();
    for partition in 0..partitions {
        let acquired = acquire(store, partition, "a", AcquireReason::Unowned).await;
        let Acquisition::Acquired(acquired) = acquired else { panic!("it is free: {acquired:?}") };
        held.push((PartitionNo(partition), acquired.fence.epoch));
    }
    held
}

#[tokio::test]
async fn a_locked_lease_row_delays_the_renewal_of_no_other() {
    let database = Database::migrated().await;
    let store = Postgres::open(database.options("a")).await.unwrap();
    let held = hold(&store, 3).await;
    let expirations = async || store.overview().await.unwrap().into_iter().take(3).map(|view| view.expires_at);
    let renew = async || store.renew(&InstanceId("a".into()), &held, LEASE * 2).await.expect("it waits for no lock");
    let before: Vec<_> = expirations().await.collect();
    let other = database.client().await;

    other.batch_execute(LOCK).await.unwrap();
    let renewal = renew().await;
    let during: Vec<_> = expirations().await.collect();
    other.batch_execute("ROLLBACK").await.unwrap();
    let afterwards = renew().await;

    let [first, second, third] = [PartitionNo(0), PartitionNo(1), PartitionNo(2)];
    assert_eq!(renewal, Renewal { renewed: vec![second, third], locked: vec![first] });
    assert_eq!(during[0], before[0]);
    assert!(during[1] > before[1] && during[2] > before[2], "{before:?} {during:?}");
    assert_eq!(afterwards, Renewal { renewed: vec![first, second, third], locked: Vec::new() });
}

#[tokio::test]
async fn a_renewal_waits_for_a_row_that_is_locked_for_a_moment() {
    let database = Database::migrated().await;
    let options = Options { relay_lock_timeout: scaled(Duration::from_secs(3)), ..database.options("a") };
    let store = Postgres::open(options).await.unwrap();
    let held = hold(&store, 2).await;
    let (owner, other) = (InstanceId("a".into()), database.client().await);
    other.batch_execute(LOCK).await.unwrap();
    let waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

    let (renewal, unlocked) = tokio::join!(store.renew(&owner, &held, LEASE), async {
        until("the renewal waits", async || other.query_opt(waits, &[]).await.unwrap()).await;
        other.batch_execute("ROLLBACK").await
    });

    unlocked.unwrap();
    assert_eq!(renewal.unwrap(), Renewal { renewed: vec![PartitionNo(0), PartitionNo(1)], locked: Vec::new() });
}

/// A renewal locks the rows of all leases, and a stop releases them at the same time: more releases than may wait with a connection.
#[tokio::test]
async fn releases_wait_for_rows_that_are_locked_for_a_moment() {
    let database = Database::migrated().await;
    let limit = scaled(Duration::from_secs(8));
    let options =
        Options { relay_connections: 3, lock_timeout: limit, statement_timeout: limit * 2, ..database.options("a") };
    let store = Postgres::open(options).await.unwrap();
    let held = hold(&store, 4).await;
    let (owner, other, observer) = (InstanceId("a".into()), database.client().await, database.client().await);
    other.batch_execute("BEGIN; SELECT FROM outbox_lease FOR UPDATE").await.unwrap();
    let releases = held.iter().map(|(partition, epoch)| store.release(*partition, &owner, *epoch));
    let waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

    let (released, unlocked) = tokio::join!(join_all(releases), async {
        until("a release waits", async || observer.query_opt(waits, &[]).await.unwrap()).await;
        other.batch_execute("ROLLBACK").await
    });

    unlocked.unwrap();
    for result in released {
        assert_eq!(result.unwrap(), ReleaseOutcome::Done);
    }
}

#[tokio::test]
async fn members_are_listed_until_they_leave_or_are_deleted() {
    let database = Database::migrated().await;
    let store = Postgres::open(database.options("a")).await.unwrap();
    let name = |name: &str| InstanceId(name.into());
    for member in ["c", "b", "a"] {
        store.heartbeat(&name(member), LEASE).await.unwrap();
    }
    let past = "UPDATE relay_instance SET seen_at = seen_at - interval '1 hour' WHERE instance = 'b'";
    database.client().await.batch_execute(past).await.unwrap();

    store.leave(&name("c")).await.unwrap();
    let without_relay = Postgres::open(database.options("d")).await.unwrap();
    let listed = async || store.members().await.unwrap();
    assert_eq!(listed().await, ["a", "b", "d"].map(name), "a dead member is listed until it is deleted");

    without_relay.close().await.unwrap();
    assert_eq!(listed().await, ["a", "b"].map(name));
}

/// Moves the time of every heartbeat, as if the server's clock had been set by this much, forward or back.
async fn move_heartbeats(client: &Client, by: &str) {
    let text = format!("UPDATE relay_instance SET seen_at = seen_at + interval '{by}'");
    client.batch_execute(&text).await.unwrap();
}

/// The leases of a dead instance are shared among the members: one that counts as live for an hour keeps its share from the others.
#[tokio::test]
async fn an_instance_that_dies_after_the_clock_was_set_back_is_no_member_afterwards() {
    let database = Database::migrated().await;
    let store = Postgres::open(database.options("a")).await.unwrap();
    let (client, dead_after) = (database.client().await, Duration::from_secs(600));
    let heartbeat = async |name: &str| store.heartbeat(&InstanceId(name.into()), dead_after).await.unwrap();
    heartbeat("dead").await;
    heartbeat("a").await;

    move_heartbeats(&client, "1 hour").await;
    heartbeat("dead").await;
    heartbeat("a").await;
    move_heartbeats(&client, "-601 seconds").await;
    let rank = heartbeat("a").await;
    let survey = store.survey(&InstanceId("a".into())).await.unwrap();

    assert_eq!(rank.live, 1, "{rank:?}");
    let members: Vec<&str> = survey.members.iter().map(|member| &*member.instance.0).collect();
    assert_eq!(members, ["a"]);
}

#[tokio::test]
async fn dead_owner_from_before_the_clock_was_set_back_loses_its_leases() {
    let database = Database::migrated().await;
    let store = Postgres::open(database.options("a")).await.unwrap();
    let (client, dead_after) = (database.client().await, Duration::from_secs(600));
    let heartbeat = async |name: &str| store.heartbeat(&InstanceId(name.into()), dead_after).await.unwrap();
    let acquired = async |name| acquire(&store, 0, name, AcquireReason::Unowned).await;
    let is_free = async || {
        let survey = store.survey(&InstanceId("a".into())).await.unwrap();
        survey.free.iter().any(|free| free.partition == PartitionNo(0))
    };
    heartbeat("dead").await;
    assert!(matches!(acquired("dead").await, Acquisition::Acquired(_)));

    // The heartbeat lies an hour in the future, as the expiry of the lease does.
    move_heartbeats(&client, "1 hour").await;
    let rank = heartbeat("a").await;
    assert_eq!(rank.live, 2, "it may be alive: {rank:?}");
    assert!(!is_free().await && matches!(acquired("a").await, Acquisition::Held { .. }), "it may be alive");

    move_heartbeats(&client, "-600 seconds").await;
    assert_eq!(heartbeat("a").await.live, 1);
    assert!(is_free().await);
    assert!(matches!(acquired("a").await, Acquisition::Acquired(_)));
}

#[tokio::test]
async fn a_heartbeat_less_than_a_second_ahead_stays() {
    let database = Database::migrated().await;
    let store = Postgres::open(database.options("a")).await.unwrap();
    let client = database.client().await;
    store.heartbeat(&InstanceId("b".into()), LEASE).await.unwrap();
    let ahead =
        "UPDATE relay_instance SET seen_at = clock_timestamp() + interval '900 milliseconds' RETURNING seen_at::text";
    let seen_at: String = client.query_one(ahead, &[]).await.unwrap().get(0);

    store.heartbeat(&InstanceId("a".into()), LEASE).await.unwrap();

    let text = "SELECT seen_at::text FROM relay_instance WHERE instance = 'b'";
    assert_eq!(client.query_one(text, &[]).await.unwrap().get::<_, String>(0), seen_at);
}
