//! A clock that was ahead and was corrected: the clean-up reaches the rows that were written afterwards when their retention has passed.
use std::path::Path;
use std::time::Duration;

use domain::{EventId, Subject, Timestamp};
use embedded::Embedded;
use ports::broker::Position;
use ports::inbox::{Inbox, ProcessedEvent};
use ports::orders::{CommitOutcome, IdempotencyRecord, OrderStore};
use ports::outbox::OutboxStore;

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3_600);
const AHEAD: Duration = Duration::from_secs(5 * 3_600);
/// Rows of one table before and after the correction: more than a page.
const ROWS: u16 = 4;
const PAGE: u32 = 3;
/// The longest retention of the log in these options, and longer than the clock was ahead.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Writes rows of each table that a sweep shortens: idempotency records, processed events, records of the log and archived rows.
async fn write(store: &Embedded, numbers: std::ops::Range<u16>) {
    for number in numbers {
        let mut commit = change(number, 0);
        let order_id = commit.order.id;
        let key = number.to_string().into();
        let subject = Subject::new("ann").unwrap();
        commit.idempotency_record = Some(IdempotencyRecord { subject, key, fingerprint: [0; 32], order_id });
        assert_eq!(OrderStore::commit(store, commit).await.unwrap(), CommitOutcome::Done);
        let event_id = EventId::new_v7(Timestamp::from_millis(number.into()), [1; 10]);
        let position = Position { topic: "t".into(), partition: 0, offset: number.into() };
        Inbox::commit(store, "g", vec![ProcessedEvent { event_id, position, effects: Vec::new() }]).await.unwrap();
    }
    let mut worker = Worker::start(store).await;
    let batch = worker.claim().await;
    let published = worker.publish(&batch).await;
    worker.settle(&batch, published).await;
}

/// Sweeps each table until a sweep deletes nothing.
async fn sweep(store: &Embedded) {
    while store.sweep_idempotency_records(RETENTION, PAGE).await.unwrap() > 0 {}
    while Inbox::sweep(store, RETENTION, PAGE).await.unwrap() > 0 {}
    while OutboxStore::sweep(store, RETENTION, PAGE).await.unwrap() > 0 {}
    while store.sweep_log(PAGE).await.unwrap() > 0 {}
}

/// The rows of each table.
fn rows(folder: &Path) -> [u32; 4] {
    let sql = rusqlite::Connection::open(folder.join("posthaste.db")).unwrap();
    ["idempotency_record", "processed_events", "outbox_archive", "log"]
        .map(|table| sql.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap())
}

#[tokio::test]
async fn rows_written_while_the_clock_was_ahead_do_not_stop_the_clean_up() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    clock.advance(AHEAD);
    write(&store, 0..ROWS).await;
    store.close().await.unwrap();
    drop(store);

    clock.turn_back(AHEAD);
    let store = inline(folder.path(), &clock);
    write(&store, ROWS..2 * ROWS).await;
    clock.advance(RETENTION - HOUR);
    sweep(&store).await;
    assert_eq!(rows(folder.path()), [u32::from(2 * ROWS); 4], "no row is older than the retention");

    clock.advance(2 * HOUR);
    sweep(&store).await;
    assert_eq!(rows(folder.path()), [0; 4]);
}

#[tokio::test]
async fn times_of_a_correct_clock_stay_when_the_store_is_opened_again() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    write(&store, 0..ROWS).await;
    store.close().await.unwrap();
    drop(store);

    clock.advance(RETENTION / 2);
    let store = inline(folder.path(), &clock);
    clock.advance(RETENTION / 2 + HOUR);
    sweep(&store).await;

    assert_eq!(rows(folder.path()), [0; 4]);
}
