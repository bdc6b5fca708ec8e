//! The functions of adopted tables: which one a table has, and which settings of a session it does not depend on.
use postgres::{AdoptedTable, adopt, release_adopted};
use tokio_postgres::Client;

use super::{event_ids, events};
use crate::support::Database;

fn adoption(table: &str) -> AdoptedTable {
    AdoptedTable { table: format!("shop.{table}"), topic: table.into(), ..AdoptedTable::default() }
}

/// The function of each trigger of an adopted table, in the order of the tables, and the number of all such functions.
async fn functions(client: &Client) -> (Vec<String>, i64) {
    let called = "SELECT p.proname::text FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid
         WHERE t.tgname = 'posthaste_adopted' ORDER BY c.relname";
    let called = client.query(called, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let all = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'outbox\\_adopted\\_%'";
    (called, client.query_one(all, &[]).await.unwrap().get(0))
}

/// As a restore leaves it: the tables have other OIDs than their functions are named by. Renames the function of `table`.
async fn rename_function(client: &Client, table: &str, named_by: &str) {
    let text = format!(
        "DO $do$ BEGIN EXECUTE format('ALTER FUNCTION %s RENAME TO %I',
           (SELECT tgfoid::regprocedure FROM pg_trigger WHERE tgrelid = 'shop.{table}'::regclass AND tgname = 'posthaste_adopted'),
           'outbox_adopted_' || 'shop.{named_by}'::regclass::oid); END $do$"
    );
    client.batch_execute(&text).await.unwrap();
}

async fn two_tables(database: &Database) -> Client {
    let client = database.client().await;
    let columns = "(id uuid DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload jsonb)";
    let tables = format!("CREATE SCHEMA shop; CREATE TABLE shop.a {columns}; CREATE TABLE shop.b {columns}");
    client.batch_execute(&tables).await.unwrap();
    client
}

async fn published_topics(client: &Client) -> Vec<String> {
    let insert = |table: &str| format!("INSERT INTO shop.{table} VALUES (DEFAULT, 'x', 'k', 't', '{{}}')");
    client
        .batch_execute(&format!("DELETE FROM outbox; DELETE FROM outbox_event; {}; {}", insert("a"), insert("b")))
        .await
        .unwrap();
    events(client).await.into_iter().map(|[topic, ..]| topic).collect()
}

#[tokio::test]
async fn function_that_serves_another_table_after_a_restore_stays_unchanged() {
    let database = Database::own().await;
    let (client, options) = (two_tables(&database).await, database.options("a"));
    adopt(&options, &adoption("a")).await.unwrap();
    rename_function(&client, "a", "b").await;

    adopt(&options, &adoption("b")).await.unwrap();
    assert_eq!(published_topics(&client).await, ["a", "b"]);
    adopt(&options, &adoption("a")).await.unwrap();
    adopt(&options, &adoption("b")).await.unwrap();
    assert_eq!((published_topics(&client).await, functions(&client).await.1), (vec!["a".into(), "b".into()], 2));

    release_adopted(&options, "shop.b").await.unwrap();
    assert_eq!((published_topics(&client).await, functions(&client).await.1), (vec!["a".into()], 1));
    release_adopted(&options, "shop.b").await.unwrap();
    release_adopted(&options, "shop.a").await.unwrap();
    assert_eq!((published_topics(&client).await, functions(&client).await.1), (vec![], 0));
}

#[tokio::test]
async fn tables_that_share_a_function_get_one_each_when_they_are_adopted_again() {
    let database = Database::own().await;
    let (client, options) = (two_tables(&database).await, database.options("a"));
    adopt(&options, &adoption("a")).await.unwrap();
    let (called, _) = functions(&client).await;
    let shared = format!(
        "CREATE TRIGGER posthaste_adopted AFTER INSERT ON shop.b FOR EACH ROW EXECUTE FUNCTION public.{}()",
        called[0]
    );
    client.batch_execute(&shared).await.unwrap();
    assert_eq!(published_topics(&client).await, ["a", "a"]);

    adopt(&options, &adoption("b")).await.unwrap();
    assert_eq!(published_topics(&client).await, ["a", "b"]);
    client.batch_execute("DROP TRIGGER posthaste_adopted ON shop.b").await.unwrap();
    client.batch_execute(&shared).await.unwrap();
    release_adopted(&options, "shop.b").await.unwrap();

    assert_eq!(published_topics(&client).await, ["a"], "the function of the other table stays");
}

#[tokio::test]
async fn settings_of_a_writer_change_neither_key_nor_headers_nor_id() {
    let database = Database::own().await;
    let client = database.client().await;
    let table = "CREATE SCHEMA shop; CREATE DOMAIN shop.moment AS timestamptz; CREATE TYPE shop.pair AS (length float8, day date);
         CREATE TABLE shop.t (id timestamptz, aggregatetype text, aggregateid bytea, type text, payload jsonb, moment shop.moment, pair shop.pair[],
           age interval, place point, span tstzrange)";
    client.batch_execute(table).await.unwrap();
    let headers = ["moment", "pair", "age", "place", "span"].map(|name| (name.to_owned(), name.to_owned())).into();
    adopt(&database.options("a"), &AdoptedTable { headers, ..adoption("t") }).await.unwrap();
    let row = "INSERT INTO shop.t VALUES ('2026-03-01 12:00:00Z', 'x', '\\x0001', 't', '{}', '2026-03-01 12:00:00Z',
         ARRAY[row(0.1::float8 + 0.2, '2026-03-04'::date)::shop.pair], '1 day 2 hours', '(0.3,1)', '[2026-03-01 12:00:00Z,)')";
    client.batch_execute(row).await.unwrap();
    let (first, ids) = (events(&client).await, event_ids(&client).await);
    client.batch_execute("DELETE FROM outbox; DELETE FROM outbox_event").await.unwrap();

    let other = "SET bytea_output = escape; SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Tokyo'; SET IntervalStyle = iso_8601;
         SET extra_float_digits = -5";
    client.batch_execute(&format!("{other}; {row}")).await.unwrap();

    assert_eq!((events(&client).await, event_ids(&client).await), (first, ids));
}

#[tokio::test]
async fn function_without_a_column_that_depends_on_settings_fixes_none() {
    let database = Database::own().await;
    let client = two_tables(&database).await;

    adopt(&database.options("a"), &adoption("a")).await.unwrap();

    let settings = "SELECT array_to_string(proconfig, ';') FROM pg_proc WHERE proname LIKE 'outbox\\_adopted\\_%'";
    let settings: String = client.query_one(settings, &[]).await.unwrap().get(0);
    assert_eq!(settings, "search_path=pg_catalog, pg_temp");
}
