//! Context of every statement of one store: options, connection pools, and this process's cached state of the database.
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::time::Duration;

use deadpool_postgres::Pool;
use parking_lot::Mutex;
use ports::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::connection::server_timeline;
use crate::connection::session::{PooledSession, SessionSettings};
use crate::idempotency::deferred_releases::DeferredReleases;
use crate::leases::unanswered_acceptance::UnansweredAcceptance;
use crate::outbox::scan::scan_start::ScanStartCache;
use crate::store::oldest_transaction::AgeSamples;
use crate::store::options::Options;

/// Checkout timeouts that a full batch waits for a permit: the full batches of the other partitions take 0.1 s each (measured).
const BATCH_WAIT_FACTOR: u32 = 5;

/// Longest wait of a list for those ahead while the server reads them: a part of a list takes some hundredths of a second. One that waits for longer
/// has a server that does not answer.
const LIST_WAIT_USUAL: Duration = Duration::from_secs(2);

/// A list that has waited for longer than [`LIST_WAIT_USUAL`], counted until it is dropped.
struct OverdueList<'a>(&'a AtomicUsize);

impl<'a> OverdueList<'a> {
    fn count(overdue: &'a AtomicUsize) -> Self {
        overdue.fetch_add(1, Relaxed);
        Self(overdue)
    }
}

impl Drop for OverdueList<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Shared by the store and its background tasks. The tasks hold this and not the store, so that they do not keep the store open.
pub(crate) struct StoreContext {
    pub(crate) options: Arc<Options>,
    pub(crate) installation: Arc<str>,
    pub(crate) partitions: u32,
    /// Whether the server's timeline is compared with the store's.
    pub(crate) reads_timeline: bool,
    commit_pool: Pool,
    event_pool: Pool,
    relay_pool: Pool,
    /// Permits for partitions that claim and settle by themselves: at least one connection of the relay stays free of them.
    batch_permits: Semaphore,
    /// Permits of statements that may wait for a locked lease row.
    lock_waits: Semaphore,
    service_pool: Pool,
    /// Permits for lists of orders: half of the service connections stay free of them.
    list_permits: Arc<Semaphore>,
    /// Lists that have waited for a permit for longer than usual.
    overdue_lists: AtomicUsize,
    settings: SessionSettings,
    /// Where the scans for ready rows begin.
    pub(crate) scan_starts: ScanStartCache,
    /// The event id after which the next page of the sweep begins.
    pub(crate) swept_event_id: AtomicI64,
    /// Whether a write found the disk full and no probe has found free space since.
    pub(crate) disk_full: AtomicBool,
    /// The samples of the oldest transaction's age.
    pub(crate) age_samples: AgeSamples,
    /// The acceptance of a timeline that was sent and not answered.
    pub(crate) unanswered_acceptance: Mutex<Option<UnansweredAcceptance>>,
    /// The idempotency keys whose release failed.
    pub(crate) deferred_releases: DeferredReleases,
}

/// What opening the store has read: values that were fixed at installation, and whether the server shows its timeline.
pub(crate) struct InstalledSchema {
    pub(crate) id: String,
    pub(crate) partitions: u32,
    /// Whether the server's timeline is compared with the store's.
    pub(crate) reads_timeline: bool,
}

impl StoreContext {
    /// Builds the pools. No connection is opened yet.
    pub(crate) fn new(
        options: Arc<Options>,
        connector: &Connector,
        InstalledSchema { id, partitions, reads_timeline }: InstalledSchema,
    ) -> Result<Self, PostgresOpenError> {
        let settings = SessionSettings {
            pooler: options.pooler,
            statement_timeout: options.statement_timeout,
            lock_timeout: options.lock_timeout,
        };
        let on_connect = reads_timeline.then(server_timeline::compare_on_connect);
        let commit_pool = connector.pool("commits", options.committers, None)?;
        let own_events =
            options.own_event_connections().map(|size| connector.pool("events", size, None)).transpose()?;
        Ok(Self {
            event_pool: own_events.unwrap_or_else(|| commit_pool.clone()),
            commit_pool,
            relay_pool: connector.pool("relay", options.relay_connections, on_connect)?,
            batch_permits: Semaphore::new(options.relay_connections.saturating_sub(1).max(1)),
            lock_waits: Semaphore::new(options.relay_connections.saturating_sub(2).max(1)),
            service_pool: connector.pool("service", options.service_connections(), None)?,
            list_permits: Arc::new(Semaphore::new((options.service_connections() / 2).max(1))),
            overdue_lists: AtomicUsize::new(0),
            options,
            installation: id.into(),
            partitions,
            reads_timeline,
            settings,
            scan_starts: ScanStartCache::default(),
            swept_event_id: AtomicI64::new(0),
            disk_full: AtomicBool::new(false),
            age_samples: AgeSamples::default(),
            unanswered_acceptance: Mutex::default(),
            deferred_releases: DeferredReleases::default(),
        })
    }

    /// A connection for committing orders.
    pub(crate) async fn commit_session(&self) -> Result<PooledSession, Error> {
        PooledSession::checkout(&self.commit_pool, self.settings).await
    }

    /// A connection for publishing events of other services.
    pub(crate) async fn event_session(&self) -> Result<PooledSession, Error> {
        PooledSession::checkout(&self.event_pool, self.settings).await
    }

    /// A connection for leases and the relay.
    pub(crate) async fn relay_session(&self) -> Result<PooledSession, Error> {
        PooledSession::checkout(&self.relay_pool, self.settings).await
    }

    /// A permit for a claim or settlement of one partition by itself, to be held with its connection. Such a partition has full batches, and while a
    /// backlog drains all of them do: without a limit, heartbeats, renewals and probes would wait behind dozens of long statements.
    ///
    /// # Errors
    /// [`Error::Unreachable`] after several checkout timeouts.
    pub(crate) async fn batch_permit(&self) -> Result<SemaphorePermit<'_>, Error> {
        let wait = self.options.checkout_timeout * BATCH_WAIT_FACTOR;
        match tokio::time::timeout(wait, self.batch_permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Error::Unreachable("the store is closed".into())),
            Err(_) => Err(Error::Unreachable("claims and settlements of other partitions take too long".into())),
        }
    }

    /// A permit for a statement that may wait for a locked lease row, to be held with its connection; `None` if as many wait as may. The others leave
    /// connections for the partitions whose rows are free, and for heartbeats and probes.
    pub(crate) fn lock_wait_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.lock_waits.try_acquire().ok()
    }

    /// As [`StoreContext::lock_wait_permit`], but waits for the others, at most for the `lock_timeout`. Cancel-safe.
    pub(crate) async fn next_lock_wait_permit(&self) -> Option<SemaphorePermit<'_>> {
        tokio::time::timeout(self.options.lock_timeout, self.lock_waits.acquire()).await.ok()?.ok()
    }

    /// A connection for everything else.
    pub(crate) async fn service_session(&self) -> Result<PooledSession, Error> {
        PooledSession::checkout(&self.service_pool, self.settings).await
    }

    /// A permit for reading a part of a list of orders, to be held with its connection. Waits until the reads ahead have ended. Without a limit, a
    /// few clients that read long lists use all service connections, and their saturation refuses the writes of all clients. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Unreachable`] once the store is closed.
    pub(crate) async fn list_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let closed = |_| Error::Unreachable("the store is closed".into());
        let mut permit = pin!(Arc::clone(&self.list_permits).acquire_owned());
        if let Ok(acquired) = tokio::time::timeout(LIST_WAIT_USUAL, &mut permit).await {
            return acquired.map_err(closed);
        }
        let _overdue = OverdueList::count(&self.overdue_lists);
        permit.await.map_err(closed)
    }

    /// The share of service connections in use, from 0 to 1; waiting callers count as connections in use, lists once they are overdue.
    pub(crate) fn saturation(&self) -> f64 {
        let status = self.service_pool.status();
        let busy = status.size.saturating_sub(status.available) + status.waiting + self.overdue_lists.load(Relaxed);
        (busy as f64 / status.max_size.max(1) as f64).min(1.0)
    }

    /// Closes the pools: connections in use are closed when they return.
    pub(crate) fn close(&self) {
        self.batch_permits.close();
        self.lock_waits.close();
        self.list_permits.close();
        self.commit_pool.close();
        self.event_pool.close();
        self.relay_pool.close();
        self.service_pool.close();
    }
}
