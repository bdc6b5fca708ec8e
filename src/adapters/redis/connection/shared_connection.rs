//! The connection that all calls share. A call sends its request at once, and the client assigns the replies in order: the requests of many
//! callers travel in one packet, and none waits for the reply of another. The pool makes and tests the connection.
//!
//! A connection for each call, tested before each use, costs a second round trip and a system call for every request: creates with a cache
//! on Redis ran at half of the rate. More than one shared connection only splits the packets.
use std::time::{Duration, Instant};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::{Connection, Pool, PoolError};
use parking_lot::Mutex;
use ports::Error;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::connection::error;
use crate::connection::options::Options;

/// How long the connection is used before the pool tests it again. A server that stops answering meanwhile is detected by the response
/// time-out of a call.
const TEST_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct SharedConnection {
    pool: Pool,
    /// Runs the connection's task, which must outlive the thread of the call that needed the connection.
    runtime: Handle,
    current: Mutex<Option<TestedConnection>>,
    /// Held while the pool is asked for a connection: the other callers wait for that one.
    replacing: tokio::sync::Mutex<()>,
    calls: Semaphore,
    calls_max: usize,
    permit_timeout: Duration,
    connect_timeout: Duration,
}

struct TestedConnection {
    connection: Connection,
    tested: Instant,
}

impl SharedConnection {
    pub(crate) fn new(pool: Pool, runtime: Handle, options: &Options) -> Self {
        Self {
            pool,
            runtime,
            current: Mutex::new(None),
            replacing: tokio::sync::Mutex::new(()),
            calls: Semaphore::new(options.calls_max),
            calls_max: options.calls_max,
            permit_timeout: options.permit_timeout,
            connect_timeout: options.connect_timeout,
        }
    }

    /// The right to make one call, until it is dropped. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Overloaded`]: the most calls are in flight, and none of them ended in time.
    pub(crate) async fn permit(&self) -> Result<SemaphorePermit<'_>, Error> {
        if let Ok(permit) = self.calls.try_acquire() {
            return Ok(permit);
        }
        match timeout(self.permit_timeout, self.calls.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Error::Overloaded(format!("{} calls wait for the replies of Redis", self.calls_max))),
        }
    }

    /// A handle of the connection, which answered within the last second. Cancel-safe: a connection that is being made serves later calls.
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the error of a server that answered. Nothing was sent.
    pub(crate) async fn get(&self) -> Result<MultiplexedConnection, Error> {
        if let Some(connection) = self.tested() {
            return Ok(connection);
        }
        let limit = self.connect_timeout;
        match timeout(limit, self.replace()).await {
            Ok(result) => result.map_err(|error| error::pool_error(&error)),
            Err(_) => Err(Error::Unreachable(format!("connect: no connection answered within {limit:?}"))),
        }
    }

    fn tested(&self) -> Option<MultiplexedConnection> {
        let current = self.current.lock();
        let current = current.as_ref().filter(|current| current.tested.elapsed() < TEST_INTERVAL)?;
        Some((*current.connection).clone())
    }

    async fn replace(&self) -> Result<MultiplexedConnection, PoolError> {
        let _replacing = self.replacing.lock().await;
        if let Some(connection) = self.tested() {
            return Ok(connection);
        }
        // Back to the pool, which tests it before it hands it out again.
        drop(self.current.lock().take());
        let pool = self.pool.clone();
        let connection = self.runtime.spawn(async move { pool.get().await }).await.map_err(|_| PoolError::Closed)??;
        let shared = (*connection).clone();
        *self.current.lock() = Some(TestedConnection { connection, tested: Instant::now() });
        if self.is_closed() {
            self.discard();
        }
        Ok(shared)
    }

    /// Gives up the connection, because the server does not answer: after its return the calls need another one.
    pub(crate) fn discard(&self) {
        drop(self.current.lock().take());
        let _ = self.pool.retain(|_, _| false);
    }

    /// Calls in flight end, later calls fail. Safe to call twice.
    pub(crate) fn close(&self) {
        self.pool.close();
        self.discard();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// The calls in flight, as a share of the most that may be. A call waits for a permit only at 1.0.
    pub(crate) fn saturation(&self) -> f64 {
        1.0 - self.calls.available_permits() as f64 / self.calls_max as f64
    }
}
