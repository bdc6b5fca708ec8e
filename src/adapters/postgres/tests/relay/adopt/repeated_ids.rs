//! Rows with ids that are no UUIDs: a row with the id of another event fails in the transaction of its writer.
use postgres::{EarlierAdoption, adopt, migrate, tables_without_id_check};
use tokio_postgres::Client;

use super::{adoption, event_ids, events};
use crate::relay::migration_files::database_of_version;
use crate::support::Database;

/// The last migration before derived ids are compared.
const EARLIER: usize = 20;

const TABLE: &str = "CREATE SCHEMA shop; CREATE TABLE shop.outbox (id bigserial, aggregatetype text, aggregateid text, type text, payload jsonb)";
const UUID: &str = "406c07f3-26f0-4eea-a50c-109940068001";

/// The columns that make an event, of a row whose id is 1.
const ROW: [&str; 4] = ["Order", "k", "t", "{}"];

async fn insert(client: &Client, id: &str, [route, key, kind, payload]: [&str; 4]) -> Result<(), String> {
    let text = format!("INSERT INTO shop.outbox VALUES ('{id}', '{route}', '{key}', '{kind}', '{payload}')");
    client.batch_execute(&text).await.map_err(|error| {
        let error = error.as_db_error().expect("the server refuses it").clone();
        assert!(error.hint().is_some_and(|hint| hint.contains("outbox.retention")), "{error:?}");
        error.code().code().to_owned()
    })
}

#[tokio::test]
async fn row_with_the_derived_id_of_another_event_is_refused() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(TABLE).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    insert(&client, "1", ROW).await.unwrap();
    client.batch_execute("TRUNCATE shop.outbox RESTART IDENTITY").await.unwrap();

    for other in
        [["Invoice", "k", "t", "{}"], ["Order", "l", "t", "{}"], ["Order", "k", "u", "{}"], ["Order", "k", "t", "[]"]]
    {
        assert_eq!(insert(&client, "1", other).await, Err("23505".into()), "{other:?}");
    }
    insert(&client, "1", ROW).await.expect("the same event is a repetition");

    assert_eq!(events(&client).await.len(), 1);
    let rows: i64 = client.query_one("SELECT count(*) FROM shop.outbox", &[]).await.unwrap().get(0);
    assert_eq!(rows, 1, "a refused row is not inserted");
}

#[tokio::test]
async fn derived_id_that_another_publisher_has_used_is_refused() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(TABLE).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    let taken = "SELECT posthaste.publish('t', 'k', 't', 'x'::bytea, event_id => outbox_key_group('shop.outbox:1'))";
    client.batch_execute(taken).await.unwrap();

    assert_eq!(insert(&client, "1", ROW).await, Err("23505".into()));
}

#[tokio::test]
async fn event_with_a_derived_id_that_commits_meanwhile_is_compared() {
    let database = Database::own().await;
    let [first, second] = [database.client().await, database.client().await];
    first.batch_execute(TABLE).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    first.batch_execute("BEGIN").await.unwrap();
    insert(&first, "1", ROW).await.unwrap();

    let waits = async {
        crate::support::until("the second insert waits", async || {
            let waiting =
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'";
            first.query_opt(waiting, &[]).await.unwrap()
        })
        .await;
        first.batch_execute("COMMIT").await.unwrap();
    };
    let (refused, ()) = futures::join!(insert(&second, "1", ["Order", "l", "t", "{}"]), waits);

    assert_eq!(refused, Err("23505".into()));
    assert_eq!(events(&second).await.len(), 1);
}

#[tokio::test]
async fn uuid_is_the_id_of_an_event_also_as_text() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(TABLE).await.unwrap();
    client.batch_execute("ALTER TABLE shop.outbox ALTER id DROP DEFAULT, ALTER id TYPE text").await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();

    insert(&client, UUID, ROW).await.unwrap();
    insert(&client, UUID, ["Order", "l", "t", "{}"]).await.expect("a repetition, as for every publisher");

    assert_eq!(event_ids(&client).await, [UUID]);
}

#[tokio::test]
async fn table_that_an_earlier_version_adopted_is_listed_until_it_is_adopted_again() {
    let database = Database::own().await;
    let (client, options) = (database.client().await, database.options("a"));
    client.batch_execute(TABLE).await.unwrap();
    let me: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
    let earlier = "DO $do$ DECLARE function text := 'public.outbox_adopted_' || 'shop.outbox'::regclass::oid; BEGIN
           EXECUTE format('CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS %L', function,
             ' BEGIN IF false THEN NULL; END IF; PERFORM public.outbox_key_group(NEW.\"id\"::text); RETURN NULL; END ');
           EXECUTE format('CREATE TRIGGER posthaste_adopted AFTER INSERT ON shop.outbox FOR EACH ROW EXECUTE FUNCTION %s()', function);
         END $do$";
    client.batch_execute(earlier).await.unwrap();
    let adopted = EarlierAdoption { table: "shop.outbox".to_owned(), role: me };
    assert_eq!(tables_without_id_check(&options).await.unwrap(), [adopted]);

    adopt(&options, &adoption()).await.unwrap();

    assert_eq!(tables_without_id_check(&options).await.unwrap(), []);
}

#[tokio::test]
async fn owner_of_publish_may_adopt_after_another_role_has_migrated() {
    let database = database_of_version(EARLIER).await;
    let client = database.client().await;
    let role = format!("owner_{}", database.name);
    let publish = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'publish' AND oidvectortypes(proargtypes) LIKE '%, bytea, %'";
    let publish: String = client.query_one(publish, &[]).await.unwrap().get(0);
    client.batch_execute(&format!("CREATE ROLE {role}; ALTER FUNCTION {publish} OWNER TO {role}")).await.unwrap();

    migrate(&database.options("a")).await.unwrap();

    let may_call =
        "SELECT has_function_privilege($1::text, oid, 'EXECUTE') FROM pg_proc WHERE proname = 'outbox_publish_adopted'";
    assert!(client.query_one(may_call, &[&role]).await.unwrap().get::<_, bool>(0));
    client.batch_execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await.unwrap();
}
