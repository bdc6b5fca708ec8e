//! Sends the release of an idempotency key, and defers it while the server does not accept it.
use ports::Error;

use crate::connection::call::{Caller, Request};
use crate::connection::client::RedisInner;
use crate::idempotency::pending_releases::{KeyRelease, KeyResult};

impl RedisInner {
    /// Releases a key. A release that fails because of the server is deferred; sending it twice changes nothing.
    pub(crate) async fn release_key(&self, release: KeyRelease) -> Result<(), Error> {
        let result = match self.unavailable_error() {
            Some(error) => {
                self.count_failure(Caller::Idempotency);
                Err(error)
            }
            None => self.send_release(Caller::Idempotency, &release).await,
        };
        if matches!(result, Err(Error::Unreachable(_) | Error::Unknown(_) | Error::Overloaded(_) | Error::Full(_))) {
            self.pending_releases.defer(release, self.options.pending_releases_max);
            self.maintenance.notify_one();
        }
        result
    }

    /// Sends the deferred releases, oldest first, until one fails.
    pub(crate) async fn flush_pending_releases(&self) -> Result<(), Error> {
        while let Some(release) = self.pending_releases.oldest() {
            match self.send_release(Caller::Maintenance, &release).await {
                // A release that the server permanently refuses is dropped: the lock expires.
                Ok(()) | Err(Error::Broken(_) | Error::Rejected(_)) => self.pending_releases.remove(&release),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn send_release(&self, caller: Caller, KeyRelease { key, result }: &KeyRelease) -> Result<(), Error> {
        let script = match result {
            KeyResult::Completed { .. } => &self.scripts.complete_key,
            KeyResult::Abandoned => &self.scripts.abandon_key,
        };
        let mut call = script.prepare_invoke();
        call.key(key).arg(&self.boot_id).arg(&*self.options.instance.0);
        if let KeyResult::Completed { value, ttl_ms } = result {
            call.arg(value).arg(ttl_ms);
        }
        // The reply (whether this process still held the key) is not needed: another holder finds the durable record.
        self.try_call(caller, "release a key", Request::Script(&call)).await.map(|_: i64| ())
    }
}
