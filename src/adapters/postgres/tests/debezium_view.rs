//! The view `outbox_debezium`, against the outbox table that Debezium documents for its event router.
use kit::Factory;
use ports::orders::OrderStore;
use ports::partitions::PartitionNo;
use postgres::migrate;
use tokio_postgres::Row;

use crate::relay::migration_files::database_of_version;
use crate::support::Database;

/// Columns of the documented table in their order, with the types as PostgreSQL names them. Its texts have at most 255 characters; those of the
/// view have no limit, because keys and types may be longer.
const DOCUMENTED: [(&str, &str); 5] = [
    ("id", "uuid"),
    ("aggregatetype", "character varying"),
    ("aggregateid", "character varying"),
    ("type", "character varying"),
    ("payload", "jsonb"),
];

#[tokio::test]
async fn view_has_the_columns_and_types_that_debezium_documents() {
    let database = Database::migrated().await;
    let columns =
        "SELECT column_name::text, data_type::text, character_maximum_length::int4 FROM information_schema.columns
        WHERE table_name = 'outbox_debezium' ORDER BY ordinal_position";

    let rows = database.client().await.query(columns, &[]).await.unwrap();

    let column = |row: &Row| (row.get::<_, String>(0), row.get::<_, String>(1), row.get::<_, Option<i32>>(2));
    let found: Vec<_> = rows.iter().map(column).collect();
    assert_eq!(found, DOCUMENTED.map(|(name, kind)| (name.to_owned(), kind.to_owned(), None)));
}

#[tokio::test]
async fn view_shows_each_event_with_its_key_type_and_payload() {
    let database = Database::migrated().await;
    let store = database.store("a").await;
    let commit = Factory::seeded(3, "order.events".into()).creation("ann", PartitionNo(0));
    let (row, order_id) = (commit.events[0].clone(), commit.order.id);
    store.commit(commit).await.unwrap();
    let values = "SELECT id::text, aggregatetype, aggregateid, type, payload ->> 'orderId', payload -> 'sequence' = '1'
        FROM outbox_debezium";

    let shown = database.client().await.query_one(values, &[]).await.unwrap();

    let text = |column: usize| shown.get::<_, String>(column);
    assert_eq!((text(0), text(1)), (row.event_id.to_string(), "order".to_owned()));
    assert_eq!((text(2), text(3)), (order_id.to_string(), "ORDER_CREATED".to_owned()));
    assert_eq!((text(4), shown.get::<_, bool>(5)), (order_id.to_string(), true));
}

#[tokio::test]
async fn view_can_be_read_by_a_parallel_plan() {
    let database = Database::migrated().await;
    let client = database.client().await;
    client.batch_execute("SELECT posthaste.publish('customers', 'a', 'moved', '\\x00ff'::bytea)").await.unwrap();
    // The setting has another name since version 16. Since version 17 a worker can run such a function.
    let forced = "SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')";
    assert_eq!(client.query(forced, &[]).await.unwrap().len(), 1);

    let shown = client.query_one("SELECT payload::text FROM outbox_debezium", &[]).await.unwrap();

    assert_eq!(shown.get::<_, String>(0), "\"AP8=\"");
}

#[tokio::test]
async fn view_shows_events_of_other_services_by_their_topic_and_text_key() {
    let database = Database::migrated().await;
    let store = database.store("a").await;
    let factory = Factory::seeded(3, "order.events".into());
    let mut commit = factory.creation("ann", PartitionNo(0));
    let mut json = factory.external_row("customer-7", 1, PartitionNo(0));
    (json.topic, json.payload) = ("outbox.event.Customer".into(), b"{\"a\": 1}".as_slice().into());
    commit.events = vec![json, factory.external_row("customer-8", 1, PartitionNo(0))];
    store.commit(commit).await.unwrap();
    let values = "SELECT aggregatetype, aggregateid, payload::text FROM outbox_debezium ORDER BY aggregateid";

    let shown = database.client().await.query(values, &[]).await.unwrap();

    let texts = |row: &Row| (row.get::<_, String>(0), row.get::<_, String>(1), row.get::<_, String>(2));
    let expected = [("Customer", "customer-7", "{\"a\": 1}"), ("customers", "customer-8", "\"AJ+Slg==\"")];
    assert_eq!(shown.iter().map(texts).collect::<Vec<_>>(), expected.map(|(a, b, c)| (a.into(), b.into(), c.into())));
}

#[tokio::test]
async fn view_shows_long_keys_and_types_in_full() {
    let database = Database::migrated().await;
    let client = database.client().await;
    let long = |last: &str| format!("{}{last}", "x".repeat(300));
    for last in ["a", "b"] {
        let text = "SELECT posthaste.publish('customers', $1, $1, 'x'::bytea)";
        client.execute(text, &[&long(last)]).await.unwrap();
    }

    let shown = client.query("SELECT aggregateid, type FROM outbox_debezium ORDER BY 1", &[]).await.unwrap();

    let texts = |row: &Row| (row.get::<_, String>(0), row.get::<_, String>(1));
    let expected = ["a", "b"].map(|last| (long(last), long(last)));
    assert_eq!(shown.iter().map(texts).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn upgrade_keeps_the_rights_on_the_view() {
    let database = database_of_version(16).await;
    let client = database.client().await;
    let [reader, granter, column] = ["reader", "granter", "column"].map(|name| format!("\"{name} {}\"", database.name));
    let grants = format!(
        "CREATE ROLE {reader}; CREATE ROLE {granter}; CREATE ROLE {column}; GRANT SELECT ON outbox_debezium TO {reader};
         GRANT SELECT ON outbox_debezium TO {granter} WITH GRANT OPTION; GRANT SELECT (aggregateid) ON outbox_debezium TO {column}"
    );
    client.batch_execute(&grants).await.unwrap();
    let rights = async || {
        let text = "SELECT c.relacl::text, a.attacl::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE c.oid = 'outbox_debezium'::regclass AND a.attname = 'aggregateid'";
        let row = client.query_one(text, &[]).await.unwrap();
        (row.get::<_, String>(0), row.get::<_, String>(1))
    };
    let before = rights().await;

    migrate(&database.options("a")).await.unwrap();

    assert_eq!(rights().await, before);
    let roles = format!("DROP OWNED BY {reader}, {granter}, {column}; DROP ROLE {reader}, {granter}, {column}");
    client.batch_execute(&roles).await.unwrap();
}
