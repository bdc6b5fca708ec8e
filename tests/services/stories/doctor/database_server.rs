//! Faults of the PostgreSQL server itself: each test has a server of its own.
use kit::wait::until;
use tokio::runtime::Builder;
use tokio_postgres::NoTls;

use super::findings::{WAIT_MAX, assert_found, findings, install};
use crate::harness::backend::Backend;
use crate::harness::database::query;
use crate::harness::database_server::DatabaseServer;
use crate::harness::replicated_database::ReplicatedDatabase;

/// Connections of the PostgreSQL server that must be free.
const RESERVE: usize = 10;

/// Runs `change` on an installed server, and returns what the doctor finds then.
#[track_caller]
fn assert_found_after(changes: &[&str], check: &str, detail: &str) {
    let (backend, server) = (Backend::new(), DatabaseServer::create(None));
    let url = server.url();
    let environment = [("POSTHASTE__STORE__URL", url.as_str())];
    install(&backend, &environment);

    for change in changes {
        query(&url, change).expect("the server changes its setting");
    }

    // The server reads its files again a moment after the statement.
    until("the doctor finds it", WAIT_MAX, || (findings(&backend, &environment).0 == 1).then_some(()));
    assert_found(&backend, &environment, check, detail);
}

#[test]
fn a_server_without_fsync_is_found() {
    let changes = ["ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"];
    assert_found_after(&changes, "database", "fsync is off (configuration file)");
}

#[test]
fn a_server_that_writes_no_full_pages_is_found() {
    let changes = ["ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()"];
    assert_found_after(&changes, "database", "full_page_writes is off (configuration file)");
}

#[test]
fn a_database_that_does_not_wait_for_its_commits_is_found() {
    let changes = ["ALTER DATABASE postgres SET synchronous_commit = off"];
    assert_found_after(&changes, "commits", "synchronous_commit is off (database)");
}

/// A transaction without a snapshot: by the clock of its database each is an hour old.
#[test]
fn a_transaction_that_has_written_and_waits_or_is_prepared_is_found() {
    let (backend, server) = (Backend::new(), DatabaseServer::create(None));
    let url = server.url();
    let environment = [("POSTHASTE__STORE__URL", url.as_str())];
    let run = |statement: &str| query(&url, statement).expect("the server executes it");
    run("ALTER SYSTEM SET max_prepared_transactions = 1");
    server.kill();
    server.start();
    install(&backend, &environment);
    run("CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
         AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour'''");
    run("ALTER DATABASE postgres SET search_path = public, pg_catalog");
    let finds_it = || {
        findings(&backend, &environment).1.iter().any(|found| found.starts_with("xmin: the oldest transaction is 36"))
    };
    let write = "BEGIN; INSERT INTO disk_space_probe VALUES ('x')";
    assert!(!finds_it(), "nothing is open yet");

    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (writer, driver) = runtime.block_on(tokio_postgres::connect(&url, NoTls)).expect("connected");
    let driver = runtime.spawn(driver);
    runtime.block_on(writer.batch_execute(write)).expect("it writes");
    until("a transaction that has written and is idle is found", WAIT_MAX, || finds_it().then_some(()));
    runtime.block_on(writer.batch_execute("ROLLBACK")).expect("it ends");
    until("it has ended", WAIT_MAX, || (!finds_it()).then_some(()));

    run(&format!("{write}; PREPARE TRANSACTION 'forgotten'"));
    until("a prepared transaction is found", WAIT_MAX, || finds_it().then_some(()));
    drop((writer, driver));
}

#[test]
fn connections_that_are_nearly_used_up_are_found() {
    let (backend, server) = (Backend::new(), DatabaseServer::create(None));
    let url = server.url();
    let environment = [("POSTHASTE__STORE__URL", url.as_str())];
    install(&backend, &environment);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let number =
        |statement: &str| -> usize { query(&url, statement).expect("it answers")[0][0].parse().expect("a number") };
    let connections_max = number("SHOW max_connections");

    let mut clients = Vec::new();
    while number("SELECT count(*) FROM pg_stat_activity") + RESERVE <= connections_max {
        let (client, driver) = runtime.block_on(tokio_postgres::connect(&url, NoTls)).expect("connected");
        clients.push((client, runtime.spawn(driver)));
    }

    assert_found(&backend, &environment, "database", &format!("of {connections_max} connections in use"));
    drop(clients);
}

#[test]
fn a_standby_that_no_commit_waits_for_is_found() {
    let (backend, database) = (Backend::new(), ReplicatedDatabase::start());
    let url = database.url();
    let environment = [("POSTHASTE__STORE__URL", url.as_str())];
    let standbys = |(_, bad): (i32, Vec<String>)| bad.into_iter().find(|finding| finding.starts_with("standbys: "));

    let service = crate::harness::process::Posthaste::start(&backend, &environment);
    until("the standby is found", WAIT_MAX, || {
        standbys(findings(&backend, &environment))?.contains("every standby is asynchronous").then_some(())
    });

    database.rows("ALTER SYSTEM SET synchronous_standby_names = '*'");
    database.rows("SELECT pg_reload_conf()");
    until("commits wait for the standby", WAIT_MAX, || {
        standbys(findings(&backend, &environment)).is_none().then_some(())
    });
    assert!(service.stop().success());
}
