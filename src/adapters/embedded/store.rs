//! Opening and closing the store.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use ports::Error;
use ports::clock::Clock;
use ports::partitions::InstanceId;
use rusqlite::Connection;

use crate::broker::log_ends::LogEnds;
use crate::connection::folder_lock::FolderLock;
use crate::connection::group_commit::{Engine, Isolation, WriteContext};
use crate::connection::migrations::{self, Installation};
use crate::connection::open_error::OpenError;
use crate::connection::readers::Readers;
use crate::connection::settings;
use crate::connection::writer::Writer;
use crate::error::CommandResult;
use crate::options::{Options, WriterMode};

/// Reads that may wait for a reader; one more is refused at once.
const READS_MAX: usize = 4096;

/// The store, the broker and the memory of one service: implements every port. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Embedded {
    pub(crate) inner: Arc<EmbeddedState>,
}

pub(crate) struct EmbeddedState {
    writer: Writer,
    /// None inline, where the writing connection reads too.
    readers: Option<Readers>,
    pub(crate) log_ends: Arc<LogEnds>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) installation: Arc<str>,
    pub(crate) partitions: u32,
    pub(crate) options: Options,
    /// A write found the disk full, and no room was seen since.
    full: AtomicBool,
    lock: Mutex<Option<FolderLock>>,
}

impl Embedded {
    /// Opens a folder for a service: takes its lock, makes or migrates the file, frees what a dead process held. Blocks briefly.
    ///
    /// # Errors
    /// [`OpenError`] says who can mend it; nothing was changed, except that an older file may have been migrated.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let folder = &options.folder;
        std::fs::create_dir_all(folder).map_err(|error| OpenError::of_io(folder, &error))?;
        let lock = FolderLock::take(&options)?;
        let path = folder.join(settings::FILE);
        let result = |error: rusqlite::Error| OpenError::of_sql(&path, &error);
        let mut sql = settings::open(&path).map_err(result)?;
        let found = migrations::version(&sql, &path)?;
        settings::for_writing(&sql, options.cache_kib, options.writing).map_err(result)?;
        let installation =
            Installation { name: options.installation.as_deref(), partitions: options.partitions.max(1) };
        migrations::migrate(&mut sql, found, &installation).map_err(result)?;
        check_partitions(&sql, &path, options.partitions)?;
        expire_stale_leases(&sql).map_err(result)?;
        let readers = match options.writing {
            WriterMode::Thread => open_readers(&path, options.readers)?,
            WriterMode::Inline => Vec::new(),
        };
        Self::assemble(options, sql, readers, Some(lock), &path)
    }

    /// Opens a folder beside the service that may be running on it, without its lock: for looking, and for operators' statements, which
    /// wait up to 5 s for their turn. Claims and acquires nothing. Commands run on the calling thread, with full durability.
    ///
    /// # Errors
    /// [`OpenError::Absent`] where there is no store of this version; otherwise as [`Embedded::open`].
    pub fn open_beside(folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = folder.join(settings::FILE);
        let absent = |reason: &str| OpenError::Absent { path: path.clone(), reason: reason.to_string() };
        if !path.is_file() {
            return Err(absent(
                "there is no such file; start the service once, or set store.path to the folder of its data",
            ));
        }
        let result = |error: rusqlite::Error| OpenError::of_sql(&path, &error);
        let sql = settings::open_existing(&path).map_err(result)?;
        if migrations::version(&sql, &path)? < migrations::LATEST {
            return Err(absent("its schema is older than this program; start the service once"));
        }
        settings::for_writing(&sql, 2 * 1024, WriterMode::Thread).map_err(result)?;
        let mut options = Options::new(folder, InstanceId("operator".into()), clock);
        options.writing = WriterMode::Inline;
        Self::assemble(options, sql, Vec::new(), None, &path)
    }

    /// The schema's version in a folder's file, `None` where there is no file yet, and the latest that this program knows. Changes nothing;
    /// a later program's file is no error here.
    ///
    /// # Errors
    /// The file cannot be read, or is none of ours.
    pub fn schema(folder: &Path) -> Result<(Option<u32>, u32), OpenError> {
        let path = folder.join(settings::FILE);
        if !path.is_file() {
            return Ok((None, migrations::LATEST));
        }
        let sql = settings::open_existing(&path).map_err(|error| OpenError::of_sql(&path, &error))?;
        let found = migrations::written(&sql, &path)?;
        Ok((Some(found).filter(|found| *found > 0), migrations::LATEST))
    }

    fn assemble(
        options: Options,
        sql: Connection,
        readers: Vec<Connection>,
        lock: Option<FolderLock>,
        path: &Path,
    ) -> Result<Self, OpenError> {
        let result = |error: rusqlite::Error| OpenError::of_sql(path, &error);
        let thread = |error: std::io::Error| OpenError::of_io(path, &error);
        let installation: String = meta(&sql, "installation").map_err(result)?;
        let partitions = installed_partitions(&sql).map_err(result)?;
        let log_ends = Arc::new(LogEnds::default());
        crate::broker::log::load(&sql, &log_ends).map_err(result)?;
        let fresh = crate::orders::owner_index::fresh(&sql).map_err(result)?;
        let engine = Engine::new(sql, options.clock.clone(), log_ends.clone(), fresh);
        let (writer, readers) = match options.writing {
            WriterMode::Inline => (Writer::Inline(Mutex::new(Some(engine))), None),
            WriterMode::Thread => {
                let writer = Writer::thread(engine, options.queue, options.group_max).map_err(thread)?;
                (writer, Some(Readers::new(readers, READS_MAX).map_err(thread)?))
            }
        };
        let inner = EmbeddedState {
            writer,
            readers,
            log_ends,
            clock: options.clock.clone(),
            installation: installation.into(),
            partitions,
            options,
            full: AtomicBool::new(false),
            lock: Mutex::new(lock),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The installation's own name, drawn when the folder was first used.
    pub fn installation(&self) -> &str {
        &self.inner.installation
    }

    /// The number of partitions the folder was installed with.
    pub fn partitions(&self) -> u32 {
        self.inner.partitions
    }

    /// Writes into the lock file where this service listens, for whoever finds the folder held.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Unreachable`]; the lock itself is not affected.
    pub fn announce(&self, address: &str) -> Result<(), Error> {
        let mut lock = self.inner.lock.lock();
        let Some(lock) = lock.as_mut() else { return Ok(()) };
        lock.tell(address).map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull => Error::Full(format!("announce: {error}")),
            _ => Error::Unreachable(format!("announce: {error}")),
        })
    }

    /// Finishes what was asked, moves the log into the file and frees the folder. May be called twice.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the writer is still at work after `close_within`; the folder then stays held until the process ends.
    pub async fn close(&self) -> Result<(), Error> {
        let limit = self.inner.options.close_within;
        if let Some(readers) = &self.inner.readers {
            readers.shut();
            readers.finished(limit).await;
        }
        self.inner.writer.shut();
        if !self.inner.writer.finished(limit).await {
            return Err(Error::Unreachable("close: the writer is still at work".into()));
        }
        self.inner.lock.lock().take();
        Ok(())
    }

    /// Runs a command on the writer.
    pub(crate) async fn write<T, F>(&self, operation: &'static str, context: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send + 'static,
    {
        self.write_with(operation, Isolation::OwnSavepoint, context).await
    }

    /// The same for a command that finds whatever stands in its way before it writes.
    pub(crate) async fn write_without_savepoint<T, F>(&self, operation: &'static str, context: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send + 'static,
    {
        self.write_with(operation, Isolation::SharedSavepoint, context).await
    }

    async fn write_with<T, F>(&self, operation: &'static str, isolation: Isolation, context: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send + 'static,
    {
        let begun = tokio::time::Instant::now();
        let result = self.inner.writer.call(operation, isolation, context).await;
        if matches!(result, Err(Error::Full(_))) {
            self.inner.full.store(true, Relaxed);
        }
        self.measure(operation, begun);
        result
    }

    /// Runs a read on a reader.
    pub(crate) async fn read<T, F>(&self, operation: &'static str, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> CommandResult<T> + Send + 'static,
    {
        let begun = tokio::time::Instant::now();
        let result = match &self.inner.readers {
            Some(readers) => readers.read(operation, read).await,
            None => self.inner.writer.read_inline(operation, read),
        };
        self.measure(operation, begun);
        result
    }

    /// Whether a write found the disk full, and no room was seen since.
    pub(crate) fn is_full(&self) -> bool {
        self.inner.full.load(Relaxed)
    }

    /// There is room again.
    pub(crate) fn has_room(&self) {
        self.inner.full.store(false, Relaxed);
    }

    /// How full the writer's queue is.
    pub(crate) fn saturation(&self) -> f64 {
        self.inner.writer.fill()
    }

    fn measure(&self, operation: &str, begun: tokio::time::Instant) {
        if let Some(metrics) = &self.inner.options.metrics {
            metrics.db_query_duration.with([operation]).record(begun.elapsed());
        }
    }
}

/// A handle dropped without [`Embedded::close`]: what was asked is still done, and the folder is freed after it.
impl Drop for EmbeddedState {
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        if let Some(readers) = &self.readers {
            readers.shut();
            readers.finished_blocking(PATIENCE);
        }
        self.writer.shut();
        if !self.writer.finished_blocking(PATIENCE) {
            // A writer that hangs still writes: the folder must not go to another. The operating system frees it at the end.
            std::mem::forget(self.lock.lock().take());
        }
    }
}

fn meta(sql: &Connection, name: &str) -> rusqlite::Result<String> {
    sql.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0))
}

fn installed_partitions(sql: &Connection) -> rusqlite::Result<u32> {
    sql.query_row("SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'partitions'", [], |row| row.get(0))
}

fn check_partitions(sql: &Connection, path: &Path, configured: u32) -> Result<(), OpenError> {
    let installed = installed_partitions(sql).map_err(|error| OpenError::of_sql(path, &error))?;
    if installed == configured.max(1) {
        return Ok(());
    }
    Err(OpenError::PartitionsChanged { path: path.to_path_buf(), installed, configured })
}

/// We hold the folder, so whoever held leases under it is dead: they run out now. Owners and open batches stay, to be resolved.
fn expire_stale_leases(sql: &Connection) -> rusqlite::Result<()> {
    sql.execute_batch(
        "BEGIN IMMEDIATE; UPDATE outbox_lease SET expires_at = 0 WHERE owner IS NOT NULL; DELETE FROM member; COMMIT",
    )
}

fn open_readers(path: &Path, readers: usize) -> Result<Vec<Connection>, OpenError> {
    let one = || {
        let sql = settings::open_existing(path)?;
        settings::for_reading(&sql)?;
        Ok(sql)
    };
    (0..readers.max(1)).map(|_| one()).collect::<Result<_, _>>().map_err(|error| OpenError::of_sql(path, &error))
}
