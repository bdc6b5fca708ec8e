//! The bus of a tree: the stream of its events, the registry of its actors, and the addresses of its supervisors.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::bus::arbiter_probe::ArbiterProbe;
use crate::bus::drain_report::UnfinishedActor;
use crate::bus::options::Options;
use crate::bus::registry::ActorRegistry;
use crate::bus::snapshot::ActorSnapshot;
use crate::bus::supervisor_command::SupervisorCommand;
use crate::bus::supervisor_registry::{SupervisorRegistry, SupervisorSnapshot};
use crate::child::exit::ExitReason;
use crate::child::spec::ChildSpec;
use crate::events::event::{FieldValue, SupervisionEvent};
use crate::events::log_line;
use crate::events::observer::{NoopObserver, Observer};
use crate::events::stream::EventStream;

/// Why a child could not be added or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    /// No supervisor of that name runs in the tree.
    #[error("there is no supervisor {0}")]
    NoSuchSupervisor(String),
    /// The supervisor has no child with that id.
    #[error("there is no child {0}")]
    NoSuchChild(String),
    /// Another child has the path, or has not ended yet.
    #[error("the path {0} is taken")]
    PathTaken(String),
}

/// The handle of one tree: events, snapshots, faults, and adding and removing children. Cheap to clone, usable from every thread.
/// One bus serves one [`RootSupervisor`](crate::RootSupervisor).
#[derive(Clone)]
pub struct SupervisionBus(Arc<BusState>);

struct BusState {
    options: Options,
    observer: Arc<dyn Observer>,
    stream: EventStream,
    /// Held while an event goes to stream and log.
    publish_lock: Mutex<()>,
    registry: ActorRegistry,
    supervisor_registry: SupervisorRegistry,
    supervisors: Mutex<HashMap<String, mpsc::UnboundedSender<SupervisorCommand>>>,
    arbiter_probes: Mutex<Vec<ArbiterProbe>>,
    /// The deadline of a shutdown of the whole tree; none = no shutdown has begun.
    shutdown_deadline: watch::Sender<Option<Instant>>,
    /// Why the root escalated; none = it did not.
    escalated: watch::Sender<Option<ExitReason>>,
    unfinished: Mutex<Vec<UnfinishedActor>>,
}

impl Default for SupervisionBus {
    fn default() -> Self {
        SupervisionBus::new(Options::default(), Arc::new(NoopObserver))
    }
}

impl SupervisionBus {
    /// A bus with these limits; `observer` receives every event and every handled message.
    pub fn new(options: Options, observer: Arc<dyn Observer>) -> SupervisionBus {
        let stream = EventStream::new(options.first_event_seq, options.event_ring_capacity, options.subscriber_lag_max);
        SupervisionBus(Arc::new(BusState {
            options,
            observer,
            stream,
            publish_lock: Mutex::default(),
            registry: ActorRegistry::default(),
            supervisor_registry: SupervisorRegistry::default(),
            supervisors: Mutex::default(),
            arbiter_probes: Mutex::default(),
            shutdown_deadline: watch::Sender::new(None),
            escalated: watch::Sender::new(None),
            unfinished: Mutex::default(),
        }))
    }

    /// The events after number `seq` that the ring still holds (all of them without a number, or with one from before a restart of
    /// the process), and a receiver of every later one. A first event beyond `seq + 1` means that the ring dropped some; a receiver
    /// that lags further than [`Options::subscriber_lag_max`] gets a `Lagged` error.
    pub fn subscribe_after(&self, seq: Option<u64>) -> (Vec<SupervisionEvent>, broadcast::Receiver<SupervisionEvent>) {
        self.0.stream.after(seq)
    }

    /// Publishes an event of another crate (failover, breaker, backpressure) on the same stream. It is not logged here: the other crate
    /// logs its own events.
    pub fn publish_external(&self, event: &'static str, fields: Vec<(&'static str, String)>) {
        let mut event = SupervisionEvent::new(event, Level::INFO);
        event.fields = fields.into_iter().map(|(name, text)| (name, FieldValue::Text(text))).collect();
        let event = self.0.stream.push(event);
        self.0.observer.lifecycle(&event);
    }

    /// Whether a shutdown of the whole tree has begun. Actors with long work check it and end early: their own drain request comes only after
    /// the siblings that started later have ended.
    pub fn is_shutting_down(&self) -> bool {
        self.0.shutdown_deadline.borrow().is_some()
    }

    /// Adds a child as the last one, in start order, of a running supervisor, which starts it at once. The child is restarted like any other, also
    /// with its supervisor. The call does not wait for the start; a failed one shows in events. When a supervisor is added, the caller
    /// guarantees that the paths of its children are free.
    ///
    /// # Errors
    /// [`ChildError::NoSuchSupervisor`] or [`ChildError::PathTaken`].
    pub fn start_child(&self, supervisor: &str, spec: ChildSpec) -> Result<(), ChildError> {
        let commands = self.supervisor(supervisor)?;
        let path: Arc<str> = spec.path.as_str().into();
        if !self.0.registry.reserve(&path) {
            return Err(ChildError::PathTaken(spec.path));
        }
        commands.send(SupervisorCommand::AddChild(spec)).map_err(|_| {
            self.0.registry.remove(&path);
            ChildError::NoSuchSupervisor(supervisor.into())
        })
    }

    /// Drains, stops and removes a child; resolves when its task has ended and its path is free. If the future is dropped, the removal
    /// continues. An actor must not await its own removal: it would wait for itself.
    ///
    /// # Errors
    /// [`ChildError::NoSuchSupervisor`] or [`ChildError::NoSuchChild`].
    pub async fn remove_child(&self, supervisor: &str, id: &str) -> Result<(), ChildError> {
        let (reply, removed) = oneshot::channel();
        let no_supervisor = || ChildError::NoSuchSupervisor(supervisor.into());
        self.supervisor(supervisor)?
            .send(SupervisorCommand::RemoveChild { id: id.into(), reply })
            .map_err(|_| no_supervisor())?;
        if removed.await.map_err(|_| no_supervisor())? { Ok(()) } else { Err(ChildError::NoSuchChild(id.into())) }
    }

    /// Probes the thread of an arbiter while the tree runs: `arbiter_stalled` when it does not respond in time, `arbiter_recovered` when
    /// it responds again.
    pub fn watch_arbiter(&self, name: &str, arbiter: actix_rt::ArbiterHandle) {
        self.0.arbiter_probes.lock().push(ArbiterProbe::new(name, arbiter));
    }

    /// Every actor of the tree, sorted by path with numbers by value (`worker-2` before `worker-10`).
    pub fn snapshot(&self) -> Vec<ActorSnapshot> {
        self.0.registry.snapshot()
    }

    /// The work that an actor named with [`in_progress`](crate::in_progress) and has not done yet. None without any, and for an unknown path.
    pub fn in_progress(&self, path: &str) -> Option<String> {
        self.0.registry.in_progress(path)
    }

    /// Every supervisor that runs; each comes before the supervisors below it.
    pub fn supervisors(&self) -> Vec<SupervisorSnapshot> {
        self.0.supervisor_registry.snapshot(Instant::now())
    }

    /// The limits that the bus was created with.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        self.0.observer.clone()
    }

    pub(crate) fn registry(&self) -> &ActorRegistry {
        &self.0.registry
    }

    /// Lowers `message_unhandled` to INFO during a shutdown, when it is expected that actors that ended take no messages.
    pub(crate) fn expected_in_shutdown(&self, unhandled: SupervisionEvent) -> SupervisionEvent {
        let level = if self.is_shutting_down() { Level::INFO } else { unhandled.level };
        SupervisionEvent { level, ..unhandled }
    }

    /// Publishes an event: stream first, then the log, in the same order for all threads, so that no effect precedes its cause. The
    /// observer is called without the lock.
    pub(crate) fn publish(&self, event: SupervisionEvent) {
        let publishing = self.0.publish_lock.lock();
        let event = self.0.stream.push(event);
        log_line::write(&event);
        drop(publishing);
        self.0.observer.lifecycle(&event);
    }

    fn supervisor(&self, name: &str) -> Result<mpsc::UnboundedSender<SupervisorCommand>, ChildError> {
        self.0.supervisors.lock().get(name).cloned().ok_or_else(|| ChildError::NoSuchSupervisor(name.into()))
    }

    pub(crate) fn supervisor_registry(&self) -> &SupervisorRegistry {
        &self.0.supervisor_registry
    }

    pub(crate) fn register_supervisor(&self, name: &str, commands: mpsc::UnboundedSender<SupervisorCommand>) {
        self.0.supervisors.lock().insert(name.into(), commands);
    }

    pub(crate) fn unregister_supervisor(&self, name: &str) {
        self.0.supervisors.lock().remove(name);
        self.0.supervisor_registry.record_end(name);
    }

    pub(crate) fn with_arbiter_probes<R>(&self, f: impl FnOnce(&mut Vec<ArbiterProbe>) -> R) -> R {
        f(&mut self.0.arbiter_probes.lock())
    }

    pub(crate) fn begin_shutdown(&self, deadline: Instant) {
        self.0.shutdown_deadline.send_replace(Some(deadline));
    }

    pub(crate) fn shutdown_deadline(&self) -> watch::Receiver<Option<Instant>> {
        self.0.shutdown_deadline.subscribe()
    }

    pub(crate) fn record_root_escalation(&self, reason: ExitReason) {
        self.0.escalated.send_replace(Some(reason));
    }

    pub(crate) fn escalated(&self) -> watch::Receiver<Option<ExitReason>> {
        self.0.escalated.subscribe()
    }

    /// Records an actor once. One that dies during a shutdown is reported twice: at its exit, and with its mailbox when its task ends.
    pub(crate) fn record_unfinished(&self, actor: UnfinishedActor) {
        let mut unfinished = self.0.unfinished.lock();
        match unfinished.iter_mut().find(|recorded| recorded.path == actor.path) {
            Some(recorded) => {
                recorded.queued_or_in_flight = recorded.queued_or_in_flight.max(actor.queued_or_in_flight);
            }
            None => unfinished.push(actor),
        }
    }

    pub(crate) fn take_unfinished(&self) -> Vec<UnfinishedActor> {
        std::mem::take(&mut *self.0.unfinished.lock())
    }
}
