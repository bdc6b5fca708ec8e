//! Opening and closing a handle: checks the options, creates an empty pool, starts the maintenance task. Does not connect.
use std::sync::Arc;

use deadpool_redis::redis::{self, AsyncConnectionConfig, ConnectionInfo};
use deadpool_redis::{Hook, HookError, Manager, Pool, Runtime};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::cache::epoch::EpochTracker;
use crate::connection::address::connection_info;
use crate::connection::call::{Caller, Request};
use crate::connection::client::{Redis, RedisInner};
use crate::connection::keys::KeyNames;
use crate::connection::maintenance;
use crate::connection::open_error::RedisOpenError;
use crate::connection::options::Options;
use crate::connection::scripts::SharedScripts;
use crate::connection::shared_connection::SharedConnection;
use crate::connection::warn_once::WarnOnce;
use crate::idempotency::pending_releases::PendingReleases;

impl Redis {
    /// Opens a handle. It connects with its first call; the maintenance task finds a server that starts later. Call it on the runtime that
    /// lives longest, because the maintenance task runs there.
    ///
    /// # Errors
    /// [`RedisOpenError`]: mistakes of the configuration.
    pub fn open(options: Options) -> Result<Self, RedisOpenError> {
        let server = parse(&options)?;
        let runtime = Handle::try_current().map_err(|_| RedisOpenError::NoRuntime)?;
        let (epoch, wakeup) = (Arc::new(Mutex::new(EpochTracker::new())), Arc::new(Notify::new()));
        let boot_id = format!("{:016x}", options.rng.next_u64());
        let pool = pool(&options, &server, &boot_id, Arc::clone(&epoch), Arc::clone(&wakeup))?;
        let inner = Arc::new(RedisInner {
            server,
            connection: SharedConnection::new(pool, runtime.clone(), &options),
            keys: KeyNames(options.prefix.clone()),
            scripts: SharedScripts::new(),
            boot_id,
            epoch,
            outage: Mutex::new(None),
            maintenance: Arc::clone(&wakeup),
            has_left: tokio::sync::Mutex::new(false),
            warnings: WarnOnce::default(),
            pending_releases: PendingReleases::default(),
            options,
        });
        // The task ends by itself when the last handle is dropped.
        drop(runtime.spawn(maintenance::run(Arc::downgrade(&inner), wakeup)));
        Ok(Self { inner })
    }

    /// Checks the options as [`Redis::open`] does, and starts nothing.
    ///
    /// # Errors
    /// [`RedisOpenError`]: mistakes of the configuration.
    pub fn check(options: &Options) -> Result<(), RedisOpenError> {
        parse(options).map(drop)
    }

    /// Closes the handle: keys that this process still holds are free at once, and every later call fails. Safe to call twice.
    pub async fn close(&self) {
        let inner = &self.inner;
        let mut delete = inner.scripts.delete_heartbeat.prepare_invoke();
        delete.key(inner.keys.heartbeat(&inner.options.instance)).arg(&inner.boot_id);
        let mut has_left = inner.has_left.lock().await;
        *has_left = true;
        // A heartbeat that could not be deleted expires by itself.
        let _: Result<i64, _> = inner.call(Caller::Maintenance, "leave", Request::Script(&delete)).await;
        inner.connection.close();
        inner.maintenance.notify_one();
    }
}

/// How the handle connects to the server, if the options can be used.
fn parse(options: &Options) -> Result<ConnectionInfo, RedisOpenError> {
    check_values(options)?;
    connection_info(&options.url, options.root_certificates.as_deref())
}

fn check_values(options: &Options) -> Result<(), RedisOpenError> {
    if options.prefix.contains(['{', '}']) {
        return Err(RedisOpenError::Prefix(options.prefix.clone()));
    }
    let zero = [
        ("calls_max", options.calls_max == 0),
        ("connect_timeout", options.connect_timeout.is_zero()),
        ("response_timeout", options.response_timeout.is_zero()),
        ("dead_after", options.dead_after.as_millis() == 0),
        ("order_ttl", options.order_ttl.as_millis() == 0),
        ("list_ttl", options.list_ttl.as_millis() == 0),
    ];
    match zero.into_iter().find(|(_, zero)| *zero) {
        Some((name, _)) => Err(RedisOpenError::Zero(name)),
        None => Ok(()),
    }
}

fn pool(
    options: &Options,
    server: &ConnectionInfo,
    boot_id: &str,
    epoch: Arc<Mutex<EpochTracker>>,
    wakeup: Arc<Notify>,
) -> Result<Pool, RedisOpenError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(options.connect_timeout))
        .set_response_timeout(Some(options.response_timeout));
    let manager = Manager::new_with_config(server.clone(), config)
        .map_err(|error| RedisOpenError::Url(error.category().to_owned()))?;
    Pool::builder(manager)
        .max_size(1)
        .create_timeout(Some(options.connect_timeout))
        .recycle_timeout(Some(options.response_timeout))
        .runtime(Runtime::Tokio1)
        .post_create(connect_hook(boot_id.to_owned(), epoch, wakeup))
        .build()
        .map_err(|error| RedisOpenError::Url(error.to_string()))
}

/// Reads the server's `run_id` on each new connection: another server process may have lost data of the former one. A server that refuses
/// INFO (an ACL) counts as the same process; then only the maintenance task's check of the epoch remains.
///
/// It also names the connection after the boot id, by which another process that claims our instance id sees whether we are alive.
fn connect_hook(boot_id: String, epoch: Arc<Mutex<EpochTracker>>, wakeup: Arc<Notify>) -> Hook {
    Hook::async_fn(move |connection, _| {
        let (boot_id, epoch, wakeup) = (boot_id.clone(), Arc::clone(&epoch), Arc::clone(&wakeup));
        Box::pin(async move {
            let mut name = redis::cmd("CLIENT");
            name.arg("SETNAME").arg(&boot_id);
            // Where the server refuses it, other processes judge by our heartbeat.
            let _: Result<(), _> = name.query_async(connection).await;
            let mut info = redis::cmd("INFO");
            info.arg("server");
            match info.query_async::<String>(connection).await {
                Ok(text) => {
                    let run_id = text.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default();
                    if epoch.lock().record_connection(run_id.trim()) {
                        wakeup.notify_one();
                    }
                    Ok(())
                }
                Err(error) if error.is_io_error() => Err(HookError::Backend(error)),
                Err(_) => Ok(()),
            }
        })
    })
}
