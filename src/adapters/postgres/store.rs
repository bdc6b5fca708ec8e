//! Opening, using and closing the store.
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use deadpool_postgres::Pool;
use parking_lot::Mutex;
use ports::Error;
use tokio::runtime::{Handle, Runtime};
use tokio::time::Instant;
use tokio_postgres::types::Type;

use crate::committer::{self, Queue};
use crate::dial::{Dial, Tasks};
use crate::error::Answer;
use crate::instance::{Keeper, Lost};
use crate::low::Low;
use crate::migrations::{self, Migration};
use crate::open_error::OpenError;
use crate::options::Options;
use crate::session::{Manners, Session};
use crate::wakes::Bell;
use crate::{days, value};

/// The store of one service: orders, outbox, leases, inbox, keys, wakes. Cheap to clone; all clones are one store.
///
/// Its connections live on threads of their own, so it may be used from any runtime, and a dropped call does not stop what it began.
#[derive(Clone)]
pub struct Postgres {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) bell: Bell,
    keeper: Option<Keeper>,
    tasks: Tasks,
    closed: AtomicBool,
    handle: Handle,
    runtime: Mutex<Option<Runtime>>,
}

/// What statements need; shared with the tasks in the background, which must not keep the store itself alive.
pub(crate) struct Core {
    pub(crate) options: Arc<Options>,
    pub(crate) installation: Arc<str>,
    pub(crate) partitions: u32,
    commits: Pool,
    relay: Pool,
    others: Pool,
    manners: Manners,
    /// Per partition, where a scan for ready rows may begin.
    pub(crate) lows: Mutex<HashMap<u32, Low>>,
    /// Events at and below this id have been swept by this process.
    pub(crate) swept: AtomicI64,
    /// A write found no room, and none was seen since.
    pub(crate) full: AtomicBool,
}

impl Core {
    /// A connection for commits.
    pub(crate) async fn commits(&self) -> Result<Session, Error> {
        Session::take(&self.commits, self.manners).await
    }

    /// A connection for leases and the relay.
    pub(crate) async fn relay(&self) -> Result<Session, Error> {
        Session::take(&self.relay, self.manners).await
    }

    /// A connection for everything else.
    pub(crate) async fn others(&self) -> Result<Session, Error> {
        Session::take(&self.others, self.manners).await
    }

    /// How busy the connections are that clients wait for.
    pub(crate) fn saturation(&self) -> f64 {
        let status = self.others.status();
        let busy = status.size.saturating_sub(status.available) + status.waiting;
        (busy as f64 / status.max_size.max(1) as f64).min(1.0)
    }

    fn close(&self) {
        self.commits.close();
        self.relay.close();
        self.others.close();
    }
}

impl Postgres {
    /// Opens the database for a service: checks (or, if told so, migrates) the schema, takes the instance's name, starts committing.
    ///
    /// # Errors
    /// [`OpenError`] says who can mend it, and whether it may pass.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        Self::open_as(options, true).await
    }

    /// Opens the database beside the services that run on it: for looking, and for operators' statements. Takes no instance's name,
    /// claims and acquires nothing, migrates nothing.
    ///
    /// # Errors
    /// As [`Postgres::open`].
    pub async fn open_beside(options: Options) -> Result<Self, OpenError> {
        Self::open_as(Options { migrate: false, wakes: false, ..options }, false).await
    }

    async fn open_as(options: Options, serving: bool) -> Result<Self, OpenError> {
        let options = Arc::new(options);
        let dial = Dial::new(Arc::clone(&options))?;
        let runtime = threads(options.threads).map_err(|error| OpenError::Unreachable {
            place: dial.place().into(),
            reason: format!("no thread: {error}"),
        })?;
        let opened = runtime.handle().spawn(opened(options, dial, serving)).await;
        match opened {
            Ok(Ok(parts)) => Ok(Self { inner: Arc::new(parts.into_inner(runtime)) }),
            Ok(Err(error)) => {
                runtime.shutdown_background();
                Err(error)
            }
            Err(panicked) => {
                runtime.shutdown_background();
                Err(OpenError::Refused { place: String::new(), reason: panicked.to_string() })
            }
        }
    }

    /// The installation's own name, drawn when it was made.
    pub fn installation(&self) -> &str {
        &self.inner.core.installation
    }

    /// The number of partitions of the installation.
    pub fn partitions(&self) -> u32 {
        self.inner.core.partitions
    }

    /// Writes down where this service listens, for whoever finds its name held.
    ///
    /// # Errors
    /// As any write; the name itself is held whatever becomes of this.
    pub async fn announce(&self, address: &str) -> Result<(), Error> {
        let (core, instance) = (self.core(), self.inner.core.options.instance.clone());
        let address = address.to_string();
        if self.inner.keeper.is_none() {
            return Ok(());
        }
        self.run("announce", async move {
            let text = "UPDATE instance SET address = $2 WHERE name = $1";
            core.others().await?.once(text, &[(&&*instance.0, Type::TEXT), (&address, Type::TEXT)]).await?;
            Ok(())
        })
        .await
    }

    /// Waits until another process has taken this instance's name, and says which. Then this one has lost the right to act under it:
    /// drain and exit. Never returns otherwise. Cancel-safe.
    pub async fn lost(&self) -> Lost {
        match &self.inner.keeper {
            Some(keeper) => keeper.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Finishes what was asked, gives the instance's name back and closes all connections. May be called twice.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when commits are still under way after `close_within`; they are given up then.
    pub async fn close(&self) -> Result<(), Error> {
        let limit = self.inner.core.options.close_within;
        self.inner.queue.shut();
        let drained = tokio::time::timeout(limit, self.inner.queue.drained()).await.is_ok();
        if !self.inner.closed.swap(true, Relaxed) {
            if let Some(keeper) = &self.inner.keeper {
                keeper.release(&self.inner.handle).await;
            }
            self.inner.tasks.end();
            self.inner.core.close();
        }
        if drained { Ok(()) } else { Err(Error::Unreachable("close: commits are still under way".into())) }
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.inner.core)
    }

    /// Runs a piece of work on the store's own threads. Dropping the call does not stop it.
    pub(crate) async fn run<T, F>(&self, doing: &'static str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        if self.inner.closed.load(Relaxed) {
            return Err(Error::Unreachable(format!("{doing}: the store is closed")));
        }
        let begun = Instant::now();
        let told = match self.inner.handle.spawn(work).await {
            Ok(answer) => answer.map_err(|trouble| saying(doing, trouble.told())),
            Err(_) => Err(Error::Unknown(format!("{doing}: it was stopped in the middle"))),
        };
        self.told(doing, begun, &told);
        told
    }

    /// Notes how long a call took, and whether it found the disk full.
    pub(crate) fn told<T>(&self, doing: &'static str, begun: Instant, told: &Result<T, Error>) {
        if matches!(told, Err(Error::Full(_))) {
            self.inner.core.full.store(true, Relaxed);
        }
        if let Some(metrics) = &self.inner.core.options.metrics {
            metrics.db_query_duration.with([doing]).record(begun.elapsed());
        }
    }
}

/// The same error, saying what was being done.
fn saying(doing: &str, error: Error) -> Error {
    match error {
        Error::Unreachable(said) => Error::Unreachable(format!("{doing}: {said}")),
        Error::Overloaded(said) => Error::Overloaded(format!("{doing}: {said}")),
        Error::Full(said) => Error::Full(format!("{doing}: {said}")),
        Error::Unknown(said) => Error::Unknown(format!("{doing}: {said}")),
        Error::Rejected(said) => Error::Rejected(format!("{doing}: {said}")),
        Error::Broken(said) => Error::Broken(format!("{doing}: {said}")),
    }
}

/// What migrations this database has seen or lacks, oldest first. Changes nothing.
///
/// # Errors
/// As [`Postgres::open`].
pub async fn status(options: &Options) -> Result<Vec<Migration>, OpenError> {
    alone(options, false).await
}

/// Applies what is missing and answers what that was. Of two that do so at once one waits and then finds all done.
///
/// # Errors
/// As [`Postgres::open`]; a step that fails leaves nothing of itself behind.
pub async fn migrate(options: &Options) -> Result<Vec<Migration>, OpenError> {
    alone(options, true).await
}

async fn alone(options: &Options, apply: bool) -> Result<Vec<Migration>, OpenError> {
    let options = Arc::new(options.clone());
    let dial = Dial::new(Arc::clone(&options))?;
    let line = dial.line("migrate").await?;
    if !apply {
        return migrations::status(&line.client, dial.place()).await;
    }
    let done = migrations::migrate(&line.client, dial.place(), options.partitions).await?;
    days::make(&line.client, options.days_ahead).await.map_err(|error| OpenError::of(dial.place(), &error))?;
    Ok(done)
}

/// What opening makes, but for the threads it stands on.
struct Parts {
    core: Arc<Core>,
    queue: Arc<Queue>,
    bell: Bell,
    keeper: Option<Keeper>,
    tasks: Tasks,
}

impl Parts {
    fn into_inner(self, runtime: Runtime) -> Inner {
        let Self { core, queue, bell, keeper, tasks } = self;
        let (handle, closed) = (runtime.handle().clone(), AtomicBool::new(false));
        Inner { core, queue, bell, keeper, tasks, closed, handle, runtime: Mutex::new(Some(runtime)) }
    }
}

async fn opened(options: Arc<Options>, dial: Dial, serving: bool) -> Result<Parts, OpenError> {
    let (installation, partitions) = installation(&options, &dial).await?;
    if serving && partitions != options.partitions {
        let (place, configured) = (dial.place().into(), options.partitions);
        return Err(OpenError::PartitionsChanged { place, installed: partitions, configured });
    }
    let manners = Manners {
        pooler: options.pooler,
        statement_within: options.statement_within,
        lock_within: options.lock_within,
    };
    let core = Arc::new(Core {
        commits: dial.pool("commits", options.committers)?,
        relay: dial.pool("relay", options.relays)?,
        others: dial.pool("service", options.others())?,
        options: Arc::clone(&options),
        installation: installation.into(),
        partitions,
        manners,
        lows: Mutex::default(),
        swept: AtomicI64::new(0),
        full: AtomicBool::new(false),
    });
    let tasks = Tasks::default();
    let keeper = if serving { Some(Keeper::take(&dial, &core, &tasks).await?) } else { None };
    if serving {
        crate::idempotency::bury(&core).await.map_err(|error| OpenError::of_port(dial.place(), &error.told()))?;
    }
    let queue = Arc::new(Queue::new(&options));
    for _ in 0..options.committers.max(1) {
        tasks.add(tokio::spawn(committer::run(Arc::clone(&core), Arc::clone(&queue))));
    }
    let bell = Bell::hang(&dial, &core, serving && options.wakes && !options.pooler, &tasks);
    Ok(Parts { core, queue, bell, keeper, tasks })
}

/// Checks the schema and reads what was fixed at installation.
async fn installation(options: &Options, dial: &Dial) -> Result<(String, u32), OpenError> {
    let (line, place) = (dial.line("open").await?, dial.place());
    let told = |error: tokio_postgres::Error| OpenError::of(place, &error);
    if options.migrate {
        migrations::migrate(&line.client, place, options.partitions).await?;
        days::make(&line.client, options.days_ahead).await.map_err(told)?;
    } else if let Some(missing) = migrations::missing(&migrations::status(&line.client, place).await?) {
        return Err(OpenError::MissingMigrations { place: place.into(), missing });
    }
    let rows = line.client.query_typed("SELECT id, partitions FROM installation", &[]).await.map_err(told)?;
    let refused = || OpenError::Refused { place: place.into(), reason: "it holds no installation".into() };
    let row = rows.first().ok_or_else(refused)?;
    let installation: uuid::Uuid = value::get(row, 0).map_err(|_| refused())?;
    let installed = value::get::<i32>(row, 1).map_err(|_| refused())?.unsigned_abs();
    Ok((installation.to_string(), installed))
}

fn threads(count: usize) -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(count.max(1))
        .thread_name("postgres")
        .enable_all()
        .build()
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.end();
        self.core.close();
        if let Some(runtime) = self.runtime.lock().take() {
            // The last handle may be dropped inside another runtime, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}
