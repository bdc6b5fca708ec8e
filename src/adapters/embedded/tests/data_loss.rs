//! Files that were damaged, cut or deleted after a process was killed: a store that lost confirmed commits is refused and left as it is.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use embedded::{Embedded, OpenError, StoreProbe};
use ports::orders::OrderStore;
use ports::probe::Probe;

use crate::support::*;

const DATABASE: &str = "posthaste.db";
const WAL: &str = "posthaste.db-wal";
const LOCK: &str = "posthaste.lock";

/// Bytes of the WAL's header, and of a frame with its page.
const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 24 + 4_096;

/// The files of a process that was killed after 20 commits: no checkpoint, so the database's file has only its first page.
async fn killed() -> tempfile::TempDir {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = Embedded::open(options(folder.path(), &clock)).unwrap();
    for number in 0..20 {
        place(&store, number, 0).await;
    }
    let after = tempfile::tempdir().unwrap();
    for file in [DATABASE, WAL, LOCK] {
        fs::copy(folder.path().join(file), after.path().join(file)).unwrap();
    }
    assert_eq!(fs::metadata(after.path().join(DATABASE)).unwrap().len(), 4_096);
    after
}

fn open(folder: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(options(folder, &ManualClock::new()))
}

/// The contents of the data files.
fn contents(folder: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let read = |name| fs::read(folder.join(name)).ok().filter(|bytes| !bytes.is_empty()).map(|bytes| (name, bytes));
    [DATABASE, WAL].into_iter().filter_map(read).collect()
}

fn change_wal(folder: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(folder.join(WAL)).unwrap();
    change(&mut bytes);
    fs::write(folder.join(WAL), bytes).unwrap();
}

fn delete(folder: &Path, file: &str) {
    fs::remove_file(folder.join(file)).unwrap();
}

/// What may happen to the files of a stopped store.
type Damage = fn(&Path);

#[tokio::test]
async fn folder_that_lost_confirmed_commits_is_refused_and_not_changed() {
    let damages: [(&str, Damage, &str); 8] = [
        (
            "a flipped byte",
            |folder| change_wal(folder, |wal| wal[HEADER_BYTES + 50 * FRAME_BYTES + 99] ^= 1),
            "frame 51",
        ),
        ("zeros", |folder| change_wal(folder, |wal| wal[HEADER_BYTES + 50 * FRAME_BYTES..][..8].fill(0)), "frame 51"),
        ("another header", |folder| change_wal(folder, |wal| wal[..HEADER_BYTES].fill(b'x')), "header"),
        ("a wrong salt", |folder| change_wal(folder, |wal| wal[17] ^= 1), "header"),
        ("no log", |folder| delete(folder, WAL), "posthaste.db has no tables"),
        ("an empty database", |folder| fs::write(folder.join(DATABASE), "").unwrap(), "missing or empty"),
        ("no database", |folder| delete(folder, DATABASE), "missing or empty"),
        (
            "no database and no lock file",
            |folder| {
                delete(folder, DATABASE);
                delete(folder, LOCK);
            },
            "has changes of it",
        ),
    ];
    let killed = killed().await;
    for (name, damage, reason) in damages {
        let folder = tempfile::tempdir().unwrap();
        for file in [DATABASE, WAL, LOCK] {
            fs::copy(killed.path().join(file), folder.path().join(file)).unwrap();
        }
        damage(folder.path());
        let before = contents(folder.path());

        let operator = Embedded::open_for_operator(folder.path(), ManualClock::new()).map(drop);
        let schema = Embedded::schema_versions(folder.path()).map(drop);
        let attempts = [operator, schema, open(folder.path()).map(drop), open(folder.path()).map(drop)];

        for attempt in attempts {
            let Err(error) = attempt else { panic!("{name}: the folder was opened") };
            assert!(matches!(error, OpenError::Damaged { .. }), "{name}: {error:?}");
            assert!(error.to_string().contains(reason), "{name}: {error}");
        }
        assert!(contents(folder.path()) == before, "{name}: the files were changed");
    }
}

#[tokio::test]
async fn killed_store_without_damage_is_opened_with_every_commit() {
    let killed = killed().await;

    let store = open(killed.path()).unwrap();

    for number in 0..20 {
        assert!(store.find(id(number)).await.unwrap().is_some(), "{number}");
    }
}

/// A power cut during the last commit leaves some of its frames.
#[tokio::test]
async fn torn_last_commit_is_not_damage() {
    let killed = killed().await;
    change_wal(killed.path(), |wal| {
        let end = wal.len();
        wal[end - FRAME_BYTES - 100] ^= 1;
    });

    let store = open(killed.path()).unwrap();

    assert!(store.find(id(18)).await.unwrap().is_some());
    assert!(store.find(id(19)).await.unwrap().is_none(), "the test tears the last commit");
}

#[tokio::test]
async fn data_deleted_with_its_lock_file_begins_anew() {
    let killed = killed().await;
    for file in [DATABASE, WAL, LOCK] {
        delete(killed.path(), file);
    }

    let store = open(killed.path()).unwrap();

    assert!(store.find(id(1)).await.unwrap().is_none());
}

/// Times at which a first start can be killed: before and after SQLite has written the first page.
#[test]
fn first_start_that_was_killed_is_repeated() {
    let first_page = {
        let folder = tempfile::tempdir().unwrap();
        let sql = rusqlite::Connection::open(folder.path().join(DATABASE)).unwrap();
        sql.pragma_update(None, "journal_mode", "WAL").unwrap();
        fs::read(folder.path().join(DATABASE)).unwrap()
    };
    for database in [Vec::new(), first_page] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK), "instance=a\npid=1\nfolder=/data\naddress=\n").unwrap();
        fs::write(folder.path().join(DATABASE), &database).unwrap();

        open(folder.path()).unwrap();
    }
}

/// A restored backup: the file alone, without its log, beside the lock file of the lost data.
#[tokio::test]
async fn restored_backup_is_opened() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = Embedded::open(options(folder.path(), &clock)).unwrap();
    place(&store, 1, 0).await;
    store.close().await.unwrap();
    drop(store);
    let killed = killed().await;
    delete(killed.path(), WAL);
    fs::copy(folder.path().join(DATABASE), killed.path().join(DATABASE)).unwrap();

    let store = open(killed.path()).unwrap();

    assert!(store.find(id(1)).await.unwrap().is_some());
}

#[cfg(unix)]
#[tokio::test]
async fn probe_fails_while_a_file_of_the_store_is_not_at_its_path() {
    let (parent, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let (folder, elsewhere) = (parent.path().join("data"), parent.path().join("elsewhere"));
    let store = Embedded::open(options(&folder, &clock)).unwrap();
    place(&store, 1, 0).await;
    let probe = StoreProbe(store.clone());
    probe.check().await.unwrap();

    for path in [folder.join(DATABASE), folder.join(WAL), folder.clone()] {
        fs::rename(&path, &elsewhere).unwrap();
        let deleted = probe.check().await;
        if path == folder {
            fs::create_dir(&path).unwrap()
        } else {
            fs::write(&path, "").unwrap()
        }
        let replaced = probe.check().await;
        if path == folder {
            fs::remove_dir(&path).unwrap()
        }
        fs::rename(&elsewhere, &path).unwrap();

        for failed in [deleted, replaced] {
            assert!(matches!(&failed, Err(ports::Error::Broken(text)) if text.contains("posthaste.db")), "{failed:?}");
        }
        probe.check().await.unwrap();
    }
}

/// The folder itself is locked, so the lock file is not needed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn probe_succeeds_without_the_lock_file() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = Embedded::open(options(folder.path(), &clock)).unwrap();
    delete(folder.path(), LOCK);

    StoreProbe(store).check().await.unwrap();
}
