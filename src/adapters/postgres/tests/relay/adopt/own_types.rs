//! Columns of domains, enumerations and other types that are not PostgreSQL's own, in tables that an earlier version adopted.
use postgres::{AdoptedTable, EarlierAdoption, adopt, migrate, tables_without_type_check};
use tokio_postgres::Client;

use super::{JSON_TABLE, adoption, event_ids, events, table_owner};
use crate::relay::migration_files::database_of_version;
use crate::support::Database;

/// Columns of domains whose text is not what their output function writes, and of types without a user-defined cast to text.
const TABLE: &str = "CREATE SCHEMA shop; CREATE DOMAIN shop.fixed AS char(10); CREATE DOMAIN shop.short AS shop.fixed;
     CREATE DOMAIN shop.flag AS boolean;
     CREATE DOMAIN shop.address AS inet; CREATE DOMAIN shop.words AS text; CREATE TYPE shop.kind AS ENUM ('moved'); CREATE DOMAIN shop.name AS name;
     CREATE DOMAIN shop.lot AS numeric(6, 2);
     CREATE TABLE shop.outbox (id shop.fixed, aggregatetype shop.short, aggregateid shop.fixed, type shop.kind, payload jsonb, flag shop.flag,
       address shop.address, words shop.words, name shop.name, lot shop.lot, flags shop.flag[], \"odd\"\"one\" shop.flag)";
const HEADERS: [&str; 7] = ["flag", "address", "words", "name", "lot", "flags", "odd\"one"];

/// Adopts the table as the version before V16 did: the text of a column is the result of its cast to text.
async fn adopt_as_before(client: &Client) {
    let headers = HEADERS.map(|name| format!("'{}', NEW.\"{}\"::text", header(name), name.replace('"', "\"\"")));
    let text = "(NEW.\"id\"::text COLLATE \"C\")";
    let body = format!(
        " BEGIN PERFORM posthaste.publish('outbox.event.' || NEW.\"aggregatetype\"::text || '', NEW.\"aggregateid\"::text, NEW.\"type\"::text, \
         convert_to(coalesce(NEW.\"payload\"::text, ''), 'UTF8'), jsonb_strip_nulls(jsonb_build_object({})), 'application/json', \
         CASE WHEN {text} ~* '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' THEN {text}::uuid \
         ELSE public.outbox_key_group('shop.outbox:' || {text}) END); RETURN NULL; END ",
        headers.join(", ")
    );
    let create = format!(
        "DO $do$ DECLARE function text := 'public.outbox_adopted_' || 'shop.outbox'::regclass::oid; BEGIN
           EXECUTE 'CREATE FUNCTION ' || function || '() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
             SET search_path = pg_catalog, pg_temp AS $posthaste${body}$posthaste$';
           EXECUTE 'REVOKE ALL ON FUNCTION ' || function || '() FROM PUBLIC';
           EXECUTE 'CREATE TRIGGER posthaste_adopted AFTER INSERT ON shop.outbox FOR EACH ROW EXECUTE FUNCTION ' || function || '()';
         END $do$",
        body = body.replace('\'', "''")
    );
    client.batch_execute(&create).await.unwrap();
}

/// The header of a column.
fn header(column: &str) -> String {
    format!("h-{}", column.replace('"', "-"))
}

async fn body(client: &Client) -> String {
    let find = "SELECT prosrc FROM pg_proc WHERE proname LIKE 'outbox_adopted_%' AND prorettype = 'trigger'::regtype";
    client.query_one(find, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn texts_stay_the_same_after_an_upgrade_and_when_the_table_is_adopted_again() {
    let database = database_of_version(15).await;
    let (client, options) = (database.client().await, database.options("a"));
    client.batch_execute(TABLE).await.unwrap();
    adopt_as_before(&client).await;
    let insert = async |id: &str| {
        let values = "'Order', 'k', 'moved', '{}', true, '10.0.0.1', 'a b', 'n', 7, '{t,f}', false";
        client.batch_execute(&format!("INSERT INTO shop.outbox VALUES ('{id}', {values})")).await.unwrap();
        let nulls = format!("INSERT INTO shop.outbox VALUES ('{id}x', 'Order', 'k', 'moved')");
        client.batch_execute(&nulls).await.unwrap();
        events(&client).await
    };
    let before = insert("1").await;

    migrate(&options).await.unwrap();
    let (upgraded, upgraded_body) = (insert("2").await, body(&client).await);
    let headers = HEADERS.map(|name| (name.to_owned(), header(name))).into();
    adopt(&options, &AdoptedTable { headers, ..adoption() }).await.unwrap();
    let adopted = insert("3").await;

    assert_eq!(before[0][..3], ["outbox.event.Order", "k", "moved"]);
    for value in ["\"true\"", "\"10.0.0.1/32\"", "\"a b\"", "\"7.00\"", "\"{t,f}\"", "\"false\""] {
        assert!(before[0][5].contains(value), "{value}: {}", before[0][5]);
    }
    assert_eq!((&upgraded[2..4], &adopted[4..6]), (&before[..], &before[..]));
    let present = body(&client).await.replace("public.outbox_publish_adopted(", "posthaste.publish(");
    let id_is_derived = ", (CASE WHEN NOT (NEW.\"id\" IS NULL)";
    let (present, _) = present.rsplit_once(id_is_derived).expect("the last argument is whether the id is derived");
    assert_eq!(upgraded_body, format!("{present}); RETURN NULL; END "), "the migration writes what adopt writes");
    insert("1").await;
    assert_eq!(event_ids(&client).await.len(), 6, "a row with the id of one from before the upgrade is a duplicate");
}

#[tokio::test]
async fn changed_column_of_a_domain_is_refused_after_an_upgrade() {
    let database = database_of_version(15).await;
    let client = database.client().await;
    client.batch_execute(TABLE).await.unwrap();
    adopt_as_before(&client).await;
    let insert = "INSERT INTO shop.outbox VALUES ('1', 'Order', 'k', 'moved', '{}', true)";
    client.batch_execute(insert).await.unwrap();
    migrate(&database.options("a")).await.unwrap();

    for change in ["aggregateid TYPE shop.words", "flag TYPE boolean", "type TYPE text"] {
        // In a session that has read the earlier type, an error of the server itself comes first.
        let session = database.client().await;
        session.batch_execute(&format!("BEGIN; ALTER TABLE shop.outbox ALTER {change}")).await.unwrap();
        let refused = session.batch_execute(insert).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert!(refused.message().starts_with("the type of a column"), "{change}: {refused:?}");
        assert_eq!(refused.code().code(), "42804");
        session.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn type_with_the_name_of_an_earlier_domain_runs_nothing_of_its_owner() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();
    let role = table_owner(&database, &client).await;
    let domain = format!(
        "SET ROLE {role}; CREATE DOMAIN shop.trap AS char(10); ALTER TABLE shop.outbox ALTER aggregateid TYPE shop.trap; RESET ROLE"
    );
    client.batch_execute(&domain).await.unwrap();
    adopt(&database.options("a"), &adoption()).await.unwrap();
    // It has a user-defined cast to text and one to the base type of the domain.
    let same_name = format!(
        "SET ROLE {role}; ALTER TABLE shop.outbox DROP aggregateid; DROP DOMAIN shop.trap; CREATE TYPE shop.trap AS (value text);
         CREATE FUNCTION shop.spring(trap shop.trap) RETURNS text LANGUAGE plpgsql AS
           'BEGIN EXECUTE ''CREATE TABLE shop.taken AS SELECT current_user AS role''; RETURN ''k''; END';
         CREATE FUNCTION shop.spring_fixed(trap shop.trap) RETURNS char LANGUAGE sql AS 'SELECT shop.spring(trap)';
         CREATE CAST (shop.trap AS text) WITH FUNCTION shop.spring(shop.trap) AS IMPLICIT;
         CREATE CAST (shop.trap AS char) WITH FUNCTION shop.spring_fixed(shop.trap) AS IMPLICIT;
         ALTER TABLE shop.outbox ADD aggregateid shop.trap;
         INSERT INTO shop.outbox (id, aggregatetype, type, aggregateid) VALUES (gen_random_uuid(), 'Order', 't', row('1')); RESET ROLE"
    );
    client.batch_execute(&same_name).await.unwrap();

    let taken = client.query_one("SELECT to_regclass('shop.taken') IS NULL", &[]).await.unwrap();
    assert!(taken.get::<_, bool>(0), "the function of the owner ran");
    assert_eq!(events(&client).await[0][1], "(1)");
    client.batch_execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await.unwrap();
}

const CUSTOM_CAST: &str =
    "CREATE FUNCTION shop.shown(shop.kind) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'kind' $$;
     CREATE CAST (shop.kind AS text) WITH FUNCTION shop.shown(shop.kind)";
const MISSING_COLUMN: &str = "ALTER TABLE shop.outbox RENAME flag TO other";
const SHARED_FUNCTION: &str = "CREATE TABLE shop.second (LIKE shop.outbox); DO $$ BEGIN EXECUTE
     'CREATE TRIGGER t AFTER INSERT ON shop.second FOR EACH ROW EXECUTE FUNCTION public.outbox_adopted_' || 'shop.outbox'::regclass::oid || '()';
     END $$";

#[tokio::test]
async fn tables_that_an_upgrade_cannot_correct_are_listed_until_they_are_adopted_again() {
    for (change, tables) in [
        (CUSTOM_CAST, &["shop.outbox"][..]),
        (MISSING_COLUMN, &["shop.outbox"]),
        (SHARED_FUNCTION, &["shop.outbox", "shop.second"]),
    ] {
        let database = database_of_version(15).await;
        let (client, options) = (database.client().await, database.options("a"));
        client.batch_execute(TABLE).await.unwrap();
        adopt_as_before(&client).await;
        client.batch_execute(change).await.unwrap();
        let me: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);

        migrate(&options).await.unwrap();

        let adopted = |table: &&str| EarlierAdoption { table: (*table).to_owned(), role: me.clone() };
        let listed: Vec<_> = tables.iter().map(adopted).collect();
        assert_eq!(tables_without_type_check(&options).await.unwrap(), listed, "{change}");
        adopt(&options, &adoption()).await.unwrap();
        assert_eq!(tables_without_type_check(&options).await.unwrap(), [], "{change}");
    }
}

/// The statements name the type, and the owner of the table names it.
#[tokio::test]
async fn name_of_a_type_ends_no_statement_of_adopt() {
    let database = Database::own().await;
    let client = database.client().await;
    client.batch_execute(JSON_TABLE).await.unwrap();
    let domain = "CREATE DOMAIN shop.\"$posthaste$;CREATE TABLE t();--'\\\" AS text;
         ALTER TABLE shop.outbox ALTER aggregateid TYPE shop.\"$posthaste$;CREATE TABLE t();--'\\\"";
    client.batch_execute(domain).await.unwrap();

    adopt(&database.options("a"), &adoption()).await.unwrap();

    let insert =
        "INSERT INTO shop.outbox (id, aggregatetype, type, aggregateid) VALUES (gen_random_uuid(), 'Order', 't', 'k')";
    client.batch_execute(insert).await.unwrap();
    assert_eq!(events(&client).await[0][1], "k");
}

#[tokio::test]
async fn function_of_another_role_is_listed_also_behind_a_renamed_trigger() {
    let database = Database::own().await;
    let (client, options) = (database.client().await, database.options("a"));
    let role = format!("other_{}", database.name);
    let text = format!(
        "CREATE ROLE {role}; GRANT CREATE, USAGE ON SCHEMA public TO {role}; CREATE SCHEMA shop; CREATE TABLE shop.\"Rows\" (id uuid);
         CREATE FUNCTION public.outbox_adopted_7() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
           AS ' BEGIN PERFORM NEW.\"id\"::text; RETURN NULL; END ';
         CREATE TRIGGER renamed AFTER INSERT ON shop.\"Rows\" FOR EACH ROW EXECUTE FUNCTION public.outbox_adopted_7();
         ALTER FUNCTION public.outbox_adopted_7() OWNER TO {role}"
    );
    client.batch_execute(&text).await.unwrap();

    let adopted = EarlierAdoption { table: "shop.\"Rows\"".to_owned(), role: role.clone() };
    assert_eq!(tables_without_type_check(&options).await.unwrap(), [adopted]);
    client.batch_execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await.unwrap();
}
