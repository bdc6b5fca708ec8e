//! Releases the key of a create that changed nothing, and repeats a release that failed until the database takes it.
use std::sync::Arc;

use ports::Error;

use crate::connection::retry_backoff::RetryBackoff;
use crate::connection::statement_error::{StatementError, StatementResult};
use crate::idempotency::deferred_releases::UnusedKey;
use crate::idempotency::keys;
use crate::store::context::StoreContext;

/// Releases a key. A release that fails because of the database is deferred; sending it twice changes nothing.
pub(crate) async fn release(context: &StoreContext, key: UnusedKey) -> StatementResult<()> {
    let result = keys::abandon(context, key.subject.as_str(), &key.key).await;
    if result.as_ref().is_err_and(may_succeed_later) {
        context.deferred_releases.add(key, context.options.deferred_releases_max);
    }
    result
}

/// Sends the deferred releases for as long as the store is open. A key that this process has taken again meanwhile is freed too early; the
/// durable record then prevents a second order.
pub(crate) async fn send_deferred(context: Arc<StoreContext>) {
    let mut backoff = RetryBackoff::new();
    loop {
        let key = context.deferred_releases.oldest().await;
        match keys::abandon(&context, key.subject.as_str(), &key.key).await {
            Err(error) if may_succeed_later(&error) => backoff.wait().await,
            // A release that the database permanently refuses is dropped: the lock expires.
            Ok(()) | Err(_) => {
                context.deferred_releases.remove(&key);
                backoff.reset();
            }
        }
    }
}

fn may_succeed_later(error: &StatementError) -> bool {
    !matches!(error, StatementError::Port(Error::Rejected(_) | Error::Broken(_)))
}
