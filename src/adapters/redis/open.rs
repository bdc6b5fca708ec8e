//! Opening and closing: checks the options, makes an empty pool, sets the keeper to work. Waits for nobody.
use std::sync::Arc;
use std::time::Instant;

use deadpool_redis::redis::{self, AsyncConnectionConfig};
use deadpool_redis::{Hook, HookError, Manager, Pool, Runtime};
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::debts::Debts;
use crate::keeper;
use crate::link::{Ask, Caller};
use crate::names::Names;
use crate::open_error::OpenError;
use crate::options::Options;
use crate::policies::Complaints;
use crate::scripts::Scripts;
use crate::trust::Trust;

/// Keys, cache, token buckets and probe on one Redis. Cheap to clone; all clones are one process in the eyes of the others.
#[derive(Clone)]
pub struct Redis {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) options: Options,
    pub(crate) names: Names,
    pub(crate) scripts: Scripts,
    /// This life of the process: a restart under the same name has another.
    pub(crate) boot: String,
    pub(crate) trust: Arc<Mutex<Trust>>,
    /// Since when nothing answers.
    pub(crate) away: Mutex<Option<Instant>>,
    /// Calls the keeper.
    pub(crate) wake: Arc<Notify>,
    pub(crate) complaints: Complaints,
    pub(crate) debts: Debts,
}

impl Redis {
    /// Opens a handle. Connects when it is first used; a server that is not there yet is found by the keeper once it is.
    /// Call it on the runtime that lives longest: the keeper lives there.
    ///
    /// # Errors
    /// [`OpenError`]: mistakes of the configuration.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        check(&options)?;
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let (trust, wake) = (Arc::new(Mutex::new(Trust::new())), Arc::new(Notify::new()));
        let boot = format!("{:016x}", options.dice.next_u64());
        let inner = Inner {
            pool: pool(&options, &boot, Arc::clone(&trust), Arc::clone(&wake))?,
            names: Names(options.prefix.clone()),
            scripts: Scripts::new(),
            boot,
            trust,
            away: Mutex::new(None),
            wake: Arc::clone(&wake),
            complaints: Complaints::default(),
            debts: Debts::default(),
            options,
        };
        let inner = Arc::new(inner);
        // Ends by itself when the last handle is gone.
        drop(runtime.spawn(keeper::keep(Arc::downgrade(&inner), wake)));
        Ok(Self { inner })
    }

    /// Leaves: keys that this process still holds are free at once, and every further call fails. Safe to call twice.
    pub async fn close(&self) {
        let inner = &self.inner;
        let mut leave = inner.scripts.leave.prepare_invoke();
        leave.key(inner.names.sign(&inner.options.instance)).arg(&inner.boot);
        // A sign of life that could not be taken back runs out by itself.
        let _: Result<i64, _> = inner.ask(Caller::Keeper, "leave", Ask::Script(&leave)).await;
        inner.pool.close();
        inner.wake.notify_one();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

fn check(options: &Options) -> Result<(), OpenError> {
    if options.prefix.contains(['{', '}']) {
        return Err(OpenError::Prefix(options.prefix.clone()));
    }
    let zero = [
        ("connections", options.connections == 0),
        ("connect_within", options.connect_within.is_zero()),
        ("answer_within", options.answer_within.is_zero()),
        ("dead_after", options.dead_after.as_millis() == 0),
        ("order_ttl", options.order_ttl.as_millis() == 0),
    ];
    match zero.into_iter().find(|(_, zero)| *zero) {
        Some((name, _)) => Err(OpenError::Zero(name)),
        None => Ok(()),
    }
}

fn pool(options: &Options, boot: &str, trust: Arc<Mutex<Trust>>, wake: Arc<Notify>) -> Result<Pool, OpenError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(options.connect_within))
        .set_response_timeout(Some(options.answer_within));
    let manager = Manager::new_with_config(options.url.expose_secret(), config)
        .map_err(|error| OpenError::Url(error.category().to_owned()))?;
    Pool::builder(manager)
        .max_size(options.connections)
        .wait_timeout(Some(options.connection_wait))
        .create_timeout(Some(options.connect_within))
        .recycle_timeout(Some(options.answer_within))
        .runtime(Runtime::Tokio1)
        .post_create(introduce(boot.to_owned(), trust, wake))
        .build()
        .map_err(|error| OpenError::Url(error.to_string()))
}

/// Asks each new connection which server process it leads to: another one than before may have lost what the former knew. A server
/// that may not be asked (an ACL) is taken for the same one; then the keeper's look at the epoch remains.
///
/// It also names the connection after this life of the process: whoever wants our name sees by that whether we live.
fn introduce(boot: String, trust: Arc<Mutex<Trust>>, wake: Arc<Notify>) -> Hook {
    Hook::async_fn(move |connection, _| {
        let (boot, trust, wake) = (boot.clone(), Arc::clone(&trust), Arc::clone(&wake));
        Box::pin(async move {
            let mut name = redis::cmd("CLIENT");
            name.arg("SETNAME").arg(&boot);
            // A server that does not let us is asked for our sign of life instead.
            let _: Result<(), _> = name.query_async(connection).await;
            let mut info = redis::cmd("INFO");
            info.arg("server");
            match info.query_async::<String>(connection).await {
                Ok(text) => {
                    let run = text.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default();
                    if trust.lock().connected(run.trim()) {
                        wake.notify_one();
                    }
                    Ok(())
                }
                Err(error) if error.is_io_error() => Err(HookError::Backend(error)),
                Err(_) => Ok(()),
            }
        })
    })
}
