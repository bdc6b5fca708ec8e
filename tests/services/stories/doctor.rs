//! `posthaste doctor` finds each fault that a test plants, names it, and exits with 1.
mod database_server;
mod findings;
mod kafka_cluster;

use std::time::Instant;

use kit::wait::{until, until_ok};
use tokio::runtime::Builder;
use tokio_postgres::NoTls;

use crate::harness::backend::Backend;
use crate::harness::process::{Posthaste, run};
use findings::{
    WAIT_MAX, assert_among_found, assert_found, assert_nothing_found, await_findings, findings, install, installed,
};

#[test]
fn a_clock_that_differs_from_the_databases_is_found() {
    let backend = installed();

    with_a_clock_an_hour_ahead(&backend);

    await_findings(&backend, &[], |code, bad| {
        // By this clock a transaction of any other database of the server is an hour old too.
        let (of_the_clock, others): (Vec<_>, Vec<_>) = bad.iter().partition(|finding| finding.starts_with("clock: "));
        let is_named = of_the_clock.len() == 1 && of_the_clock[0].contains("differs from the database's clock by 3");
        code == 1 && is_named && others.iter().all(|finding| finding.starts_with("xmin: the oldest transaction is 36"))
    });
}

fn with_a_clock_an_hour_ahead(backend: &Backend) {
    backend.database.rows(
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
         AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour'''",
    );
    with_the_public_schema_first(backend);
}

/// Functions and views of the first schema in the path precede those of the system's, if the path names the system's schema later.
fn with_the_public_schema_first(backend: &Backend) {
    let database = backend.database.rows("SELECT current_database()")[0][0].clone();
    backend.database.rows(&format!("ALTER DATABASE {database} SET search_path = public, pg_catalog"));
}

/// The settings are read between the local clock and the server's.
#[test]
fn a_slow_answer_is_no_difference_of_clocks() {
    let backend = installed();
    let slow =
        "CREATE VIEW public.pg_settings AS SELECT * FROM pg_catalog.pg_settings WHERE (SELECT pg_sleep(3)) IS NOT NULL";
    backend.database.rows(slow);

    with_the_public_schema_first(&backend);

    assert_nothing_found(&backend, &[]);
}

#[test]
fn a_transaction_that_holds_back_vacuum_is_found() {
    let backend = installed();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (holder, driver) =
        runtime.block_on(tokio_postgres::connect(&backend.database.url(), NoTls)).expect("connected");
    let driver = runtime.spawn(driver);
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox";
    runtime.block_on(holder.batch_execute(begin)).expect("a snapshot");

    // By this clock every transaction is an hour old.
    with_a_clock_an_hour_ahead(&backend);

    await_findings(&backend, &[], |code, bad| {
        let found = |text: &str| bad.iter().any(|finding| finding.starts_with(text));
        code == 1 && found("xmin: the oldest transaction is 36") && found("clock: ")
    });
    drop((holder, driver));
}

#[test]
fn an_adopted_table_without_a_check_of_its_columns_is_found() {
    let backend = Backend::new();
    let warn = "CREATE FUNCTION public.warn() RETURNS event_trigger LANGUAGE plpgsql
         AS 'BEGIN RAISE WARNING ''of a migration'' USING HINT = ''read it''; END'";
    backend.database.rows(warn);
    backend.database.rows("CREATE EVENT TRIGGER warn ON ddl_command_end EXECUTE FUNCTION public.warn()");
    let (code, _, messages) = run(&backend, &["migrate", "up"]);
    assert!(code == 0 && messages.contains("of a migration (read it)"), "{messages}");
    backend.database.rows("DROP EVENT TRIGGER warn");
    let table = "CREATE TABLE shop (id uuid, aggregatetype text, aggregateid text, payload jsonb)";
    backend.database.rows(table);
    // A database that a busy machine slows down exceeds the command's limits.
    let adopt = || {
        until("the table is adopted", WAIT_MAX, || (run(&backend, &["adopt", "--table", "shop"]).0 == 0).then_some(()))
    };
    adopt();
    let is_found = || {
        let (_, _, messages) = run(&backend, &["migrate", "up"]);
        let (_, bad) = findings(&backend, &[]);
        let named = |text: &String| text.contains("shop (adopted by ") && text.contains("posthaste adopt");
        (named(&messages), bad.iter().any(|finding| finding.starts_with("adopted: ") && named(finding)))
    };
    let await_found = |wanted: (bool, bool)| {
        until_ok(Instant::now(), WAIT_MAX, || {
            let found = is_found();
            if found == wanted { Ok(()) } else { Err(format!("{wanted:?} of migrate and doctor, which is {found:?}")) }
        });
    };
    await_found((false, false));

    // As an earlier version wrote it, in the name of the same role.
    let earlier = "DO $do$ BEGIN EXECUTE (SELECT format('CREATE OR REPLACE FUNCTION public.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS %L',
         proname, ' BEGIN PERFORM NEW.id::text; RETURN NULL; END ') FROM pg_proc WHERE proname LIKE 'outbox_adopted_%'); END $do$";
    backend.database.rows(earlier);

    await_found((true, true));
    adopt();
    await_found((false, false));
}

/// A replication slot of the shared server. Dropped, it is removed: it keeps the server's log files.
struct ReplicationSlot<'a> {
    backend: &'a Backend,
    name: String,
}

impl<'a> ReplicationSlot<'a> {
    fn create(backend: &'a Backend) -> Self {
        let name = format!("doctor_{}", std::process::id());
        backend.database.rows(&format!("SELECT pg_create_physical_replication_slot('{name}', true)"));
        Self { backend, name }
    }
}

impl Drop for ReplicationSlot<'_> {
    fn drop(&mut self) {
        self.backend.database.rows(&format!("SELECT pg_drop_replication_slot('{}')", self.name));
    }
}

#[test]
fn a_replication_slot_without_a_reader_is_found() {
    let backend = Backend::exclusive();
    install(&backend, &[]);
    let slot = ReplicationSlot::create(&backend);

    assert_found(&backend, &[], "slots", &slot.name);

    drop(slot);
    assert_nothing_found(&backend, &[]);
}

#[test]
fn a_partition_without_an_owner_is_found() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let owned = || backend.database.rows("SELECT count(owner) FROM outbox_lease")[0][0].clone();
    until("every partition is owned", WAIT_MAX, || (owned() == "16").then_some(()));
    assert_nothing_found(&backend, &[]);
    service.kill();

    backend.database.rows("UPDATE outbox_lease SET owner = NULL, expires_at = NULL WHERE partition = 3");

    assert_found(&backend, &[], "partitions", "15 of 16 owned, without owner: 3,");
}

#[test]
fn a_table_with_far_more_dead_rows_than_live_ones_is_found() {
    let backend = installed();
    backend.database.rows("ALTER TABLE outbox_sequence SET (autovacuum_enabled = false)");
    assert_nothing_found(&backend, &[]);

    // The rows of a transaction that was rolled back are dead.
    backend.database.rows(
        "BEGIN; INSERT INTO outbox_sequence (topic, key, last, partition, key_group, wakes)
           SELECT 't', n::text, 1, 0, '00000000-0000-0000-0000-000000000000', false FROM generate_series(1, 510000) n; ROLLBACK",
    );

    assert_found(&backend, &[], "dead_rows", "outbox_sequence has 510000 dead and 0 live rows and was never vacuumed");
}

#[test]
fn a_full_disk_of_the_database_is_found_although_it_answers() {
    let backend = installed();
    backend.database.rows(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$",
    );

    backend.database.rows("CREATE TRIGGER full_disk BEFORE INSERT ON disk_space_probe EXECUTE FUNCTION full_disk()");

    assert_found(&backend, &[], "writes", "no space left: write: could not extend file");
}

#[test]
fn a_missing_index_is_found() {
    let backend = installed();

    backend.database.rows("DROP INDEX outbox_waiting_by_due");

    assert_found(&backend, &[], "indexes", "outbox_waiting_by_due");
}

#[test]
fn a_schema_that_is_behind_is_found() {
    let backend = installed();

    backend
        .database
        .rows("DELETE FROM posthaste_migration WHERE version = (SELECT max(version) FROM posthaste_migration)");

    assert_among_found(&backend, &[], "store", "migrate");
}

#[test]
fn wrong_settings_are_found() {
    let backend = installed();

    let development = "posthaste-development-secret-known-to-everyone";
    assert_found(&backend, &[("POSTHASTE__AUTH__HS256_SECRET", development)], "auth", "public");
    await_findings(&backend, &[("POSTHASTE__OUTBOX__PARTITIONS", "7")], |code, bad| {
        let found = |check: &str, detail: &str| bad.iter().any(|one| one.starts_with(check) && one.contains(detail));
        code == 1 && found("partitions: ", "was created with 16") && found("broker: ", "16 partitions")
    });
}

#[test]
fn dependencies_that_do_not_answer_are_found() {
    let backend = installed();

    let (code, bad) = findings(&backend, &[("POSTHASTE__BROKER__BOOTSTRAP_SERVERS", "127.0.0.1:1")]);
    assert!(code == 1 && bad.iter().any(|finding| finding.starts_with("broker: ")), "{bad:#?}");
    assert_found(&backend, &[("POSTHASTE__REDIS__URL", "redis://127.0.0.1:1")], "redis", "");
    let (code, bad) = findings(&backend, &[("POSTHASTE__STORE__URL", "postgres://posthaste@127.0.0.1:1/none")]);
    assert!(code == 1 && bad.iter().any(|finding| finding.starts_with("store: ")), "{bad:#?}");
}

#[test]
fn missing_topics_are_found_where_the_service_does_not_create_them() {
    let backend = installed();

    let environment = [("POSTHASTE__BROKER__CREATE_TOPICS", "false"), ("POSTHASTE__BROKER__TOPIC_PREFIX", "other.")];

    assert_among_found(&backend, &environment, "broker", "missing topics: other.order.events");
}
