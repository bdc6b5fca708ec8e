//! Sizes of mailboxes and restart intensities, and supervisors made of them.
use std::time::Duration;

use supervision::{ChildSpec, Incarnation, Mailbox, Strategy, SupervisedActor, SupervisionBus, SupervisorSpec};

/// Mailbox size of actors that receive few messages.
pub(crate) const MAILBOX_SMALL: usize = 64;
/// Mailbox size of a worker: a second message waits outside, which is the backpressure.
pub(crate) const MAILBOX_ONE: usize = 1;

/// Longest drain of a consumer. It finishes the messages that are under way, with a POST of the handler and one of the fallback, each of which takes
/// 10 s at most, and applies its decisions on them; the deadline of the whole stop may end it earlier.
pub(crate) const CONSUMER_DRAIN_MAX: Duration = Duration::from_secs(25);

/// An actor that holds messages and completes none of them for this long is killed and restarted. Every wait of an actor has a limit, the
/// longest that of a lease (30 s): only an actor that hangs takes four times as long.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// Restart intensity: the most restarts that a supervisor makes within a sliding window.
#[derive(Clone, Copy)]
pub(crate) struct Intensity {
    restarts_max: usize,
    window: Duration,
}

impl Intensity {
    pub(crate) const ROOT: Self = Self::new(3, 60);
    pub(crate) const MANAGER: Self = Self::new(5, 30);
    pub(crate) const RELAY: Self = Self::new(5, 30);
    pub(crate) const WORKERS: Self = Self::new(20, 60);
    pub(crate) const CONSUMER: Self = Self::new(5, 30);
    pub(crate) const WEBHOOKS: Self = Self::new(20, 60);
    pub(crate) const INTAKE: Self = Self::new(5, 30);
    pub(crate) const PROMOTER: Self = Self::new(5, 60);
    pub(crate) const SHARDS: Self = Self::new(20, 60);

    const fn new(restarts_max: usize, window_secs: u64) -> Self {
        Self { restarts_max, window: Duration::from_secs(window_secs) }
    }
}

pub(crate) fn supervisor(name: &str, strategy: Strategy, intensity: Intensity) -> SupervisorSpec {
    SupervisorSpec::new(name, strategy, intensity.restarts_max, intensity.window)
}

/// A supervisor with only this child, so that the child has a restart intensity of its own.
pub(crate) fn only_child(name: &str, intensity: Intensity, child: ChildSpec) -> SupervisorSpec {
    supervisor(name, Strategy::OneForOne, intensity).child(child)
}

/// An actor of the tree, which the watchdog restarts when it hangs.
pub(crate) fn actor<A: SupervisedActor>(
    bus: &SupervisionBus,
    path: &str,
    capacity: usize,
    factory: impl Fn(Incarnation) -> A + Send + 'static,
) -> (Mailbox<A>, ChildSpec) {
    let (mailbox, spec) = supervision::actor(bus, path, capacity, factory);
    (mailbox, spec.stuck_after(STUCK_AFTER))
}
