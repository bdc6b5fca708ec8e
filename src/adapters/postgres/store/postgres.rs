//! The store's handle: opening, running statements on the store's own threads, closing.
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ports::Error;
use ports::partitions::InstanceIdTakenOver;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tracing::Instrument;

use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::connection::statement_error::StatementResult;
use crate::store::context::StoreContext;
use crate::store::open::{self, OpenedStore};
use crate::store::options::Options;

/// The store of one service: orders, outbox, leases, inbox, keys, wake-ups. Cheap to clone; all clones are one store.
///
/// Its connections run on threads of their own, so it may be used from any runtime, and a dropped call does not stop the statement that
/// it started.
#[derive(Clone)]
pub struct Postgres {
    pub(crate) inner: Arc<PostgresInner>,
}

pub(crate) struct PostgresInner {
    pub(crate) opened: OpenedStore,
    closed: AtomicBool,
    handle: Handle,
    /// Dropped after the tasks are aborted.
    _threads: StoreThreads,
}

/// The runtime of a store. Dropped, it ends without waiting: the last handle, or an open that is not finished, may be dropped inside another
/// runtime, where blocking is not allowed.
struct StoreThreads(Option<Runtime>);

impl Drop for StoreThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Postgres {
    /// Opens the database for a service: checks (or with `migrate` applies) the schema, takes the instance id, starts committing.
    /// Not cancel-safe: a dropped call may have applied migrations, and may hold the instance id until its connection has ended.
    ///
    /// # Errors
    /// [`PostgresOpenError`] names the setting or system to correct, and says whether a later attempt may succeed.
    pub async fn open(options: Options) -> Result<Self, PostgresOpenError> {
        Self::open_on_own_threads(options, open::for_service).await
    }

    /// Opens the database for an operator's command while services use it. Takes no instance id, applies no migration, sends and
    /// receives no wake-ups.
    ///
    /// # Errors
    /// Fails as [`Postgres::open`] does.
    pub async fn open_for_operator(options: Options) -> Result<Self, PostgresOpenError> {
        Self::open_on_own_threads(Options { migrate: false, ..options }, open::for_operator).await
    }

    /// Checks the URL and the root certificates of the options as [`Postgres::open`] does, and connects to nothing.
    ///
    /// # Errors
    /// [`PostgresOpenError::Url`] or [`PostgresOpenError::Roots`].
    pub fn check(options: Options) -> Result<(), PostgresOpenError> {
        Connector::new(Arc::new(options)).map(drop)
    }

    async fn open_on_own_threads<F>(
        options: Options,
        open: impl FnOnce(Arc<Options>, Connector) -> F,
    ) -> Result<Self, PostgresOpenError>
    where
        F: Future<Output = Result<OpenedStore, PostgresOpenError>> + Send + 'static,
    {
        let options = Arc::new(options);
        let connector = Connector::new(Arc::clone(&options))?;
        let location = connector.location().to_owned();
        let runtime = start_runtime(options.threads).map_err(|error| PostgresOpenError::Unreachable {
            location: location.clone(),
            reason: format!("its threads cannot be started: {error}"),
        })?;
        let (handle, threads) = (runtime.handle().clone(), StoreThreads(Some(runtime)));
        let opened = match handle.spawn(open(options, connector)).await {
            Ok(result) => result?,
            Err(panic) => return Err(PostgresOpenError::Refused { location, reason: panic.to_string() }),
        };
        Ok(Self {
            inner: Arc::new(PostgresInner { opened, closed: AtomicBool::new(false), handle, _threads: threads }),
        })
    }

    /// The installation's id, a UUID drawn when the schema was installed.
    pub fn installation(&self) -> &str {
        &self.inner.opened.context.installation
    }

    /// The number of partitions of the installation.
    pub fn partitions(&self) -> u32 {
        self.inner.opened.context.partitions
    }

    /// Stores the address that this service listens on, for a process that finds the instance id held. Does nothing for an operator.
    ///
    /// # Errors
    /// As any write; the instance id stays held after an error.
    pub async fn announce(&self, address: &str) -> Result<(), Error> {
        let (context, address) = (self.context(), address.to_string());
        if self.inner.opened.instance_id.is_none() {
            return Ok(());
        }
        self.run("announce", async move {
            let text = "UPDATE instance SET address = $2 WHERE name = $1";
            let values = [(&&*context.options.instance.0 as _, Type::TEXT), (&address as _, Type::TEXT)];
            context.service_session().await?.execute(text, &values).await?;
            Ok(())
        })
        .await
    }

    /// Resolves when another process has taken over the instance id. This process may then no longer act under the id: drain and exit.
    /// Never resolves otherwise. Cancel-safe.
    pub async fn instance_id_taken_over(&self) -> InstanceIdTakenOver {
        match &self.inner.opened.instance_id {
            Some(lease) => lease.taken_over().await,
            None => std::future::pending().await,
        }
    }

    /// Finishes the pending commits and the statements of the relay that have begun, releases the instance id and closes all connections. May be
    /// called twice. After a dropped call, connections may stay open until the last handle is dropped.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when commits or statements are still pending after `close_timeout`. Their outcome is then unknown.
    pub async fn close(&self) -> Result<(), Error> {
        let opened = &self.inner.opened;
        opened.commits.close();
        opened.relay.close();
        let drained = async { tokio::join!(opened.commits.drained(), opened.relay.idle()) };
        let drained = tokio::time::timeout(opened.context.options.close_timeout, drained).await.is_ok();
        if !self.inner.closed.swap(true, Relaxed) {
            if let Some(lease) = &opened.instance_id {
                lease.release(&self.inner.handle).await;
            }
            opened.tasks.abort();
            opened.context.close();
        }
        if drained {
            Ok(())
        } else {
            Err(Error::Unreachable("close: commits or statements of the relay are still pending".into()))
        }
    }

    pub(crate) fn context(&self) -> Arc<StoreContext> {
        Arc::clone(&self.inner.opened.context)
    }

    /// Runs statements on the store's own threads. Dropping the call does not stop them.
    pub(crate) async fn run<T, F>(&self, operation: &'static str, statements: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = StatementResult<T>> + Send + 'static,
    {
        if self.inner.closed.load(Relaxed) {
            return Err(Error::Unreachable(format!("{operation}: the store is closed")));
        }
        let started = Instant::now();
        let result = match self.inner.handle.spawn(statements.in_current_span()).await {
            Ok(result) => result.map_err(|error| with_operation(operation, error.into_port())),
            Err(_) => Err(Error::Unknown(format!("{operation}: it was aborted before it finished"))),
        };
        self.record(operation, started, &result);
        result
    }

    /// Waits for the reply to a request that another task runs.
    pub(crate) async fn await_reply<T>(
        &self,
        operation: &'static str,
        queued: Result<oneshot::Receiver<Result<T, Error>>, Error>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let result = match queued {
            // The task drops the sender without a reply only when it panics or the store is closed.
            Ok(reply) => {
                reply.await.unwrap_or_else(|_| Err(Error::Unknown("it was aborted before it finished".into())))
            }
            Err(error) => Err(error),
        };
        let result = result.map_err(|error| with_operation(operation, error));
        self.record(operation, started, &result);
        result
    }

    /// Records the duration of an operation, and whether it found the disk full.
    pub(crate) fn record<T>(&self, operation: &'static str, started: Instant, result: &Result<T, Error>) {
        let context = &self.inner.opened.context;
        if matches!(result, Err(Error::Full(_))) {
            context.disk_full.store(true, Relaxed);
        }
        let duration = started.elapsed();
        if let Some(metrics) = &context.options.metrics {
            metrics.db_query_duration.with([operation]).record(duration);
        }
        let (duration_ms, failed) = (duration.as_secs_f64() * 1e3, result.is_err());
        tracing::debug!(event = "dependency_called", operation, duration_ms, failed, "PostgreSQL was called");
    }
}

/// The same error with the operation's name in front of its detail.
fn with_operation(operation: &str, error: Error) -> Error {
    match error {
        Error::Unreachable(detail) => Error::Unreachable(format!("{operation}: {detail}")),
        Error::Overloaded(detail) => Error::Overloaded(format!("{operation}: {detail}")),
        Error::Full(detail) => Error::Full(format!("{operation}: {detail}")),
        Error::Unknown(detail) => Error::Unknown(format!("{operation}: {detail}")),
        Error::Rejected(detail) => Error::Rejected(format!("{operation}: {detail}")),
        Error::Broken(detail) => Error::Broken(format!("{operation}: {detail}")),
    }
}

fn start_runtime(threads: usize) -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("postgres")
        .enable_all()
        .build()
}

impl Drop for PostgresInner {
    fn drop(&mut self) {
        self.opened.tasks.abort();
        self.opened.context.close();
    }
}
