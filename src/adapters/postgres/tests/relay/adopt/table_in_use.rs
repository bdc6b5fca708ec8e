//! Tables that are adopted while transactions use them, and tables with partitions.
use std::time::Duration;

use kit::wait::scaled;
use postgres::{AdoptError, Options, adopt, release_adopted, rows_can_change_partition};
use tokio::time::timeout;

use super::{JSON_TABLE, adoption, events};
use crate::support::{Database, until, until_autovacuum_works};

const INSERT: &str = "INSERT INTO shop.outbox VALUES (gen_random_uuid(), 'Order', '1', 't', '{}')";

#[tokio::test]
async fn writers_are_not_blocked_while_adopting_waits_for_a_transaction() {
    let database = Database::own().await;
    let [open, writer, watch] = [database.client().await, database.client().await, database.client().await];
    writer.batch_execute(JSON_TABLE).await.unwrap();
    open.batch_execute(&format!("BEGIN; {INSERT}")).await.unwrap();
    let (options, adoption) = (database.options("a"), adoption());

    let writers = async {
        let waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation'";
        until("adopting waits for the table", async || watch.query_opt(waits, &[]).await.unwrap()).await;
        let insert = timeout(scaled(Duration::from_secs(20)), writer.batch_execute(INSERT)).await;
        insert.expect("writers pass").unwrap();
        assert!(events(&watch).await.is_empty(), "the table is not adopted yet");
        open.batch_execute("COMMIT").await.unwrap();
    };
    let (adopted, ()) = futures::join!(adopt(&options, &adoption), writers);

    adopted.unwrap();
    writer.batch_execute(INSERT).await.unwrap();
    assert_eq!(events(&watch).await.len(), 1);
}

#[tokio::test]
async fn transaction_that_does_not_end_is_reported() {
    let database = Database::own().await;
    let [open, client] = [database.client().await, database.client().await];
    client.batch_execute(JSON_TABLE).await.unwrap();
    open.batch_execute("SET application_name = 'the nightly job'").await.unwrap();
    let process: i32 = open.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let options = Options { adopt_timeout: Duration::ZERO, ..database.options("a") };
    adopt(&options, &adoption()).await.unwrap();
    open.batch_execute(&format!("BEGIN; {INSERT}")).await.unwrap();

    let adopted = adopt(&options, &adoption()).await.unwrap_err();
    let released = release_adopted(&options, "shop.outbox").await.unwrap_err();

    for refused in [adopted, released] {
        assert!(matches!(refused, AdoptError::InUse { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains(&format!("process {process}, the nightly job, in a transaction of")), "{text}");
    }
    open.batch_execute("COMMIT").await.unwrap();
    assert_eq!(events(&client).await.len(), 1, "the table is still adopted");
}

#[tokio::test]
async fn table_is_adopted_while_autovacuum_works_on_it() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();
    let settings = "ALTER TABLE shop.outbox SET (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)";
    client.batch_execute(settings).await.unwrap();
    let rows = "INSERT INTO shop.outbox SELECT gen_random_uuid(), 'Order', repeat('1', 200), 't', '{}' FROM generate_series(1, 20000)";
    client.batch_execute(rows).await.unwrap();
    client.batch_execute("DELETE FROM shop.outbox; SELECT pg_stat_force_next_flush()").await.unwrap();
    until_autovacuum_works(&client, "shop.outbox").await;
    let options = Options { adopt_timeout: Duration::ZERO, ..database.options("a") };

    let refused = adopt(&options, &adoption()).await.unwrap_err();
    adopt(&Options { adopt_timeout: scaled(Duration::from_secs(5)), ..options }, &adoption()).await.unwrap();

    assert!(refused.to_string().contains("autovacuum"), "{refused}");
}

#[tokio::test]
async fn table_with_rows_that_can_change_their_partition_is_recognised() {
    let database = Database::own().await;
    let client = database.client().await;
    let tables = "CREATE SCHEMA shop; CREATE TABLE shop.plain (id int);
        CREATE TABLE shop.parted (id int) PARTITION BY RANGE (id); CREATE TABLE shop.part PARTITION OF shop.parted DEFAULT";
    client.batch_execute(tables).await.unwrap();

    for (table, expected) in [("shop.plain", false), ("shop.parted", true), ("shop.part", true), ("nothing", false)] {
        let found = rows_can_change_partition(&database.options("a"), table).await.unwrap();
        assert_eq!(found, expected, "{table}");
    }
}
