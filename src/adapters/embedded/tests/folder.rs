//! Opening a data folder: its lock, its schema, and the errors when it cannot be opened.
use embedded::{Embedded, OpenError, Options, WriterMode};
use ports::orders::OrderStore;

use crate::support::*;

#[test]
fn second_process_is_refused_with_the_holder_in_the_error() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let first = Embedded::open(options(folder.path(), &clock)).unwrap();
    first.announce("127.0.0.1:8080").unwrap();

    let second = Embedded::open(options(folder.path(), &clock)).err().unwrap();

    let OpenError::Held { instance, pid, address, .. } = &second else { panic!("{second}") };
    assert_eq!((instance.as_str(), address.as_str()), ("here:8080", "127.0.0.1:8080"));
    assert_eq!(*pid, std::process::id().to_string());
    assert!(second.to_string().contains("here:8080"), "{second}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn folder_stays_locked_without_its_lock_file() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let first = Embedded::open(options(folder.path(), &clock)).unwrap();
    std::fs::remove_file(folder.path().join("posthaste.lock")).unwrap();

    let second = Embedded::open(options(folder.path(), &clock)).err().unwrap();

    assert!(matches!(second, OpenError::Locked { .. }), "{second}");
    assert!(!folder.path().join("posthaste.lock").exists(), "a refused process leaves nothing behind");
    first.close().await.unwrap();
    Embedded::open(options(folder.path(), &clock)).unwrap();
}

/// As `flock FOLDER posthaste serve` does.
#[cfg(target_os = "linux")]
#[test]
fn folder_that_another_program_has_locked_is_refused_with_its_process() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    drop(Embedded::open(options(folder.path(), &clock)).unwrap());
    let held = std::fs::File::open(folder.path()).unwrap();
    held.lock().unwrap();

    let refused = Embedded::open(options(folder.path(), &clock)).err().unwrap();

    let OpenError::Locked { holder, .. } = &refused else { panic!("{refused}") };
    assert!(holder.starts_with(&format!("process {} (", std::process::id())), "{holder}");
    assert!(refused.to_string().contains("must lock another file"), "{refused}");
    drop(held);
    Embedded::open(options(folder.path(), &clock)).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn link_to_the_database_of_another_service_is_refused() {
    let (folder, other, clock) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), ManualClock::new());
    let first = Embedded::open(options(folder.path(), &clock)).unwrap();
    std::os::unix::fs::symlink(folder.path().join("posthaste.db"), other.path().join("posthaste.db")).unwrap();

    let second = Embedded::open(options(other.path(), &clock)).err().unwrap();

    let OpenError::Held { instance, .. } = &second else { panic!("{second}") };
    assert_eq!(instance, "here:8080");
    first.close().await.unwrap();
    let linked = Embedded::open(options(other.path(), &clock)).unwrap();
    assert!(matches!(Embedded::open(options(folder.path(), &clock)), Err(OpenError::Locked { .. })));
    drop(linked);
}

#[tokio::test]
async fn closed_store_releases_its_folder_and_refuses_commands() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let first = Embedded::open(options(folder.path(), &clock)).unwrap();
    place(&first, 1, 0).await;

    first.close().await.unwrap();

    assert!(matches!(OrderStore::commit(&first, change(2, 0)).await, Err(ports::Error::Unreachable(_))));
    assert!(matches!(first.find(id(1)).await, Err(ports::Error::Unreachable(_))));
    let second = Embedded::open(options(folder.path(), &clock)).unwrap();
    assert!(second.find(id(1)).await.unwrap().is_some());
    assert_eq!(second.installation(), first.installation());
    first.close().await.unwrap();
}

#[test]
fn stale_lock_file_does_not_block_the_folder() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let lock = folder.path().join("posthaste.lock");
    std::fs::write(&lock, "instance=dead\npid=1\naddress=x\n").unwrap();

    let _store = Embedded::open(options(folder.path(), &clock)).unwrap();

    let holder = std::fs::read_to_string(lock).unwrap();
    assert!(holder.contains("instance=here:8080\n"), "the file is the lock, and names its new holder: {holder}");
    let second = Embedded::open(options(folder.path(), &clock)).err().unwrap();
    assert!(matches!(second, OpenError::Held { .. }), "{second}");
}

#[test]
fn another_number_of_partitions_is_refused() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    drop(inline(folder.path(), &clock));

    let error = Embedded::open(Options { partitions: 8, ..options(folder.path(), &clock) }).err().unwrap();

    assert!(matches!(error, OpenError::PartitionsChanged { installed: 4, configured: 8, .. }), "{error}");
}

#[cfg(unix)]
#[test]
fn new_folder_belongs_to_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (parent, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let folder = parent.path().join("data");

    drop(Embedded::open(options(&folder, &clock)).unwrap());

    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn path_of_a_file_is_refused_as_not_writable() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let path = folder.path().join("data");
    std::fs::write(&path, "not a folder").unwrap();

    let error = Embedded::open(options(&path, &clock)).err().unwrap();

    assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
}

#[cfg(unix)]
#[test]
fn path_that_can_never_be_opened_is_refused_at_once_with_its_reason() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let with_lock_folder = folder.path().join("lock");
    std::fs::create_dir_all(with_lock_folder.join("posthaste.lock")).unwrap();
    let cases = [
        (folder.path().join("x".repeat(256)), "File name too long"),
        (with_lock_folder, "Is a directory"),
        (folder.path().join("zero\0"), "NUL byte"),
    ];
    for (path, reason) in cases {
        let error = Embedded::open(options(&path, &clock)).err().unwrap();

        assert!(!error.is_temporary() && error.to_string().contains(reason), "{error:?}");
    }
}

/// SQLite opens no longer path, and reports no reason.
#[cfg(unix)]
#[test]
fn path_over_the_limit_of_sqlite_is_refused_before_a_folder_is_created() {
    let (root, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let root = root.path().canonicalize().unwrap();
    // The path of a database in a folder below `root`, with this many bytes.
    let folder = |bytes: usize| {
        let rest = bytes - root.as_os_str().len() - "/posthaste.db".len() - "///".len();
        root.join("a".repeat(200)).join("b".repeat(150)).join("c".repeat(rest - 350))
    };
    let (longest, too_long) = (folder(504), folder(505));

    let error = Embedded::open(options(&too_long, &clock)).err().unwrap();

    assert!(error.to_string().contains("505 bytes, and SQLite opens paths of 504 bytes at most"), "{error}");
    assert!(!error.is_temporary() && !too_long.parent().unwrap().exists(), "nothing was created");
    Embedded::open(options(&longest, &clock)).unwrap();
}

#[test]
fn damaged_file_is_refused_and_not_changed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let path = folder.path().join("posthaste.db");
    let not_a_database = b"this is not a database, but it is long enough to be read as one ".repeat(20);
    std::fs::write(&path, &not_a_database).unwrap();

    let error = Embedded::open(options(folder.path(), &clock)).err().unwrap();

    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), not_a_database);
}

#[test]
fn foreign_databases_and_newer_schemas_are_refused() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let path = folder.path().join("posthaste.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE foreign_table (x)").unwrap();
    let error = Embedded::open(options(folder.path(), &clock)).err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");

    std::fs::remove_file(&path).unwrap();
    drop(inline(folder.path(), &clock));
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Embedded::open(options(folder.path(), &clock)).err().unwrap();
    assert!(matches!(error, OpenError::NewerSchema { found: 99, .. }), "{error:?}");
    assert!(error.to_string().ends_with("run the newer program"), "{error}");
    let (found, known) = Embedded::schema_versions(folder.path()).unwrap();
    assert!(found == Some(99) && known < 99, "the version of a newer file is returned");
    assert_eq!(Embedded::schema_versions(&folder.path().join("nowhere")).unwrap(), (None, known));
}

#[tokio::test]
async fn confirmed_commits_survive_a_killed_process() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = Embedded::open(options(folder.path(), &clock)).unwrap();
    for number in 0..20 {
        place(&store, number, 0).await;
    }

    // A killed process leaves the files as they are, without a checkpoint.
    let after = tempfile::tempdir().unwrap();
    for file in ["posthaste.db", "posthaste.db-wal"] {
        std::fs::copy(folder.path().join(file), after.path().join(file)).unwrap();
    }
    let reopened = Embedded::open(options(after.path(), &clock)).unwrap();

    for number in 0..20 {
        assert_eq!(reopened.find(id(number)).await.unwrap(), store.find(id(number)).await.unwrap());
        assert!(reopened.find(id(number)).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn operator_reads_and_acts_while_a_service_runs() {
    use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RowFilter};
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let service = Embedded::open(options(folder.path(), &clock)).unwrap();
    place(&service, 1, 0).await;

    let operator = Embedded::open_for_operator(folder.path(), clock.clone()).unwrap();
    let rows = operator.rows(&RowFilter::default(), 10).await.unwrap();
    let audit = Audit { operator: "ann".into(), reason: "inspection".into() };
    assert_eq!(operator.park(rows[0].id, &audit).await.unwrap(), OperatorOutcome::Done(1));

    let row = service.row(rows[0].id).await.unwrap().unwrap();
    assert_eq!(row.status, ports::outbox::RowStatus::Parked);
    place(&service, 2, 0).await;
    assert!(operator.find(id(2)).await.unwrap().is_some());
    let nowhere = Embedded::open_for_operator(&folder.path().join("nowhere"), clock).err().unwrap();
    assert!(matches!(nowhere, OpenError::Absent { .. }));
}

/// A checkpoint that waits for readers keeps the write lock meanwhile, and a backup reads for long.
#[tokio::test]
async fn operator_that_closes_during_a_long_read_keeps_no_write_waiting() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let service = Embedded::open(options(folder.path(), &clock)).unwrap();
    place(&service, 1, 0).await;
    let connection = || rusqlite::Connection::open(folder.path().join("posthaste.db")).unwrap();
    let (reader, writer) = (connection(), connection());
    reader.execute_batch("BEGIN; SELECT count(*) FROM orders").unwrap();
    place(&service, 2, 0).await;
    writer.busy_timeout(std::time::Duration::ZERO).unwrap();

    let operator = Embedded::open_for_operator(folder.path(), clock.clone()).unwrap();
    let closing = std::thread::spawn(move || drop(operator));
    while !closing.is_finished() {
        writer.execute_batch("BEGIN IMMEDIATE; ROLLBACK").expect("no other connection holds the write lock");
    }

    closing.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn inline_commands_need_no_progress_of_the_clock() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = Embedded::open(Options { writer_mode: WriterMode::Inline, ..options(folder.path(), &clock) }).unwrap();
    let started = tokio::time::Instant::now();

    place(&store, 1, 0).await;

    assert!(store.find(id(1)).await.unwrap().is_some());
    assert_eq!(started.elapsed(), std::time::Duration::ZERO);
}

#[test]
fn views_have_their_documented_columns() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    drop(inline(folder.path(), &clock));
    let sql = rusqlite::Connection::open(folder.path().join("posthaste.db")).unwrap();
    let columns = |view: &str| -> Vec<String> {
        let statement = sql.prepare(&format!("SELECT * FROM {view}")).unwrap();
        statement.column_names().map(String::from).collect()
    };

    assert_eq!(columns("outbox_debezium"), ["id", "aggregatetype", "aggregateid", "type", "payload"]);
    let rows = columns("outbox_rows");
    for name in
        "id event_id key type partition status lease_owner lease_version retry_count next_attempt_at failure_type \
                 last_failure_reason created_at sent_at last_attempt_at"
            .split_whitespace()
    {
        assert!(rows.iter().any(|column| column == name), "{name}");
    }
}

/// SQLite has no types of columns; Debezium's documented ones (uuid, varchar(255) and jsonb) are held by the values.
#[tokio::test]
async fn debezium_view_shows_values_of_the_documented_types() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let mut commit = change(1, 0);
    commit.events[0].payload = b"{\"sequence\":1}".as_slice().into();
    store.commit(commit).await.unwrap();
    let sql = rusqlite::Connection::open(folder.path().join("posthaste.db")).unwrap();
    let documented = "SELECT typeof(id) = 'text' AND length(id) = 36 AND substr(id, 9, 1) || substr(id, 24, 1) = '--'
          AND typeof(aggregatetype) = 'text' AND typeof(aggregateid) = 'text' AND typeof(type) = 'text'
          AND max(length(aggregatetype), length(aggregateid), length(type)) <= 255 AND json_valid(payload),
        aggregatetype, aggregateid, type FROM outbox_debezium";

    let row = sql
        .query_row(documented, [], |row| {
            Ok((row.get::<_, bool>(0)?, [row.get::<_, String>(1)?, row.get(2)?, row.get(3)?]))
        })
        .unwrap();

    assert_eq!(row, (true, ["order".to_owned(), id(1).to_string(), "ORDER_CREATED".to_owned()]));
}
