//! One living process per instance id.
use std::time::Duration;

use ports::orders::OrderStore;
use postgres::{OpenError, Options, Postgres};

use crate::proxy::Wire;
use crate::support::{Database, until};

fn held(opened: Result<Postgres, OpenError>) -> String {
    match opened {
        Err(error @ OpenError::Held { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two live under one name"),
    }
}

#[tokio::test]
async fn a_second_living_process_is_refused_and_told_who_holds_the_name() {
    for pooler in [false, true] {
        let database = Database::migrated().await;
        let options = || Options { pooler, ..database.options("here") };
        let first = Postgres::open(options()).await.unwrap();
        first.announce("127.0.0.1:8080").await.unwrap();

        let told = held(Postgres::open(options()).await);

        let pid = std::process::id().to_string();
        for part in ["here", &pid, "127.0.0.1:8080"] {
            assert!(told.contains(part), "{told} lacks {part}");
        }
        let other = Postgres::open(Options { pooler, ..database.options("there") }).await.unwrap();
        first.close().await.unwrap();
        first.close().await.unwrap();
        other.close().await.unwrap();
        Postgres::open(options()).await.expect("the name was given back");
    }
}

#[tokio::test]
async fn an_operator_needs_no_name() {
    let database = Database::migrated().await;
    let _service = database.store("here").await;

    let beside = Postgres::open_beside(database.options("here")).await.unwrap();

    assert_eq!(beside.count(&ports::orders::OrderFilter::default()).await.unwrap(), 0);
}

#[tokio::test]
async fn a_process_that_died_leaves_its_name_at_once() {
    let database = Database::migrated().await;
    let first = database.store("here").await;
    // As kill -9 does: the sockets close, and nothing else is done.
    drop(first);

    until("the server to notice", async || Postgres::open(database.options("here")).await.ok()).await;
}

#[tokio::test]
async fn a_holder_that_says_nothing_is_ended_by_who_needs_the_name() {
    for pooler in [false, true] {
        let database = Database::migrated().await;
        // It beats so seldom that it seems dead.
        let silent = Options { pooler, beat_every: Duration::from_secs(3_600), ..database.options("here") };
        let first = Postgres::open(silent).await.unwrap();
        let client = database.client().await;
        client.batch_execute("UPDATE instance SET seen_at = seen_at - interval '1 minute'").await.unwrap();

        // A first try may find that the holder is being ended and not yet gone, and a service tries again.
        let again = async || Postgres::open(Options { pooler, ..database.options("here") }).await.ok();
        let second = until("the holder to be ended", again).await;

        assert!(Postgres::open(Options { pooler, ..database.options("here") }).await.is_err());
        if !pooler {
            let lost = tokio::time::timeout(Duration::from_secs(20), first.lost()).await.expect("it is told");
            assert_eq!(lost.instance, "here");
        }
        second.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_holder_behind_a_pooler_that_woke_up_too_late_is_told() {
    let database = Database::migrated().await;
    let options = Options { pooler: true, beat_every: Duration::from_millis(200), ..database.options("here") };
    let first = Postgres::open(options).await.unwrap();
    let client = database.client().await;

    client.batch_execute("UPDATE instance SET session = gen_random_uuid(), seen_at = clock_timestamp()").await.unwrap();

    let lost = tokio::time::timeout(Duration::from_secs(20), first.lost()).await.expect("it is told");
    assert_eq!(lost.instance, "here");
}

#[tokio::test]
async fn a_holder_whose_connection_broke_takes_its_name_again() {
    let database = Database::migrated().await;
    let wire = Wire::to(&database.url).await;
    let options = Options {
        url: wire.url(&database.url).into(),
        beat_every: Duration::from_millis(100),
        ..database.options("here")
    };
    let first = Postgres::open(options).await.unwrap();
    let client = database.client().await;
    let backend = async || client.query_one("SELECT backend FROM instance", &[]).await.unwrap().get::<_, i32>(0);
    let before = backend().await;

    wire.down();
    wire.up();

    until("another session to hold the name", async || (backend().await != before).then_some(())).await;
    held(Postgres::open(database.options("here")).await);
    let lost = tokio::time::timeout(Duration::from_millis(50), first.lost()).await;
    assert!(lost.is_err(), "nobody else had it: {lost:?}");
}
