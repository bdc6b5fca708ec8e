//! The writer thread: groups share a commit, a failed command affects no other, a full disk changes nothing, closing finishes the queue.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::Timestamp;
use ports::Error;
use ports::clock::Clock;
use ports::partitions::InstanceId;
use ports::probe::Probe;

use crate::connection::group_commit::WriteContext;
use crate::error::{CommandResult, broken};
use crate::options::Options;
use crate::probe::StoreProbe;
use crate::store::Embedded;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_000)
    }
}

fn open(folder: &tempfile::TempDir) -> Embedded {
    let options = Options::new(folder.path(), InstanceId("i".into()), Arc::new(FixedClock));
    Embedded::open(Options { partitions: 4, ..options }).unwrap()
}

fn note(context: &WriteContext<'_>, text: &str) -> CommandResult<()> {
    context.sql.execute("INSERT INTO meta VALUES (?1, '')", [text])?;
    Ok(())
}

async fn notes(store: &Embedded) -> i64 {
    let count = "SELECT count(*) FROM meta WHERE name LIKE 'note%'";
    store.read("notes", move |sql| Ok(sql.query_row(count, [], |row| row.get(0))?)).await.unwrap()
}

/// Blocks the writer until the flag is set, so that the commands after this one queue up into one group.
async fn hold(store: &Embedded) -> (Arc<AtomicBool>, tokio::task::JoinHandle<Result<(), Error>>) {
    let (release, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (store, waits, begins) = (store.clone(), release.clone(), begun.clone());
    let held = tokio::spawn(async move {
        store
            .write("hold", move |_| {
                begins.store(true, Ordering::Release);
                while !waits.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                Ok(())
            })
            .await
    });
    while !begun.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
    (release, held)
}

#[tokio::test]
async fn group_shares_a_commit_and_a_failed_command_affects_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let frames = |store: Embedded| async move {
        let before = std::fs::metadata(store.inner.options.folder.join("posthaste.db-wal")).unwrap().len();
        before / 4_120
    };
    let (release, held) = hold(&store).await;
    let before = frames(store.clone()).await;
    let writes: Vec<_> = (0..30)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                store
                    .write("note", move |context| {
                        note(context, &format!("note {number}"))?;
                        assert!(number != 7, "a defect");
                        if number == 9 { Err(broken("no")) } else { Ok(number) }
                    })
                    .await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    while store.saturation() * 8192.0 < 29.5 {
        tokio::task::yield_now().await;
    }
    release.store(true, Ordering::Release);

    held.await.unwrap().unwrap();
    for (number, write) in writes.into_iter().enumerate() {
        let result = write.await.unwrap();
        assert_eq!(result.is_err(), number == 7 || number == 9, "{number}: {result:?}");
    }
    assert_eq!(notes(&store).await, 28);
    assert!(frames(store.clone()).await - before <= 4, "one commit writes each page once");
}

#[tokio::test]
async fn writer_waits_for_the_disk_at_each_commit() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let settings = |context: &mut WriteContext<'_>| -> CommandResult<(String, i64)> {
        let journal = context.sql.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        Ok((journal, context.sql.pragma_query_value(None, "synchronous", |row| row.get(0))?))
    };

    let settings = store.write("settings", settings).await.unwrap();

    assert_eq!(settings, ("wal".to_string(), 2), "2 is FULL");
}

#[tokio::test]
async fn full_disk_changes_nothing_and_the_next_write_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let limit = |pages: Option<u32>| {
        let store = store.clone();
        async move {
            let set = move |context: &mut WriteContext<'_>| -> CommandResult<()> {
                let now: u32 = context.sql.pragma_query_value(None, "page_count", |row| row.get(0))?;
                let text = format!("PRAGMA max_page_count = {}", pages.unwrap_or(now));
                context.sql.query_row(&text, [], |_| Ok(()))?;
                Ok(())
            };
            store.write("limit", set).await.unwrap();
        }
    };
    limit(None).await;
    let (release, held) = hold(&store).await;

    let fill = |number: usize| {
        let store = store.clone();
        tokio::spawn(async move {
            let text = format!("note {number}{}", "x".repeat(if number == 3 { 100_000 } else { 10 }));
            store.write("fill", move |context| note(context, &text)).await
        })
    };
    let writes: Vec<_> = (0..6).map(fill).collect();
    tokio::task::yield_now().await;
    release.store(true, Ordering::Release);
    held.await.unwrap().unwrap();
    let mut kept = 0;
    for (number, write) in writes.into_iter().enumerate() {
        match write.await.unwrap() {
            Ok(()) => kept += 1,
            Err(Error::Full(_)) => {}
            Err(other) => panic!("{number}: {other}"),
        }
    }

    assert!(kept < 6);
    assert_eq!(notes(&store).await, kept, "accepted writes are stored, refused ones are not");
    limit(Some(1_000_000)).await;
    let text = format!("note late{}", "x".repeat(100_000));
    store.write("fill", move |context| note(context, &text)).await.unwrap();
    assert_eq!(notes(&store).await, kept + 1);
    let probe = StoreProbe(store.clone());
    probe.check().await.unwrap();
    assert_eq!(probe.saturation(), Some(0.0));
}

#[tokio::test]
async fn close_finishes_the_queue_and_does_not_wait_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new(folder.path(), InstanceId("i".into()), Arc::new(FixedClock));
    let store = Embedded::open(Options { close_timeout: Duration::from_millis(50), ..options }).unwrap();
    let (release, held) = hold(&store).await;
    let write = tokio::spawn({
        let store = store.clone();
        async move { store.write("note", |context| note(context, "note")).await }
    });
    tokio::task::yield_now().await;

    assert!(store.close().await.is_err(), "the writer is blocked");
    release.store(true, Ordering::Release);
    held.await.unwrap().unwrap();
    write.await.unwrap().unwrap();
    // The checkpoint at the end waits for the disk, perhaps for longer than `close_timeout`.
    let started = std::time::Instant::now();
    while let Err(error) = store.close().await {
        assert!(started.elapsed() < Duration::from_secs(120), "{error}");
    }
    drop(store);
    assert_eq!(notes(&open_again(&folder)).await, 1);
}

fn open_again(folder: &tempfile::TempDir) -> Embedded {
    let options = Options::new(folder.path(), InstanceId("i".into()), Arc::new(FixedClock));
    Embedded::open(options).unwrap()
}
