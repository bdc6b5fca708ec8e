//! Child specs and supervisor specs: how a child is started, restarted and stopped, and how a supervisor treats its children.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::ArbiterHandle;

use crate::child::backoff::Backoff;
use crate::child::command_channel::ActorCommandSender;
use crate::child::policy::{Restart, Shutdown, Strategy};
use crate::child::signal::SupervisorLink;
use crate::mailbox::state::MailboxState;

/// Spawns an actor's task on its arbiter, or on the calling thread without one.
pub(crate) type LaunchFn = Box<dyn FnOnce(SupervisorLink, Option<ArbiterHandle>) -> ActorCommandSender + Send>;

/// Work that the root of a tree awaits when it escalates: after the failed child has ended, and before the other children stop.
pub(crate) type EscalationHook = Box<dyn FnOnce(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The task that a child runs: an actor or a nested supervisor.
pub(crate) enum ChildBody {
    Actor { mailbox: Arc<MailboxState>, launch: LaunchFn },
    Supervisor(Box<SupervisorSpec>),
}

/// The spec of one child. [`actor`](crate::actor) and [`SupervisorSpec::into_child`] make it; its fields or the methods of the same
/// name change it.
pub struct ChildSpec {
    /// Name within its supervisor; for an actor the last segment of its path.
    pub id: String,
    /// Public path, such as `/relay/partition-worker-7`. Unique in the tree.
    pub path: String,
    /// Type name of the actor, such as `PartitionWorker`. Empty for a supervisor.
    pub kind: &'static str,
    /// Whether the child is restarted after an exit. Default permanent.
    pub restart: Restart,
    /// Limit of `started()` with all of its `ctx.wait` futures. Default 10 s. The supervisor handles nothing else meanwhile, as in
    /// OTP, so keep it short.
    pub start_timeout: Duration,
    /// How the child is stopped. Default 5 s, the least time a platform grants between TERM and KILL.
    pub shutdown: Shutdown,
    /// A supervisor with `auto_shutdown` ends when this child ended for good. Default false.
    pub significant: bool,
    /// The arbiter whose thread runs the actor; none = the thread of the supervisors. Ignored for a supervisor.
    pub arbiter: Option<ArbiterHandle>,
    /// The watchdog kills the actor when it holds messages and finishes none for this long. Default off.
    pub stuck_after: Option<Duration>,
    pub(crate) body: ChildBody,
}

impl ChildSpec {
    /// Sets [`id`](Self::id), the name within its supervisor.
    pub fn id(mut self, id: &str) -> Self {
        self.id = id.into();
        self
    }

    /// Sets [`restart`](Self::restart), the restart type.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Sets [`shutdown`](Self::shutdown), the drain limit.
    pub fn shutdown(mut self, shutdown: Shutdown) -> Self {
        self.shutdown = shutdown;
        self
    }

    /// Sets [`start_timeout`](Self::start_timeout), the limit of a start.
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.start_timeout = limit;
        self
    }

    /// Makes the child [`significant`](Self::significant) for `auto_shutdown`.
    pub fn significant(mut self) -> Self {
        self.significant = true;
        self
    }

    /// Sets [`arbiter`](Self::arbiter), the thread of the actor.
    pub fn arbiter(mut self, arbiter: Option<ArbiterHandle>) -> Self {
        self.arbiter = arbiter;
        self
    }

    /// Sets [`stuck_after`](Self::stuck_after), the watchdog's limit.
    pub fn stuck_after(mut self, limit: Duration) -> Self {
        self.stuck_after = Some(limit);
        self
    }
}

/// The spec of one supervisor: its children in start order and how it reacts to their exits.
pub struct SupervisorSpec {
    /// Name for [`start_child`](crate::SupervisionBus::start_child) and [`remove_child`](crate::SupervisionBus::remove_child). Unique
    /// in the tree.
    pub name: String,
    /// Public path, such as `/relay`: the `parent` of its children in snapshots. None = hidden, the next visible supervisor above it is
    /// the parent.
    pub path: Option<String>,
    /// Which siblings are restarted with a failed child.
    pub strategy: Strategy,
    /// Restart intensity: with more restarts than this within `window` the supervisor escalates.
    pub max_restarts: usize,
    /// The sliding window of `max_restarts` (OTP's period).
    pub window: Duration,
    /// Delays before restarts. Default 50 ms to 500 ms.
    pub backoff: Backoff,
    /// The supervisor ends when a significant child ended for good (OTP's `any_significant`). Default false.
    pub auto_shutdown: bool,
    /// All children are asked to stop at once instead of one after the other, as under OTP's `simple_one_for_one`. For children of the
    /// same kind that do not depend on each other. Default false.
    pub parallel_shutdown: bool,
    /// Longest drain of each sibling that the strategy stops with a failed child, which waits for it, and of all children together when the
    /// supervisor escalates to the one above it. Default none: the shutdown limit of each child applies, as in OTP.
    pub sibling_drain_limit: Option<Duration>,
    /// The children in start order.
    pub children: Vec<ChildSpec>,
    pub(crate) before_escalation: Option<EscalationHook>,
}

impl SupervisorSpec {
    /// A hidden supervisor without children and with default options.
    pub fn new(name: &str, strategy: Strategy, max_restarts: usize, window: Duration) -> Self {
        SupervisorSpec {
            name: name.into(),
            path: None,
            strategy,
            max_restarts,
            window,
            backoff: Backoff::default(),
            auto_shutdown: false,
            parallel_shutdown: false,
            sibling_drain_limit: None,
            children: Vec::new(),
            before_escalation: None,
        }
    }

    /// Sets [`path`](Self::path), which makes the supervisor visible.
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Sets [`backoff`](Self::backoff), the restart delays.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets [`auto_shutdown`](Self::auto_shutdown), off by default.
    pub fn auto_shutdown(mut self) -> Self {
        self.auto_shutdown = true;
        self
    }

    /// Sets [`parallel_shutdown`](Self::parallel_shutdown), off by default.
    pub fn parallel_shutdown(mut self) -> Self {
        self.parallel_shutdown = true;
        self
    }

    /// Sets [`sibling_drain_limit`](Self::sibling_drain_limit) for each sibling.
    pub fn sibling_drain_limit(mut self, limit: Duration) -> Self {
        self.sibling_drain_limit = Some(limit);
        self
    }

    /// Sets work that the root of a tree awaits when it escalates, while its other children still run. The work receives its time limit, half of
    /// [`Options::escalation_timeout`](crate::Options::escalation_timeout), and is dropped when the limit has passed. A nested supervisor ignores it.
    pub fn before_escalation<W>(mut self, work: impl FnOnce(Duration) -> W + Send + 'static) -> Self
    where
        W: Future<Output = ()> + Send + 'static,
    {
        self.before_escalation = Some(Box::new(|limit| Box::pin(work(limit))));
        self
    }

    /// Adds the next child in start order.
    pub fn child(mut self, child: ChildSpec) -> Self {
        self.children.push(child);
        self
    }

    /// Adds a nested supervisor as the next child.
    pub fn supervisor(self, child: SupervisorSpec) -> Self {
        self.child(child.into_child())
    }

    /// The path, or the name without one: the value of `supervisor` in events.
    pub(crate) fn label(&self) -> &str {
        self.path.as_deref().unwrap_or(&self.name)
    }

    /// The spec of this supervisor as a child of another one: permanent, and drained without a limit because its children have limits
    /// of their own.
    pub fn into_child(self) -> ChildSpec {
        ChildSpec {
            id: self.name.clone(),
            path: self.label().into(),
            kind: "",
            restart: Restart::Permanent,
            start_timeout: Shutdown::UNLIMITED,
            shutdown: Shutdown::Infinity,
            significant: false,
            arbiter: None,
            stuck_after: None,
            body: ChildBody::Supervisor(Box::new(self)),
        }
    }
}
