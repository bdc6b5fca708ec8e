//! Opening and closing the store.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use outbox::limits::TRIAL_INTERVAL;
use parking_lot::Mutex;
use ports::Error;
use ports::clock::Clock;
use ports::partitions::InstanceId;
use rusqlite::Connection;

use crate::broker::log_state::LogState;
use crate::broker::topic_admissions::TopicAdmissions;
use crate::connection::folder::check::{check_files, open_complete, wal_path};
use crate::connection::folder::data_files::DataFiles;
use crate::connection::folder::lock::{FolderLock, recorded_installation};
use crate::connection::folder::path_length::check_length;
use crate::connection::group_commit::{SavepointMode, WriteContext, WritingConnection};
use crate::connection::migrations::{self, Installation};
use crate::connection::open_error::OpenError;
use crate::connection::readers::Readers;
use crate::connection::settings;
use crate::connection::times_ahead;
use crate::connection::writer::Writer;
use crate::consumer::joined_groups::{self, JoinedGroups};
use crate::error::CommandResult;
use crate::options::{Options, WriterMode};

/// Reads that may wait for a reader; a further one is refused at once.
const READS_MAX: usize = 4096;

/// Longest time of a read that has begun. The same as the limit of a statement on PostgreSQL: callers wait for about ten seconds.
const READ_TIME_MAX: Duration = Duration::from_secs(8);

/// The embedded store and broker of one service: implements every durable port. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Embedded {
    pub(crate) inner: Arc<EmbeddedState>,
}

pub(crate) struct EmbeddedState {
    writer: Writer,
    /// `None` in inline mode, where reads use the writing connection.
    readers: Option<Readers>,
    pub(crate) log_state: Arc<LogState>,
    pub(crate) topic_admissions: TopicAdmissions,
    pub(crate) joined_groups: Arc<JoinedGroups>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) installation: Arc<str>,
    pub(crate) partitions: u32,
    pub(crate) options: Options,
    /// The id after which the next page of the archive's sweep begins.
    pub(crate) swept_archive_id: AtomicI64,
    /// Whether a write found the disk full and no probe has found free space since.
    disk_full: AtomicBool,
    /// The files that a service has open. Without paths for an operator's command, which ends soon.
    pub(crate) data_files: Arc<DataFiles>,
    lock: Mutex<Option<FolderLock>>,
}

impl Embedded {
    /// Opens a folder for a service: locks it, creates or migrates the file, and expires the leases of the former process. Blocks the calling
    /// thread.
    ///
    /// # Errors
    /// [`OpenError`] names the cause. Nothing was changed, except that an older file may have been migrated.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let folder = &options.folder;
        check_length(&folder.join(settings::FILE))?;
        create_private(folder).map_err(|error| OpenError::from_io(folder, &error))?;
        let mut lock = FolderLock::acquire(&options)?;
        let path = folder.join(settings::FILE);
        let sql_error = |error: rusqlite::Error| OpenError::from_sqlite(&path, &error);
        check_files(folder, lock.installation())?;
        let (mut sql, found) = open_complete(folder, lock.installation(), settings::open)?;
        migrations::check_supported(found, &path)?;
        settings::for_writing(&sql, options.cache_kib, options.writer_mode).map_err(sql_error)?;
        let installation = Installation { id: options.installation.as_deref(), partitions: options.partitions.max(1) };
        migrations::migrate(&mut sql, found, &installation).map_err(sql_error)?;
        let installation = read_meta(&sql, "installation").map_err(sql_error)?;
        lock.record_installation(&installation).map_err(|error| OpenError::from_io(folder, &error))?;
        check_partitions(&sql, &path, options.partitions)?;
        expire_stale_leases(&sql).map_err(sql_error)?;
        let now = options.clock.now();
        times_ahead::bound_due_times(&sql, now.plus(options.retry_delay_max.max(TRIAL_INTERVAL))).map_err(sql_error)?;
        times_ahead::lower_recorded_times(&sql, now).map_err(sql_error)?;
        joined_groups::skip_downtime(&sql, now).map_err(sql_error)?;
        let readers = match options.writer_mode {
            WriterMode::Thread => open_readers(&path, options.readers)?,
            WriterMode::Inline => Vec::new(),
        };
        Self::assemble(options, sql, readers, Some(lock), &path)
    }

    /// Opens a folder without its lock, for reads and operator actions while a service may be running on it. A write waits up to 5 s for the
    /// service's commit. The caller claims no rows and acquires no leases. Commands run on the calling thread and are durable.
    ///
    /// # Errors
    /// [`OpenError::Absent`] if the folder contains no store of this schema version; otherwise as [`Embedded::open`].
    pub fn open_for_operator(folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let installation = recorded_installation(folder)?;
        check_files(folder, installation.as_deref())?;
        let path = folder.join(settings::FILE);
        let absent = |reason: &str| OpenError::Absent { path: path.clone(), reason: reason.to_string() };
        if !path.is_file() {
            return Err(absent(
                "there is no such file; start the service once, or set store.path to the folder of its data",
            ));
        }
        let sql_error = |error: rusqlite::Error| OpenError::from_sqlite(&path, &error);
        let (sql, found) = open_complete(folder, installation.as_deref(), settings::open_existing)?;
        migrations::check_supported(found, &path)?;
        if found < migrations::LATEST {
            return Err(absent("its schema is older than this program; start the service once"));
        }
        settings::for_writing(&sql, 2 * 1024, WriterMode::Thread).map_err(sql_error)?;
        let mut options = Options::new(folder, InstanceId("operator".into()), clock);
        options.writer_mode = WriterMode::Inline;
        Self::assemble(options, sql, Vec::new(), None, &path)
    }

    /// The schema version of a folder's file (`None` without a file) and the latest version that this program knows. Changes nothing. A later
    /// program's file is not an error here.
    ///
    /// # Errors
    /// The file cannot be read, or is not a posthaste database.
    pub fn schema_versions(folder: &Path) -> Result<(Option<u32>, u32), OpenError> {
        let installation = recorded_installation(folder)?;
        check_files(folder, installation.as_deref())?;
        let path = folder.join(settings::FILE);
        if !path.is_file() {
            return Ok((None, migrations::LATEST));
        }
        let (_, found) = open_complete(folder, installation.as_deref(), settings::open_existing)?;
        Ok((Some(found).filter(|found| *found > 0), migrations::LATEST))
    }

    fn assemble(
        options: Options,
        sql: Connection,
        readers: Vec<Connection>,
        lock: Option<FolderLock>,
        path: &Path,
    ) -> Result<Self, OpenError> {
        let sql_error = |error: rusqlite::Error| OpenError::from_sqlite(path, &error);
        let io_error = |error: std::io::Error| OpenError::from_io(path, &error);
        let installation: String = read_meta(&sql, "installation").map_err(sql_error)?;
        let partitions = installed_partitions(&sql).map_err(sql_error)?;
        let log_state = Arc::new(LogState::default());
        crate::broker::log::load(&sql, &log_state).map_err(sql_error)?;
        let unindexed_orders = crate::orders::owner_index::unindexed_count(&sql).map_err(sql_error)?;
        let writer = WritingConnection::new(sql, options.clock.clone(), log_state.clone(), unindexed_orders);
        let (writer, readers) = match options.writer_mode {
            WriterMode::Inline => (Writer::Inline(Mutex::new(Some(writer))), None),
            WriterMode::Thread => {
                let writer = Writer::start_thread(writer, options.queue_max, options.group_max).map_err(io_error)?;
                (writer, Some(Readers::new(readers, READS_MAX, READ_TIME_MAX).map_err(io_error)?))
            }
        };
        let data_files = lock.as_ref().map(|lock| {
            let files = [path.to_path_buf(), wal_path(path)];
            DataFiles::new(files.into_iter().chain(lock.needed_file()))
        });
        let inner = EmbeddedState {
            writer,
            readers,
            log_state,
            topic_admissions: TopicAdmissions::default(),
            joined_groups: Arc::default(),
            clock: options.clock.clone(),
            installation: installation.into(),
            partitions,
            options,
            swept_archive_id: AtomicI64::new(0),
            disk_full: AtomicBool::new(false),
            data_files: Arc::new(data_files.unwrap_or_default()),
            lock: Mutex::new(lock),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The id of the installation, generated when the folder was first used.
    pub fn installation(&self) -> &str {
        &self.inner.installation
    }

    /// The number of outbox partitions, fixed when the folder was first used.
    pub fn partitions(&self) -> u32 {
        self.inner.partitions
    }

    /// Writes the address of this service into the lock file; [`OpenError::Held`] shows it to other processes.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Unreachable`]; the lock itself is not affected.
    pub fn announce(&self, address: &str) -> Result<(), Error> {
        let mut lock = self.inner.lock.lock();
        let Some(lock) = lock.as_mut() else { return Ok(()) };
        lock.write_holder(address).map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull => Error::Full(format!("announce: {error}")),
            _ => Error::Unreachable(format!("announce: {error}")),
        })
    }

    /// Runs the queued commands, checkpoints the write-ahead log and releases the folder. Idempotent, also after a dropped call.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the writer is still busy after `close_timeout`; the folder then stays locked until the process ends.
    pub async fn close(&self) -> Result<(), Error> {
        let limit = self.inner.options.close_timeout;
        if let Some(readers) = &self.inner.readers {
            readers.close();
            readers.finished(limit).await;
        }
        self.inner.writer.close();
        if !self.inner.writer.finished(limit).await {
            return Err(Error::Unreachable("close: the writer is still busy".into()));
        }
        self.inner.lock.lock().take();
        Ok(())
    }

    /// Runs a command on the writer, in its own savepoint: it may fail after it has written.
    pub(crate) async fn write<T, F>(&self, operation: &'static str, command: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send + 'static,
    {
        self.write_with(operation, SavepointMode::OwnSavepoint, command).await
    }

    /// Runs a command that checks every reason to refuse before it writes, so it needs no savepoint. See [`SavepointMode::NoSavepoint`].
    pub(crate) async fn write_without_savepoint<T, F>(&self, operation: &'static str, command: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send + 'static,
    {
        self.write_with(operation, SavepointMode::NoSavepoint, command).await
    }

    async fn write_with<T, F>(
        &self,
        operation: &'static str,
        savepoint_mode: SavepointMode,
        command: F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send + 'static,
    {
        let started = tokio::time::Instant::now();
        let result = self.inner.writer.call(operation, savepoint_mode, command).await;
        if matches!(result, Err(Error::Full(_))) {
            self.inner.disk_full.store(true, Relaxed);
        }
        self.measure(operation, started);
        result
    }

    /// Runs a read on a reader's connection, or on the writing one in inline mode.
    pub(crate) async fn read<T, F>(&self, operation: &'static str, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> CommandResult<T> + Send + 'static,
    {
        let started = tokio::time::Instant::now();
        let result = match &self.inner.readers {
            Some(readers) => readers.read(operation, read).await,
            None => self.inner.writer.read_inline(operation, read),
        };
        self.measure(operation, started);
        result
    }

    /// Whether a write found the disk full and no probe has found free space since.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.inner.disk_full.load(Relaxed)
    }

    /// Records that a probe found free space on the disk.
    pub(crate) fn record_free_space(&self) {
        self.inner.disk_full.store(false, Relaxed);
    }

    /// Share of the writer's queue in use, 0.0..=1.0.
    pub(crate) fn saturation(&self) -> f64 {
        self.inner.writer.saturation()
    }

    fn measure(&self, operation: &str, started: tokio::time::Instant) {
        let duration = started.elapsed();
        if let Some(metrics) = &self.inner.options.metrics {
            metrics.db_query_duration.with([operation]).record(duration);
        }
        let duration_ms = duration.as_secs_f64() * 1e3;
        tracing::debug!(event = "dependency_called", operation, duration_ms, "the embedded store was called");
    }
}

/// For a store dropped without [`Embedded::close`]: the queued commands still run, and then the folder is released.
impl Drop for EmbeddedState {
    fn drop(&mut self) {
        const TIMEOUT: Duration = Duration::from_secs(5);
        if let Some(readers) = &self.readers {
            readers.close();
            readers.finished_blocking(TIMEOUT);
        }
        self.writer.close();
        if !self.writer.finished_blocking(TIMEOUT) {
            // The writer may still write, so no other process may lock the folder. The lock is released when this process ends.
            std::mem::forget(self.lock.lock().take());
        }
    }
}

fn read_meta(sql: &Connection, name: &str) -> rusqlite::Result<String> {
    sql.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0))
}

fn installed_partitions(sql: &Connection) -> rusqlite::Result<u32> {
    sql.query_row("SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'partitions'", [], |row| row.get(0))
}

fn check_partitions(sql: &Connection, path: &Path, configured: u32) -> Result<(), OpenError> {
    let installed = installed_partitions(sql).map_err(|error| OpenError::from_sqlite(path, &error))?;
    if installed == configured.max(1) {
        return Ok(());
    }
    Err(OpenError::PartitionsChanged { path: path.to_path_buf(), installed, configured })
}

/// Creates a folder that is missing for its owner alone: the file has all orders, and the secrets of webhooks. The mode of an existing folder stays.
fn create_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Expires every lease: this process holds the folder's lock, so the owners have ended. Owners and open batches stay, to be resolved.
fn expire_stale_leases(sql: &Connection) -> rusqlite::Result<()> {
    sql.execute_batch(
        "BEGIN IMMEDIATE; UPDATE outbox_lease SET expires_at = 0 WHERE owner IS NOT NULL; DELETE FROM relay_instance; COMMIT",
    )
}

fn open_readers(path: &Path, readers: usize) -> Result<Vec<Connection>, OpenError> {
    let one = || {
        let sql = settings::open_existing(path)?;
        settings::for_reading(&sql)?;
        Ok(sql)
    };
    (0..readers.max(1)).map(|_| one()).collect::<Result<_, _>>().map_err(|error| OpenError::from_sqlite(path, &error))
}
