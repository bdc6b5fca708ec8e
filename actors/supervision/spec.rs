//! How a child is started, restarted and stopped, and how a supervisor treats its children.

use std::sync::Arc;
use std::time::Duration;

use actix_rt::ArbiterHandle;

use crate::backoff::Backoff;
use crate::bus::Bus;
use crate::gauge::Gauge;
use crate::order::{Line, Link};

/// Longer than any process lives, and no overflow when added to an instant.
pub(crate) const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// When a child that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Always.
    Permanent,
    /// Only after an abnormal end.
    Transient,
    /// Never, not even when a sibling takes it down.
    Temporary,
}

impl Restart {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Restart::Permanent => "permanent",
            Restart::Transient => "transient",
            Restart::Temporary => "temporary",
        }
    }

    pub(crate) fn wanted_after(self, reason: &crate::Reason) -> bool {
        match self {
            Restart::Permanent => true,
            Restart::Transient => reason.abnormal(),
            Restart::Temporary => false,
        }
    }
}

/// How a child is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Killed without a word.
    Brutal,
    /// Asked to drain, killed when it takes longer.
    Timeout(Duration),
    /// Asked to drain, waited for. Right for supervisors, whose children have limits of their own.
    Infinity,
}

impl Shutdown {
    pub(crate) fn word(self) -> String {
        match self {
            Shutdown::Brutal => "brutal".into(),
            Shutdown::Timeout(limit) => limit.as_millis().to_string(),
            Shutdown::Infinity => "infinity".into(),
        }
    }
}

/// Who goes down with a child that failed, and comes back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Nobody.
    OneForOne,
    /// The children that were started after it.
    RestForOne,
    /// All of them.
    OneForAll,
}

impl Strategy {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Strategy::OneForOne => "one_for_one",
            Strategy::RestForOne => "rest_for_one",
            Strategy::OneForAll => "one_for_all",
        }
    }

    /// Whether the child at `other` shares the fate of the one that failed at `failed`.
    pub(crate) fn takes_down(self, failed: usize, other: usize) -> bool {
        match self {
            Strategy::OneForOne => false,
            Strategy::RestForOne => other > failed,
            Strategy::OneForAll => other != failed,
        }
    }
}

/// What a child is launched with.
pub(crate) struct Launch {
    pub(crate) link: Link,
    pub(crate) bus: Bus,
    pub(crate) arbiter: Option<ArbiterHandle>,
    /// Nearest supervisor above that is shown.
    pub(crate) parent: Option<Arc<str>>,
}

pub(crate) type LaunchFn = Box<dyn FnOnce(Launch) -> Line + Send>;

/// A child: made by [`actor`](crate::actor) or [`SupervisorSpec::into_child`], changed through its fields or the methods of the
/// same name.
pub struct ChildSpec {
    /// Name within its supervisor; for an actor the path's last part.
    pub id: String,
    /// Where it stands for the world, such as `/relay/partition-worker-7`. Unique in the tree.
    pub path: String,
    /// Its kind, such as `PartitionWorker`: for an actor the name of its type. Empty for a supervisor.
    pub kind: &'static str,
    /// Default permanent.
    pub restart: Restart,
    /// Limit of `started()` with all of its `ctx.wait` futures. Default 10 s; the supervisor waits meanwhile, so keep it short.
    pub start_timeout: Duration,
    /// Default 5 s, the least a platform grants between TERM and KILL.
    pub shutdown: Shutdown,
    /// When it ends for good, a supervisor with `auto_shutdown` ends too. Default false.
    pub significant: bool,
    /// The thread it lives on; none = the supervisors' own. A supervisor ignores it.
    pub arbiter: Option<ArbiterHandle>,
    /// Kill it when it holds messages and finishes none for this long. Default off.
    pub stuck_after: Option<Duration>,
    pub(crate) gauge: Option<Arc<Gauge>>,
    pub(crate) launch: LaunchFn,
}

impl ChildSpec {
    /// Sets [`id`](Self::id).
    pub fn id(mut self, id: &str) -> Self {
        self.id = id.into();
        self
    }

    /// Sets [`restart`](Self::restart).
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Sets [`shutdown`](Self::shutdown).
    pub fn shutdown(mut self, shutdown: Shutdown) -> Self {
        self.shutdown = shutdown;
        self
    }

    /// Sets [`start_timeout`](Self::start_timeout).
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.start_timeout = limit;
        self
    }

    /// Makes it [`significant`](Self::significant).
    pub fn significant(mut self) -> Self {
        self.significant = true;
        self
    }

    /// Sets [`arbiter`](Self::arbiter).
    pub fn arbiter(mut self, arbiter: Option<ArbiterHandle>) -> Self {
        self.arbiter = arbiter;
        self
    }

    /// Sets [`stuck_after`](Self::stuck_after).
    pub fn stuck_after(mut self, limit: Duration) -> Self {
        self.stuck_after = Some(limit);
        self
    }
}

/// A supervisor: its children in start order and what it does when one of them ends.
pub struct SupervisorSpec {
    /// Name for [`Bus::start_child`] and [`Bus::remove_child`]. Unique in the tree.
    pub name: String,
    /// Path such as `/relay` when it is shown; none = it stands in no path and no snapshot.
    pub path: Option<String>,
    /// Who shares a failure.
    pub strategy: Strategy,
    /// More restarts than this within `window` and it gives up.
    pub max_restarts: usize,
    /// The sliding window of `max_restarts`.
    pub window: Duration,
    /// Delays before restarts.
    pub backoff: Backoff,
    /// End when a significant child ended for good. Default false.
    pub auto_shutdown: bool,
    /// Its children are alike and need no order: all of them are stopped at once, as OTP's simple_one_for_one does. Default false.
    pub stops_at_once: bool,
    /// Longest that each child may drain which goes down with a failed sibling: the failed one waits for it. Default none: as long as
    /// in a shutdown, as in OTP.
    pub grace: Option<Duration>,
    /// In start order.
    pub children: Vec<ChildSpec>,
}

impl SupervisorSpec {
    /// A supervisor without children that is not shown.
    pub fn new(name: &str, strategy: Strategy, max_restarts: usize, window: Duration) -> Self {
        SupervisorSpec {
            name: name.into(),
            path: None,
            strategy,
            max_restarts,
            window,
            backoff: Backoff::default(),
            auto_shutdown: false,
            stops_at_once: false,
            grace: None,
            children: Vec::new(),
        }
    }

    /// Shows it under this path: the `parent` of its children's rows.
    pub fn shown_at(mut self, path: &str) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Sets [`backoff`](Self::backoff).
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Ends when a significant child ended for good.
    pub fn auto_shutdown(mut self) -> Self {
        self.auto_shutdown = true;
        self
    }

    /// Stops its children all at once instead of one after the other.
    pub fn stops_at_once(mut self) -> Self {
        self.stops_at_once = true;
        self
    }

    /// Sets [`grace`](Self::grace).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Adds the next child.
    pub fn child(mut self, child: ChildSpec) -> Self {
        self.children.push(child);
        self
    }

    /// Adds a supervisor as the next child.
    pub fn supervisor(self, child: SupervisorSpec) -> Self {
        self.child(child.into_child())
    }

    /// Path when shown, else the name: what stands in events.
    pub(crate) fn label(&self) -> &str {
        self.path.as_deref().unwrap_or(&self.name)
    }

    /// A child of another supervisor: permanent, waited for without limit because its children have limits of their own.
    pub fn into_child(self) -> ChildSpec {
        ChildSpec {
            id: self.name.clone(),
            path: self.label().into(),
            kind: "",
            restart: Restart::Permanent,
            start_timeout: FOREVER,
            shutdown: Shutdown::Infinity,
            significant: false,
            arbiter: None,
            stuck_after: None,
            gauge: None,
            launch: Box::new(move |launch| crate::supervisor::launch(self, launch)),
        }
    }
}
