//! Waiting for a fixed time: only for the duration of a failure, where there is no condition to wait for.
use std::time::{Duration, Instant};

use kit::wait::until;

/// Returns after this time.
pub fn wait_for(time: Duration) {
    let started = Instant::now();
    until("the time has passed", time + Duration::from_secs(5), || (started.elapsed() >= time).then_some(()));
}
