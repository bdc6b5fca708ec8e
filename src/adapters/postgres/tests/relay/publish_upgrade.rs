//! Writers in SQL that run while migration V11 replaces the functions they call, and while V12 waits for their table.
use std::time::Duration;

use kit::clock::SeededRng;
use kit::wait::scaled;
use ports::clock::Rng;
use ports::outbox::ClaimOutcome;
use postgres::{Postgres, migrate};
use tokio::time::timeout;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::relay::fixture::{LEASE, acquire, claim};
use crate::relay::migration_files::database_of_version;
use crate::relay::publish::{numbers, publish, random_keys};
use crate::support::{PARTITIONS, until};

/// The last migration before the functions are replaced.
const EARLIER: usize = 10;

/// The hash and the group of each key, and the hash of each sequence of bytes.
async fn computed(client: &Client, keys: &[String], bytes: &[Vec<u8>]) -> (Vec<(i64, Uuid)>, Vec<i64>) {
    let text = "SELECT outbox_murmur2(convert_to(k, 'UTF8')), outbox_key_group(k) FROM unnest($1::text[]) WITH ORDINALITY AS u (k, n) ORDER BY n";
    let of_keys = client.query(text, &[&keys]).await.unwrap();
    let text = "SELECT outbox_murmur2(b) FROM unnest($1::bytea[]) WITH ORDINALITY AS u (b, n) ORDER BY n";
    let of_bytes = client.query(text, &[&bytes]).await.unwrap();
    (of_keys.iter().map(|row| (row.get(0), row.get(1))).collect(), of_bytes.iter().map(|row| row.get(0)).collect())
}

#[tokio::test]
async fn replaced_functions_compute_what_the_earlier_ones_did() {
    let database = database_of_version(EARLIER).await;
    let client = database.client().await;
    let rng = SeededRng::new(11);
    let of_length = |length| (0..length).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
    let bytes: Vec<Vec<u8>> = (0..=40).cycle().take(41 * 25).map(of_length).collect();
    let keys: Vec<String> = (20..24).flat_map(random_keys).collect();
    let earlier = computed(&client, &keys, &bytes).await;

    migrate(&database.options("a")).await.unwrap();

    let later = computed(&client, &keys, &bytes).await;
    assert_eq!((earlier.0.len(), earlier.1.len()), (keys.len(), bytes.len()));
    for ((key, earlier), later) in keys.iter().zip(&earlier.0).zip(&later.0) {
        assert_eq!(earlier, later, "{key:?}");
    }
    for ((bytes, earlier), later) in bytes.iter().zip(&earlier.1).zip(&later.1) {
        assert_eq!(earlier, later, "{bytes:?}");
    }
    let null = "SELECT outbox_key_group(NULL) IS NULL AND outbox_murmur2(NULL) IS NULL";
    assert!(client.query_one(null, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn writers_open_at_the_upgrade_lose_nothing_and_keep_the_order_of_their_key() {
    let database = database_of_version(EARLIER).await;
    let [before, open, waiting, other, watch] = futures::future::join_all((0..5).map(|_| database.client()))
        .await
        .try_into()
        .unwrap_or_else(|_| panic!("five clients"));
    publish(&before, "a").await;
    open.batch_execute("BEGIN").await.unwrap();
    publish(&open, "a").await;
    let waits = async {
        let text = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'";
        until("a writer waits for the key", async || watch.query_opt(text, &[]).await.unwrap()).await;
    };

    let upgrade = async {
        waits.await;
        let options = database.options("a");
        let writers = async {
            let replaced = "SELECT 1 FROM posthaste_migration WHERE version = 11";
            until("the functions are replaced", async || watch.query_opt(replaced, &[]).await.unwrap()).await;
            let waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation' AND query LIKE '%ADD COLUMN%'";
            until("V12 waits for the table", async || watch.query_opt(waits, &[]).await.unwrap()).await;
            let goes_on = timeout(scaled(Duration::from_secs(20)), publish(&other, "c")).await;
            goes_on.expect("a migration that waits lets other writers pass");
            publish(&open, "a").await;
            publish(&open, "b").await;
            open.batch_execute("COMMIT").await.unwrap();
        };
        let (applied, ()) = futures::join!(migrate(&options), writers);
        let versions: Vec<u32> = applied.unwrap().iter().map(|migration| migration.version).collect();
        assert_eq!(versions, (11..=21).collect::<Vec<u32>>());
    };
    futures::join!(publish(&waiting, "a"), upgrade);
    for client in [&before, &open, &waiting] {
        publish(client, "a").await;
    }

    assert_eq!(numbers(&watch, "a").await, [1, 2, 3, 4, 5, 6, 7]);
    let counts = "SELECT count(DISTINCT (e.key, e.partition))::int4, count(*)::int4 FROM outbox_event e JOIN outbox q USING (id, key, partition)
        WHERE e.key_text = 'a'";
    let counts = watch.query_one(counts, &[]).await.unwrap();
    assert_eq!((counts.get::<_, i32>(0), counts.get::<_, i32>(1)), (1, 7));
    assert_eq!(claimed_rows(&Postgres::open(database.options("a")).await.unwrap()).await, 9);
}

#[tokio::test]
async fn upgrade_takes_the_functions_of_adopted_tables_from_other_roles() {
    let database = database_of_version(14).await;
    let client = database.client().await;
    let function = "CREATE FUNCTION outbox_adopted_7() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN RETURN NULL; END'";
    client.batch_execute(function).await.unwrap();
    let may_execute = async || {
        let text = "SELECT has_function_privilege('public', 'outbox_adopted_7()', 'EXECUTE')";
        client.query_one(text, &[]).await.unwrap().get::<_, bool>(0)
    };
    assert!(may_execute().await, "as adopt left it");

    migrate(&database.options("a")).await.unwrap();

    assert!(!may_execute().await);
}

#[tokio::test]
async fn upgrade_makes_the_functions_of_adopted_tables_check_their_columns() {
    let database = database_of_version(15).await;
    let client = database.client().await;
    // As `posthaste adopt` wrote it before.
    let adopted = "CREATE TABLE shop (id uuid, \"kind\"\"s\" varchar, k text, body jsonb, unread point);
        CREATE FUNCTION public.outbox_adopted_7() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
        $posthaste$ BEGIN PERFORM posthaste.publish('shop', NEW.\"k\"::text, NEW.\"kind\"\"s\"::text,
        convert_to(coalesce(NEW.\"body\"::text, ''), 'UTF8'), NULL, 'application/json', NEW.\"id\"); RETURN NULL; END $posthaste$;
        REVOKE ALL ON FUNCTION public.outbox_adopted_7() FROM PUBLIC;
        CREATE TRIGGER posthaste_adopted AFTER INSERT ON shop FOR EACH ROW EXECUTE FUNCTION public.outbox_adopted_7()";
    client.batch_execute(adopted).await.unwrap();
    let insert = "INSERT INTO shop VALUES (gen_random_uuid(), 'moved', 'a', '{}')";
    client.batch_execute(insert).await.unwrap();

    migrate(&database.options("a")).await.unwrap();

    client.batch_execute("ALTER TABLE shop DROP unread").await.unwrap();
    client.batch_execute(insert).await.unwrap();
    assert_eq!(numbers(&client, "a").await, [1, 2]);
    client.batch_execute("ALTER TABLE shop ALTER \"kind\"\"s\" TYPE text").await.unwrap();
    // In a session that has read the earlier type, an error of the server itself comes first.
    let refused = database.client().await.batch_execute(insert).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert!(refused.message().starts_with("the type of a column"), "{refused:?}");
    assert_eq!(refused.code().code(), "42804");
    let right = "SELECT has_function_privilege('public', 'public.outbox_adopted_7()', 'EXECUTE')";
    assert!(!client.query_one(right, &[]).await.unwrap().get::<_, bool>(0));
}

/// The number of rows that the relay claims in all partitions.
async fn claimed_rows(store: &Postgres) -> usize {
    let mut rows = 0;
    for partition in 0..PARTITIONS {
        let fence = acquire(store, partition, LEASE).await.fence;
        if let ClaimOutcome::Batch(batch) = claim(store, &fence, 100).await.unwrap() {
            rows += batch.rows.len();
        }
    }
    rows
}

#[tokio::test]
async fn replaced_functions_keep_the_rights_and_settings_of_the_earlier_ones() {
    let database = database_of_version(EARLIER).await;
    let client = database.client().await;
    let text = "SELECT p.oid::regprocedure::text, pg_get_function_arguments(p.oid), proacl::text, prosecdef, proconfig::text, provolatile::text,
        proowner::int8 FROM pg_proc p WHERE proname IN ('publish', 'publish_all', 'outbox_wake', 'outbox_murmur2') ORDER BY p.oid";
    let rights = async || {
        let row = |row: &tokio_postgres::Row| {
            let texts: [Option<String>; 5] = [row.get(0), row.get(1), row.get(2), row.get(4), row.get(5)];
            (texts, row.get::<_, bool>(3), row.get::<_, i64>(6))
        };
        client.query(text, &[]).await.unwrap().iter().map(row).collect::<Vec<_>>()
    };
    let earlier = rights().await;
    let body = "SELECT prosrc FROM pg_proc WHERE oid = 'posthaste.publish(text, text, text, bytea, jsonb, text, uuid)'::regprocedure";
    let earlier_body: String = client.query_one(body, &[]).await.unwrap().get(0);

    migrate(&database.options("a")).await.unwrap();

    assert_eq!((rights().await, earlier.len()), (earlier, 7));
    assert_ne!(client.query_one(body, &[]).await.unwrap().get::<_, String>(0), earlier_body);
}
