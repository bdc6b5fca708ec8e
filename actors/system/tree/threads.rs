//! The threads of the actors.
use actix_rt::{Arbiter, ArbiterHandle};

use crate::system::options::Options;

/// The threads. Orders and relay are apart, so that a burst of either never starves the other's timers; managers run with the supervisors.
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

    /// Ends the threads. Call it after the tree has stopped.
    pub fn stop(self) {
        for arbiter in [self.relay, self.orders].into_iter().flatten() {
            arbiter.stop();
            // A panic of the thread was logged when it happened.
            let _ = arbiter.join();
        }
    }
}
