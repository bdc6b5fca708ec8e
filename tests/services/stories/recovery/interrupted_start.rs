//! A signal that ends a start leaves no lease to an instance that is gone.
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::process::Posthaste;

const WAIT_MAX: Duration = Duration::from_secs(30);
/// An advisory lock that the start waits for when it stores its address.
const LOCK: i64 = 4_711;

#[test]
fn start_that_a_signal_ends_leaves_no_lease() {
    let backend = Backend::new();
    assert!(Posthaste::start(&backend, &[]).stop().success());
    for statement in [
        &format!(
            "CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_advisory_xact_lock({LOCK}); RETURN NEW; END $$"
        ),
        "CREATE TRIGGER slow_address BEFORE UPDATE OF address ON instance FOR EACH ROW EXECUTE FUNCTION wait_for_lock()",
    ] {
        backend.database.rows(statement);
    }
    let mut holder = backend.database.session();
    holder.execute(&format!("SELECT pg_advisory_lock({LOCK})")).expect("the lock is taken");

    let mut service = Posthaste::launch(&backend, "serve", &[], "");
    until("the start waits for the lock", WAIT_MAX, || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        (backend.database.rows(waiting)[0][0] != "0").then_some(())
    });
    service.signal("TERM");

    assert!(service.await_exit(WAIT_MAX).success());
    let owned = "SELECT partition FROM outbox_lease WHERE owner IS NOT NULL";
    assert_eq!(backend.database.rows(owned), Vec::<Vec<String>>::new());
}
