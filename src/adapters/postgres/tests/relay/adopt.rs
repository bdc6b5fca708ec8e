//! Tables of other services, as Debezium's documentation describes them: what is inserted is published, and nothing else changes.
use postgres::{AdoptError, AdoptedTable, adopt, adoption_statements, release_adopted};
use tokio_postgres::Client;

use crate::support::Database;

mod functions;
mod own_types;
mod repeated_ids;
mod table_in_use;

/// The table of the outbox event router with JSON values.
const JSON_TABLE: &str =
    "CREATE SCHEMA shop; CREATE TABLE shop.outbox (id uuid NOT NULL, aggregatetype character varying(255) NOT NULL,
     aggregateid character varying(255) NOT NULL, type character varying(255) NOT NULL, payload jsonb)";
/// The table with values that the service has serialised itself, such as Avro.
const BYTES_TABLE: &str =
    "CREATE SCHEMA shop; CREATE TABLE shop.outbox (id uuid NOT NULL, aggregatetype character varying(255) NOT NULL,
     aggregateid character varying(255) NOT NULL, payload bytea NOT NULL)";

fn adoption() -> AdoptedTable {
    AdoptedTable { table: "shop.outbox".into(), ..AdoptedTable::default() }
}

/// Topic, key, type, value as text, content type and the headers of each event, in the order of the ids.
async fn events(client: &Client) -> Vec<[String; 6]> {
    let text = "SELECT topic, coalesce(key_text, key::text), type, encode(payload, 'escape'), coalesce(content_type, 'application/json'),
         coalesce(headers::text, '') FROM outbox_event ORDER BY id";
    let rows = client.query(text, &[]).await.unwrap();
    rows.iter().map(|row| [0, 1, 2, 3, 4, 5].map(|column| row.get(column))).collect()
}

async fn event_ids(client: &Client) -> Vec<String> {
    let rows = client.query("SELECT event_id::text FROM outbox_event ORDER BY id", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn rows_of_a_table_with_json_values_are_published_as_debezium_routes_them() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();

    adopt(&database.options("a"), &adoption()).await.unwrap();

    // As the documentation does it: the row is deleted again at once. A transaction that is rolled back publishes nothing.
    let insert = |id: u32, kind: &str| {
        format!(
            "INSERT INTO shop.outbox VALUES ('406c07f3-26f0-4eea-a50c-10994006800{id}', '{kind}', '1', 'OrderCreated', '{{\"id\": 1}}')"
        )
    };
    let text = format!(
        "BEGIN; {}; DELETE FROM shop.outbox; COMMIT; BEGIN; {}; ROLLBACK; {}",
        insert(1, "Order"),
        insert(2, "Order"),
        insert(3, "Customer")
    );
    client.batch_execute(&text).await.unwrap();
    let event = |topic: &str| [topic, "1", "OrderCreated", "{\"id\": 1}", "application/json", ""].map(str::to_owned);
    assert_eq!(events(&client).await, [event("outbox.event.Order"), event("outbox.event.Customer")]);
    let ids = [1, 3].map(|id| format!("406c07f3-26f0-4eea-a50c-10994006800{id}"));
    assert_eq!(event_ids(&client).await, ids);
    let left: i64 = client.query_one("SELECT count(*) FROM shop.outbox", &[]).await.unwrap().get(0);
    assert_eq!(left, 1, "the table is its service's");
}

#[tokio::test]
async fn rows_of_a_table_with_serialised_values_keep_their_bytes() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(BYTES_TABLE).await.unwrap();
    let avro = AdoptedTable { content_type: Some("application/avro".into()), ..adoption() };

    adopt(&database.options("a"), &avro).await.unwrap();

    let text = "INSERT INTO shop.outbox VALUES (gen_random_uuid(), 'Order', 'k', '\\x00ff')";
    client.batch_execute(text).await.unwrap();
    let expected = ["outbox.event.Order", "k", "Order", "\\000\\377", "application/avro", ""].map(str::to_owned);
    assert_eq!(events(&client).await, [expected], "without a column for it, the type is that of the aggregate");
}

#[tokio::test]
async fn other_columns_headers_and_ids_that_are_no_uuids_are_reported() {
    let database = Database::own().await;
    let client = database.client().await;
    let table = "CREATE TABLE \"my Events\" (\"Nr\" bigserial, kind text, k text, body text, tenant text)";
    client.batch_execute(table).await.unwrap();
    let adoption = AdoptedTable {
        table: "\"my Events\"".into(),
        topic: "shop".into(),
        id: "Nr".into(),
        key: "k".into(),
        event_type: "kind".into(),
        route: "kind".into(),
        payload: "body".into(),
        headers: vec![("tenant".into(), "x-tenant".into())],
        content_type: Some("text/plain".into()),
    };

    adopt(&database.options("a"), &adoption).await.unwrap();
    adopt(&database.options("a"), &adoption).await.unwrap();

    let text = "INSERT INTO \"my Events\" (kind, k, body, tenant) VALUES ('moved', 'a', 'x', 'blue'), ('moved', 'a', NULL, NULL)";
    client.batch_execute(text).await.unwrap();
    let event = |value: &str, headers: &str| ["shop", "a", "moved", value, "text/plain", headers].map(str::to_owned);
    assert_eq!(events(&client).await, [event("x", "{\"x-tenant\": \"blue\"}"), event("", "")]);
    let again = "INSERT INTO \"my Events\" (\"Nr\", kind, k, body) VALUES (1, 'moved', 'a', 'x')";
    client.batch_execute(again).await.unwrap();
    assert_eq!(events(&client).await.len(), 2, "the same row with the id of an earlier one is a duplicate");
}

#[tokio::test]
async fn a_writer_needs_no_right_of_the_outbox_and_what_cannot_be_sent_fails_its_insert() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    let role = format!("shop_{}", database.name);
    client
        .batch_execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE ON SCHEMA shop TO {role}; GRANT INSERT ON shop.outbox TO {role}; SET ROLE {role}"
        ))
        .await
        .unwrap();

    let insert = |kind: &str| format!("INSERT INTO shop.outbox VALUES (gen_random_uuid(), '{kind}', '1', 't', '{{}}')");
    client.batch_execute(&insert("Order")).await.unwrap();
    let refused = client.batch_execute(&insert("no topic")).await.unwrap_err();

    assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("22023"), "{refused:?}");
    client.batch_execute("RESET ROLE").await.unwrap();
    assert_eq!(events(&client).await.len(), 1);
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}

#[tokio::test]
async fn a_released_table_is_no_longer_published_and_mistakes_are_reported() {
    let database = Database::own().await;
    let (client, options) = (database.client().await, database.options("a"));
    client.batch_execute(JSON_TABLE).await.unwrap();
    let planned = adoption_statements(&options, &adoption()).await.unwrap();
    let insert = "INSERT INTO shop.outbox VALUES (gen_random_uuid(), 'Order', '1', 't', '{}')";
    client.batch_execute(insert).await.unwrap();
    assert!(events(&client).await.is_empty(), "a dry run changes nothing");
    assert_eq!(adopt(&options, &adoption()).await.unwrap(), planned);

    release_adopted(&options, "shop.outbox").await.unwrap();
    release_adopted(&options, "shop.outbox").await.unwrap();

    client.batch_execute(insert).await.unwrap();
    assert!(events(&client).await.is_empty());
    let error = async |adoption: AdoptedTable| adopt(&options, &adoption).await.unwrap_err();
    assert!(matches!(error(AdoptedTable { table: "nothing".into(), ..adoption() }).await, AdoptError::NoTable(_)));
    assert!(matches!(error(AdoptedTable { table: "outbox".into(), ..adoption() }).await, AdoptError::OwnTable(_)));
    let no_column = error(AdoptedTable { key: "aggregate".into(), ..adoption() }).await;
    assert!(no_column.to_string().contains("aggregateid"), "{no_column}");
    let payload = error(AdoptedTable { payload: "id".into(), ..adoption() }).await;
    assert!(matches!(&payload, AdoptError::PayloadType(kind) if kind == "uuid"), "{payload}");
    let header = error(AdoptedTable { headers: vec![("type".into(), "ce_type".into())], ..adoption() }).await;
    assert!(header.to_string().contains("ce_type"), "{header}");
}

#[tokio::test]
async fn topic_that_only_the_service_writes_is_refused() {
    let database = Database::own().await;
    let (client, options) = (database.client().await, database.options("a"));
    let text = format!("{JSON_TABLE}; UPDATE installation SET internal_topics = '{{relay-watermarks,webhooks-dlt}}'");
    client.batch_execute(&text).await.unwrap();
    let to_topic = |topic: &str| AdoptedTable { topic: topic.into(), ..adoption() };

    let refused = adopt(&options, &to_topic("relay-watermarks")).await.unwrap_err();

    assert!(matches!(&refused, AdoptError::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("only the service writes the topic \"relay-watermarks\""), "{refused}");
    adopt(&options, &to_topic("shop")).await.unwrap();
    adopt(&options, &adoption()).await.unwrap();
}

/// Creates a role that owns the service's table and may create functions in the schema of the installation, but not publish.
async fn table_owner(database: &Database, client: &Client) -> String {
    let role = format!("owner_{}", database.name);
    let find = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'installation'::regclass";
    let own: String = client.query_one(find, &[]).await.unwrap().get(0);
    let text = format!(
        "CREATE ROLE {role}; ALTER SCHEMA shop OWNER TO {role}; ALTER TABLE shop.outbox OWNER TO {role};
         GRANT USAGE, CREATE ON SCHEMA {own} TO {role}"
    );
    client.batch_execute(&text).await.unwrap();
    role
}

#[tokio::test]
async fn adopting_role_must_be_allowed_to_publish() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();
    let role = table_owner(&database, &client).await;
    let name: String = client.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    // Each later connection to this database acts as the role.
    client.batch_execute(&format!("ALTER ROLE CURRENT_USER IN DATABASE {name} SET role = '{role}'")).await.unwrap();

    let refused = adopt(&database.options("a"), &adoption()).await.unwrap_err();
    assert!(matches!(&refused, AdoptError::NotAllowed { .. }), "{refused}");
    assert!(refused.to_string().contains("permission denied for table installation"), "{refused}");
    let rights = "SELECT (functions, internal_topics) ON installation";
    client.batch_execute(&format!("GRANT {rights} TO {role}")).await.unwrap();
    let refused = adopt(&database.options("a"), &adoption()).await.unwrap_err();
    assert!(matches!(&refused, AdoptError::MayNotPublish { role: named } if *named == role), "{refused}");
    client.batch_execute(&format!("REVOKE {rights} FROM {role}; GRANT posthaste_publisher TO {role}")).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();

    client.batch_execute("INSERT INTO shop.outbox VALUES (gen_random_uuid(), 'Order', '1', 't', '{}')").await.unwrap();
    assert_eq!(events(&client).await.len(), 1);

    // The rights of the first adoption are enough for a later one, after a column has got another type.
    let taken = format!(
        "RESET ROLE; ALTER SCHEMA shop OWNER TO CURRENT_USER; ALTER TABLE shop.outbox OWNER TO CURRENT_USER; GRANT USAGE ON SCHEMA shop TO {role};
         GRANT TRIGGER ON shop.outbox TO {role}; ALTER TABLE shop.outbox ALTER aggregateid TYPE varchar(40)"
    );
    client.batch_execute(&taken).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.expect("TRIGGER is enough");
    let error = release_adopted(&database.options("a"), "shop.outbox").await.unwrap_err();
    assert!(error.to_string().contains("--release needs the ownership"), "{error}");
    client.batch_execute("INSERT INTO shop.outbox VALUES (gen_random_uuid(), 'Order', '1', 't', '{}')").await.unwrap();
    assert_eq!(events(&client).await.len(), 2);
    let text = format!(
        "ALTER ROLE CURRENT_USER IN DATABASE {name} RESET role; DROP OWNED BY {role} CASCADE; DROP ROLE {role}"
    );
    client.batch_execute(&text).await.unwrap();
}

#[tokio::test]
async fn no_other_role_publishes_by_the_function_of_an_adopted_table() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    let find = "SELECT oid::regproc::text FROM pg_proc WHERE proname LIKE 'outbox_adopted_%'";
    let function: String = client.query_one(find, &[]).await.unwrap().get(0);
    // As an earlier version left it: adopting the table again corrects it.
    client.batch_execute(&format!("GRANT EXECUTE ON FUNCTION {function}() TO PUBLIC")).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    let role = format!("other_{}", database.name);
    client
        .batch_execute(&format!(
            "CREATE ROLE {role}; CREATE SCHEMA other AUTHORIZATION {role}; GRANT USAGE ON SCHEMA public TO {role}; SET ROLE {role};
             CREATE TABLE other.outbox (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb)"
        ))
        .await
        .unwrap();

    let trigger = format!("CREATE TRIGGER t AFTER INSERT ON other.outbox FOR EACH ROW EXECUTE FUNCTION {function}()");
    let refused = client.batch_execute(&trigger).await.unwrap_err();

    assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("42501"), "{refused:?}");
    client.batch_execute(&format!("RESET ROLE; DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await.unwrap();
}

#[tokio::test]
async fn owner_of_an_adopted_table_runs_nothing_as_the_role_that_adopted_it() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();
    let role = table_owner(&database, &client).await;
    adopt(&database.options("a"), &adoption()).await.unwrap();
    // A type with a user-defined cast to text.
    let own_type = format!(
        "SET ROLE {role}; CREATE TYPE shop.trap AS (value text);
         CREATE FUNCTION shop.spring(trap shop.trap) RETURNS text LANGUAGE plpgsql AS
           'BEGIN EXECUTE ''CREATE TABLE shop.taken AS SELECT current_user AS role''; RETURN ''k''; END';
         CREATE CAST (shop.trap AS text) WITH FUNCTION shop.spring(shop.trap);
         ALTER TABLE shop.outbox ALTER aggregateid TYPE shop.trap USING row(aggregateid)::shop.trap"
    );
    client.batch_execute(&own_type).await.unwrap();

    let insert = "INSERT INTO shop.outbox VALUES (gen_random_uuid(), 'Order', row('1'), 't', '{}')";
    let refused = client.batch_execute(insert).await.unwrap_err();

    assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("42804"), "{refused:?}");
    client.batch_execute("RESET ROLE").await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    client.batch_execute(&format!("SET ROLE {role}; {insert}; RESET ROLE")).await.unwrap();
    let taken = client.query_one("SELECT to_regclass('shop.taken') IS NULL", &[]).await.unwrap();
    assert!(taken.get::<_, bool>(0), "the function of the owner ran");
    assert_eq!(events(&client).await[0][1], "(1)", "the key is the type's own text");
    client.batch_execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await.unwrap();
}

#[tokio::test]
async fn columns_of_enumerations_and_domains_are_published_and_a_payload_is_not() {
    let database = Database::own().await;
    let client = database.client().await;
    let table = "CREATE SCHEMA shop; CREATE TYPE shop.kind AS ENUM ('Order', 'Invoice'); CREATE DOMAIN shop.name AS text; CREATE DOMAIN shop.body AS json;
         CREATE TABLE shop.outbox (id shop.name, aggregatetype shop.kind, aggregateid shop.name, type shop.kind, payload json, extra shop.kind, body shop.body)";
    client.batch_execute(table).await.unwrap();
    let headers = vec![("extra".into(), "extra".into())];
    let payload = AdoptedTable { payload: "body".into(), ..adoption() };
    let refused = adopt(&database.options("a"), &payload).await.unwrap_err();
    assert!(matches!(refused, AdoptError::PayloadType(_)), "{refused}");

    adopt(&database.options("a"), &AdoptedTable { headers, ..adoption() }).await.unwrap();
    client.batch_execute("INSERT INTO shop.outbox VALUES ('1', 'Order', 'k', 'Invoice', '{}')").await.unwrap();

    assert_eq!(events(&client).await[0][..3], ["outbox.event.Order", "k", "Invoice"]);
}

#[tokio::test]
async fn changed_column_is_published_after_the_table_was_adopted_again() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    client.batch_execute("ALTER TABLE shop.outbox ALTER type TYPE text").await.unwrap();
    let insert = "INSERT INTO shop.outbox VALUES (gen_random_uuid(), 'Order', '1', 't', '{}')";

    let refused = client.batch_execute(insert).await.unwrap_err();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    client.batch_execute(insert).await.unwrap();

    assert!(refused.as_db_error().unwrap().hint().unwrap().contains("posthaste adopt"), "{refused:?}");
    assert_eq!(events(&client).await.len(), 1);
}

#[tokio::test]
async fn columns_of_any_collation_are_published() {
    let database = Database::own().await;
    let client = database.client().await;
    let table = "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false); CREATE SCHEMA shop;
         CREATE TABLE shop.outbox (id text COLLATE any_case, aggregatetype text COLLATE any_case, aggregateid text COLLATE any_case,
           type text COLLATE \"sv-x-icu\", payload text COLLATE any_case)";
    client.batch_execute(table).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();

    for id in ["1", "2", "406c07f3-26f0-4eea-a50c-109940068001"] {
        let insert = format!("INSERT INTO shop.outbox VALUES ('{id}', 'Order', 'k', 't', '{{}}')");
        client.batch_execute(&insert).await.unwrap();
    }

    assert_eq!(
        (events(&client).await.len(), event_ids(&client).await[2].as_str()),
        (3, "406c07f3-26f0-4eea-a50c-109940068001")
    );
}
