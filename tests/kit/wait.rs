//! Waits for a condition with a deadline: the only code in tests that sleeps.
use std::time::{Duration, Instant};

use ports::Error;

/// The environment variable with the factor for every deadline.
const FACTOR_VARIABLE: &str = "POSTHASTE_TEST_TIMEOUT_FACTOR";
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A deadline of an idle machine, multiplied by the factor of the environment (1 unless it is set). Where other processes share
/// the processors or the disk, a deadline must detect a hang and not a slow machine.
pub fn scaled(limit: Duration) -> Duration {
    let factor = std::env::var(FACTOR_VARIABLE).ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    limit * factor
}

/// Sleeps: for how long an injected failure lasts, or between two requests of a client or two measurements. Nothing ends these but time, and
/// a slow machine does not need more of it. Where there is a condition, a test waits for the condition.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Calls `poll` until it returns a value, for at most the [`scaled`] `limit`. `description` names the value in the panic message.
///
/// # Panics
/// When the limit has passed.
#[track_caller]
pub fn until<T>(description: &str, limit: Duration, poll: impl FnMut() -> Option<T>) -> T {
    until_since(Instant::now(), description, limit, poll)
}

/// As [`until`], with the limit counted from `start`: for several waits that share one deadline.
///
/// # Panics
/// When the limit has passed.
#[track_caller]
pub fn until_since<T>(start: Instant, description: &str, limit: Duration, mut poll: impl FnMut() -> Option<T>) -> T {
    until_ok(start, limit, || poll().ok_or_else(|| description.to_owned()))
}

/// Repeats a call while its dependency does not answer within the limits of the product, which a slow machine may exceed. Returns any other
/// result at once, and the last one when the [`scaled`] `limit` has passed. The call must be idempotent.
///
/// # Errors
/// The other errors of the call, and its last one after the limit.
pub async fn until_answered<T, F: Future<Output = Result<T, Error>>>(
    limit: Duration,
    call: impl FnMut() -> F,
) -> Result<T, Error> {
    let is_unanswered =
        |error: &Error| matches!(error, Error::Unreachable(_) | Error::Unknown(_) | Error::Overloaded(_));
    repeat_while(is_unanswered, limit, call).await
}

/// As [`until_answered`], for a call that need not be idempotent: it is repeated only after an error that says that it had no effect.
///
/// # Errors
/// The other errors of the call, and its last one after the limit.
pub async fn until_accepted<T, F: Future<Output = Result<T, Error>>>(
    limit: Duration,
    call: impl FnMut() -> F,
) -> Result<T, Error> {
    repeat_while(|error| matches!(error, Error::Unreachable(_) | Error::Overloaded(_)), limit, call).await
}

async fn repeat_while<T, F: Future<Output = Result<T, Error>>>(
    may_repeat: impl Fn(&Error) -> bool,
    limit: Duration,
    mut call: impl FnMut() -> F,
) -> Result<T, Error> {
    let (started, limit) = (Instant::now(), scaled(limit));
    loop {
        match call().await {
            Err(error) if may_repeat(&error) && started.elapsed() < limit => {}
            result => return result,
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// As [`until_since`], where each poll that fails describes what it found: the panic message contains the last description.
///
/// # Panics
/// When the limit has passed.
#[track_caller]
pub fn until_ok<T>(start: Instant, limit: Duration, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let limit = scaled(limit);
    loop {
        match poll() {
            Ok(value) => return value,
            Err(found) => assert!(start.elapsed() < limit, "waited {limit:?} without success for: {found}"),
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
