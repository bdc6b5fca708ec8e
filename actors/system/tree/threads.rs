//! The threads of the actors.
use std::time::Duration;

use actix_rt::{Arbiter, ArbiterHandle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::system::options::Options;

/// Least time that the threads get for their end, also after the deadline of a stop.
const STOP_TIME_MIN: Duration = Duration::from_millis(500);

/// The threads. Orders and relay have one each, so that a burst of either never starves the other's timers; managers run with the supervisors.
#[derive(Default)]
pub struct Threads {
    relay: Option<Arbiter>,
    orders: Option<Arbiter>,
}

impl Threads {
    pub(crate) fn new(options: &Options) -> Self {
        if options.threads {
            Self { relay: Some(Arbiter::new()), orders: Some(Arbiter::new()) }
        } else {
            Self::default()
        }
    }

    pub(crate) fn relay(&self) -> Option<ArbiterHandle> {
        self.relay.as_ref().map(Arbiter::handle)
    }

    pub(crate) fn orders(&self) -> Option<ArbiterHandle> {
        self.orders.as_ref().map(Arbiter::handle)
    }

    /// Ends the threads, after the tree has stopped. One that a handler blocks is left behind when the time is over; returns whether all ended.
    pub async fn stop(self, within: Duration) -> bool {
        let arbiters: Vec<Arbiter> = [self.relay, self.orders].into_iter().flatten().collect();
        if arbiters.is_empty() {
            return true;
        }
        let (ended, end) = oneshot::channel();
        let join = move || {
            for arbiter in arbiters {
                arbiter.stop();
                // A panic of the thread was logged when it happened.
                let _ = arbiter.join();
            }
            // Fails if the time was over.
            let _ = ended.send(());
        };
        std::thread::spawn(join);
        matches!(timeout(within.max(STOP_TIME_MIN), end).await, Ok(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn blocked_thread_does_not_delay_the_stop() {
        let threads = || Threads { relay: Some(Arbiter::new()), orders: Some(Arbiter::new()) };
        actix_rt::System::new().block_on(async {
            let ((entered, has_entered), (release, released)) = (channel(), channel::<()>());
            let held = threads();
            held.relay().expect("there is one").spawn_fn(move || {
                entered.send(()).expect("the test waits");
                assert!(released.recv().is_err());
            });
            has_entered.recv().expect("the thread is blocked now");
            assert!(!held.stop(Duration::from_millis(1)).await);
            drop(release);

            assert!(threads().stop(Duration::from_secs(30)).await);
        });
    }
}
