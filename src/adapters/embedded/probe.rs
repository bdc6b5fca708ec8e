//! `Probe`: health checks of the store and the broker, by a write that reaches the disk.
use std::path::Path;

use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};
use tokio::time::Instant;

use crate::connection::folder::data_files::DataFiles;
use crate::connection::free_space::{is_full, write_test_file};
use crate::error::WriteError;
use crate::store::Embedded;

/// Probe of the store: updates a heartbeat row through the writer. Its saturation is the fill of the writer's queue.
pub struct StoreProbe(pub Embedded);

/// Probe of the broker. The broker is in the same file, so the check is the store's.
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

/// Free space that ends the state of a full disk. The heartbeat itself needs no new page, so it succeeds on a disk where no order can be
/// written.
const FREE_BYTES_MIN: usize = 256 * 1024;

async fn write_heartbeat(store: &Embedded) -> Result<ProbeReport, Error> {
    let started = Instant::now();
    if store.is_disk_full() {
        let folder = store.inner.options.folder.clone();
        store.write("probe_free_space", move |_| check_free_space(&folder).map_err(WriteError::Port)).await?;
        store.record_free_space();
    }
    let files = store.inner.data_files.clone();
    store
        .write("probe", move |context| {
            check_data_files(&files).map_err(WriteError::Port)?;
            let mut write_heartbeat = context.sql.prepare_cached(
                "INSERT INTO store_probe (one, beaten_at) VALUES (1, ?1) ON CONFLICT DO UPDATE SET beaten_at = excluded.beaten_at",
            )?;
            write_heartbeat.execute([context.now.millis()])?;
            Ok(())
        })
        .await?;
    Ok(ProbeReport { latency: started.elapsed() })
}

fn check_data_files(files: &DataFiles) -> Result<(), Error> {
    match files.first_moved() {
        None => Ok(()),
        Some(path) => Err(Error::Broken(format!(
            "{} was deleted, moved or replaced while the service runs, which loses all further changes when it ends; bring the same file back, \
             or stop the service and restore a backup",
            path.display()
        ))),
    }
}

fn check_free_space(folder: &Path) -> Result<(), Error> {
    write_test_file(folder, FREE_BYTES_MIN).map_err(|error| {
        let detail = format!("{}: {error}", folder.display());
        if is_full(&error) { Error::Full(detail) } else { Error::Unreachable(detail) }
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
    async fn probe_of_a_full_disk_succeeds_only_after_free_space_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path(), InstanceId("here".into()), Arc::new(SystemClock::new()));
        let store = Embedded::open(Options { writer_mode: WriterMode::Inline, ..options }).unwrap();
        let result = store.write("order", |_| Err::<(), _>(WriteError::Port(Error::Full("no room".into())))).await;
        assert!(matches!(result, Err(Error::Full(_))));
        // Writes to the link fail with a full disk. The check removes the link, so the next one succeeds.
        std::os::unix::fs::symlink("/dev/full", folder.path().join("posthaste.room")).unwrap();

        let first = StoreProbe(store.clone()).check().await;
        let second = StoreProbe(store.clone()).check().await;

        assert!(matches!(first, Err(Error::Full(_))), "{first:?}");
        assert!(second.is_ok() && !store.is_disk_full(), "{second:?}");
        assert!(!folder.path().join("posthaste.room").exists());
    }
}
