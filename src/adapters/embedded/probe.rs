//! `Probe`: signs of life that take the whole way to the disk.
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};
use tokio::time::Instant;

use crate::error::CommandError;
use crate::store::Embedded;

/// The store's pulse: a row rewritten through the writer. Its saturation is the writer's queue.
pub struct StoreProbe(pub Embedded);

/// The broker's pulse. It lives in the same file, so it beats or stops with the store.
pub struct BrokerProbe(pub Embedded);

#[async_trait]
impl Probe for StoreProbe {
    fn name(&self) -> &'static str {
        "db"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        write_heartbeat(&self.0).await
    }

    fn saturation(&self) -> Option<f64> {
        Some(self.0.saturation())
    }
}

#[async_trait]
impl Probe for BrokerProbe {
    fn name(&self) -> &'static str {
        "broker"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        write_heartbeat(&self.0).await
    }
}

/// Room that must be seen before a disk that was full counts as mended: the pulse itself fits into pages that are there already, and
/// would beat on a disk where no order can be written.
const ROOM_BYTES: usize = 256 * 1024;

async fn write_heartbeat(store: &Embedded) -> Result<ProbeReport, Error> {
    let begun = Instant::now();
    if store.is_full() {
        let path = store.inner.options.folder.join("posthaste.room");
        store.write("probe_room", move |_| look_for_room(&path).map_err(CommandError::Port)).await?;
        store.has_room();
    }
    store
        .write("probe", |context| {
            let mut write_heartbeat = context.sql.prepare_cached(
                "INSERT INTO heartbeat (one, beaten_at) VALUES (1, ?1) ON CONFLICT DO UPDATE SET beaten_at = excluded.beaten_at",
            )?;
            write_heartbeat.execute([context.now.millis()])?;
            Ok(())
        })
        .await?;
    Ok(ProbeReport { latency: begun.elapsed() })
}

fn look_for_room(path: &Path) -> Result<(), Error> {
    let tried = File::create(path).and_then(|mut file| {
        file.write_all(&vec![0; ROOM_BYTES])?;
        file.sync_all()
    });
    // What is left of it is overwritten by the next look.
    let _ = std::fs::remove_file(path);
    tried.map_err(|error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full(format!("no room left: {error}")),
        _ => Error::Unreachable(format!("{}: {error}", path.display())),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ports::partitions::InstanceId;

    use super::*;
    use crate::Options;
    use crate::WriterMode;
    use memory::SystemClock;

    #[tokio::test]
    async fn a_disk_that_was_full_beats_again_only_when_room_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path(), InstanceId("here".into()), Arc::new(SystemClock::new()));
        let store = Embedded::open(Options { writing: WriterMode::Inline, ..options }).unwrap();
        let result = store.write("order", |_| Err::<(), _>(CommandError::Port(Error::Full("no room".into())))).await;
        assert!(matches!(result, Err(Error::Full(_))));
        // Whatever is written there finds no room; the look takes the link away, and with it the full disk.
        std::os::unix::fs::symlink("/dev/full", folder.path().join("posthaste.room")).unwrap();

        let red = StoreProbe(store.clone()).check().await;
        let green = StoreProbe(store.clone()).check().await;

        assert!(matches!(red, Err(Error::Full(_))), "{red:?}");
        assert!(green.is_ok() && !store.is_full(), "{green:?}");
        assert!(!folder.path().join("posthaste.room").exists());
    }
}
