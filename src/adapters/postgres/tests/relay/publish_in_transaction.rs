//! Publishing from Rust in a transaction of the caller.
use kit::clock::SeededRng;
use ports::clock::Rng;
use postgres::{EventPublisher, NewEvent, PublishError, publish, publish_all};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{Database, connect};

/// Key, type, sequence, payload and tenant of each row, in the order of the ids.
async fn rows(client: &Client) -> Vec<(String, String, i64, Option<String>)> {
    let text = "SELECT key_text, type, sequence, headers ->> 'tenant' FROM outbox_event ORDER BY id";
    let rows = client.query(text, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

fn expected(key: &str, kind: &str, sequence: i64, tenant: Option<&str>) -> (String, String, i64, Option<String>) {
    (key.into(), kind.into(), sequence, tenant.map(Into::into))
}

#[tokio::test]
async fn event_is_published_with_the_callers_transaction_or_not_at_all() {
    let database = Database::own().await;
    let mut client = database.client().await;
    let id = Uuid::from_u128(7);
    let moved = NewEvent::new("customers", "a", "moved", b"{}").header("tenant", "blue").event_id(id);

    let transaction = client.transaction().await.unwrap();
    publish(&transaction, &NewEvent::new("customers", "a", "lost", b"{}")).await.unwrap();
    transaction.rollback().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let first = publish(&transaction, &moved).await.unwrap();
    transaction.commit().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let again = publish(&transaction, &moved).await.unwrap();
    transaction.commit().await.unwrap();

    assert_eq!((first.bytes(), again.bytes()), (id.into_bytes(), id.into_bytes()));
    assert_eq!(rows(&client).await, [expected("a", "moved", 1, Some("blue"))]);
}

#[tokio::test]
async fn batch_returns_ids_in_its_order_and_numbers_each_key() {
    let database = Database::own().await;
    let mut client = database.client().await;
    let rng = SeededRng::new(5);
    let id = Uuid::from_u64_pair(rng.next_u64(), rng.next_u64());
    let events = [
        NewEvent::new("customers", "b", "first", b"1"),
        NewEvent::new("customers", "a", "second", &[0, 255]).content_type("application/octet-stream").event_id(id),
        NewEvent::new("customers", "b", "third", b"3").header("tenant", "blue"),
    ];

    let transaction = client.transaction().await.unwrap();
    let ids = publish_all(&transaction, &events).await.unwrap();
    assert!(publish_all(&transaction, &[]).await.unwrap().is_empty());
    transaction.commit().await.unwrap();

    assert_eq!((ids.len(), ids[1].bytes()), (3, id.into_bytes()));
    let all =
        [expected("b", "first", 1, None), expected("a", "second", 1, None), expected("b", "third", 2, Some("blue"))];
    assert_eq!(rows(&client).await, all);
    let text = "SELECT event_id FROM outbox_event ORDER BY id";
    let stored: Vec<Uuid> = client.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(
        ids.iter().map(|id| id.bytes()).collect::<Vec<_>>(),
        stored.iter().map(|id| *id.as_bytes()).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn no_statement_is_prepared() {
    let database = Database::own().await;
    let mut client = database.client().await;
    // A pooler in transaction mode may not keep a prepared statement. The server lists one only until its client has closed it.
    let watch = "CREATE TABLE public.prepared (statement text);
        CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS
          'BEGIN INSERT INTO public.prepared SELECT statement FROM pg_prepared_statements; RETURN NULL; END';
        CREATE TRIGGER watch AFTER INSERT ON outbox_event EXECUTE FUNCTION watch()";
    client.batch_execute(watch).await.unwrap();
    let event = NewEvent::new("customers", "a", "moved", b"{}");

    let transaction = client.transaction().await.unwrap();
    publish(&transaction, &event).await.unwrap();
    publish_all(&transaction, std::slice::from_ref(&event)).await.unwrap();
    transaction.commit().await.unwrap();

    let rows = client.query_typed("SELECT statement FROM public.prepared", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), [] as [String; 0]);
}

#[tokio::test]
async fn refused_event_leaves_the_transaction_usable() {
    let database = Database::own().await;
    let mut client = database.client().await;
    let (legal, illegal) =
        (NewEvent::new("customers", "a", "moved", b"{}"), NewEvent::new("customers", "", "moved", b"{}"));

    let transaction = client.transaction().await.unwrap();
    let one = publish(&transaction, &illegal).await;
    let many = publish_all(&transaction, &[legal.clone(), illegal]).await;
    publish(&transaction, &legal).await.unwrap();
    transaction.commit().await.unwrap();

    assert!(matches!(one, Err(PublishError::Refused(_))), "{one:?}");
    assert!(matches!(many, Err(PublishError::Refused(_))), "{many:?}");
    assert_eq!(rows(&client).await, [expected("a", "moved", 1, None)]);
}

#[tokio::test]
async fn database_without_the_functions_is_reported_with_the_remedy() {
    let database = Database::empty().await;
    let mut client = connect(&database.url).await;

    for publisher in [EventPublisher::default(), EventPublisher::in_schema("no\"where")] {
        let transaction = client.transaction().await.unwrap();
        let result = publisher.publish(&transaction, &NewEvent::new("customers", "a", "moved", b"{}")).await;

        let error = result.unwrap_err();
        assert!(matches!(error, PublishError::NotInstalled(_)), "{error}");
        assert!(error.to_string().contains("posthaste migrate up"), "{error}");
    }
}
