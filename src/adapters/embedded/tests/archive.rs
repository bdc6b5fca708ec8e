//! The sweep of the archive: rows that were sent late stay and do not hold back the others.
use std::path::Path;
use std::time::Duration;

use embedded::Embedded;
use ports::outbox::OutboxStore;

use crate::support::*;

const DAY: Duration = Duration::from_secs(86_400);
const PAGE: u64 = 3;

/// Sends the events of this many orders, and makes the first of them be sent two days later than the others. Three days have passed then.
async fn send(store: &Embedded, folder: &Path, clock: &ManualClock, orders: u16, late: u16) {
    for number in 0..orders {
        place(store, number, 0).await;
    }
    let mut worker = Worker::start(store).await;
    let batch = worker.claim().await;
    let published = worker.publish(&batch).await;
    assert_eq!(worker.settle(&batch, published).await, u64::from(orders));
    let sql = rusqlite::Connection::open(folder.join("posthaste.db")).unwrap();
    let delay = "UPDATE outbox_archive SET sent_at = sent_at + ?1 WHERE id < ?2";
    sql.execute(delay, [2 * DAY.as_millis() as i64, batch.rows[0].id + i64::from(late)]).unwrap();
    clock.advance(3 * DAY);
}

/// Sweeps one page after the other until a page is not full; returns the number of archived rows.
async fn sweep(store: &Embedded) -> u64 {
    while store.sweep(2 * DAY, PAGE as u32).await.unwrap() >= PAGE {}
    store.depth().await.unwrap().sent
}

#[tokio::test]
async fn row_that_was_sent_late_does_not_slow_the_sweep() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    send(&store, folder.path(), &clock, 10, 1).await;

    assert_eq!(sweep(&store).await, 1, "pages follow at once while there are expired rows");

    clock.advance(2 * DAY);
    assert_eq!(sweep(&store).await, 0);
}

#[tokio::test]
async fn pages_of_late_rows_do_not_end_the_sweep() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    send(&store, folder.path(), &clock, 12, 7).await;

    // Two pages have only rows that stay.
    assert_eq!([sweep(&store).await, sweep(&store).await, sweep(&store).await], [12, 12, 7]);

    clock.advance(2 * DAY);
    assert_eq!(sweep(&store).await, 0);
}

#[tokio::test]
async fn sweep_that_meets_young_rows_waits_for_its_interval() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    send(&store, folder.path(), &clock, 2, 0).await;
    place(&store, 100, 0).await;
    let mut worker = Worker::start(&store).await;
    let batch = worker.claim().await;
    let published = worker.publish(&batch).await;
    worker.settle(&batch, published).await;

    assert_eq!(store.sweep(2 * DAY, PAGE as u32).await.unwrap(), 2);
}
