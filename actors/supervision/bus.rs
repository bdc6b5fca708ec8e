//! What a tree shares with the world: the stream of its events, the table of its actors, and the way to its supervisors.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::arbiter::Pulse;
use crate::event::{Event, Value};
use crate::log;
use crate::options::{Deaf, Observer, Options};
use crate::order::SupervisorOrder;
use crate::root::LeftOver;
use crate::snapshot::Seat;
use crate::spec::ChildSpec;
use crate::stream::Stream;

/// Why a child could not be added or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    /// No supervisor of that name runs in the tree.
    #[error("there is no supervisor {0}")]
    NoSuchSupervisor(String),
    /// The supervisor has no child with that id.
    #[error("there is no child {0}")]
    NoSuchChild(String),
    /// Another child stands at the path, or has not finished leaving it.
    #[error("the path {0} is taken")]
    PathTaken(String),
}

/// The face of one tree. Cheap to clone, usable from every thread. One bus serves one [`Root`](crate::Root).
#[derive(Clone)]
pub struct Bus(Arc<Inner>);

struct Inner {
    options: Options,
    observer: Arc<dyn Observer>,
    stream: Stream,
    /// Held while an event goes into stream and log.
    pen: Mutex<()>,
    seats: Mutex<BTreeMap<Arc<str>, Seat>>,
    supervisors: Mutex<HashMap<String, mpsc::UnboundedSender<SupervisorOrder>>>,
    pulses: Mutex<Vec<Pulse>>,
    /// When a shutdown of the whole tree is to be over; none = it runs.
    halt: watch::Sender<Option<Instant>>,
    left: Mutex<Vec<LeftOver>>,
}

impl Default for Bus {
    fn default() -> Self {
        Bus::new(Options::default(), Arc::new(Deaf))
    }
}

impl Bus {
    /// A bus with these limits, whose events and handled messages `observer` hears.
    pub fn new(options: Options, observer: Arc<dyn Observer>) -> Bus {
        let stream = Stream::new(options.ring, options.broadcast);
        Bus(Arc::new(Inner {
            options,
            observer,
            stream,
            pen: Mutex::default(),
            seats: Mutex::default(),
            supervisors: Mutex::default(),
            pulses: Mutex::default(),
            halt: watch::Sender::new(None),
            left: Mutex::default(),
        }))
    }

    /// The events after number `seq` that the ring still holds (all of them without a number, or with one from before a restart of
    /// the process), and a receiver of every later one. A first event beyond `seq + 1` says that the ring has forgotten some; a
    /// receiver that lags further than the broadcast's bound is told so by its own error.
    pub fn subscribe_after(&self, seq: Option<u64>) -> (Vec<Event>, broadcast::Receiver<Event>) {
        self.0.stream.after(seq)
    }

    /// Puts another room's transition (failover, breaker, backpressure) on the same stream. It is not logged: that room has.
    pub fn publish_note(&self, event: &'static str, fields: Vec<(&'static str, String)>) {
        let mut note = Event::new(event, Level::INFO);
        note.fields = fields.into_iter().map(|(name, text)| (name, Value::Text(text))).collect();
        let note = self.0.stream.push(note);
        self.0.observer.lifecycle(&note);
    }

    /// Adds a child behind the last one of a running supervisor, which starts it at once; it is restarted like any other and comes
    /// back with its supervisor. Does not wait for the start: a failing one is told by events. A supervisor may be added too; that
    /// its children's paths are free is on the caller.
    pub fn start_child(&self, supervisor: &str, spec: ChildSpec) -> Result<(), ChildError> {
        let line = self.supervisor(supervisor)?;
        let path: Arc<str> = spec.path.as_str().into();
        if !self.reserve(&path) {
            return Err(ChildError::PathTaken(spec.path));
        }
        line.send(SupervisorOrder::Add(spec)).map_err(|_| {
            self.forget(&path);
            ChildError::NoSuchSupervisor(supervisor.into())
        })
    }

    /// Drains, stops and forgets a child; resolves when it is gone and its path is free. Dropped, the removal goes on. An actor must
    /// not await its own removal.
    pub async fn remove_child(&self, supervisor: &str, id: &str) -> Result<(), ChildError> {
        let (ack, gone) = oneshot::channel();
        let no_supervisor = || ChildError::NoSuchSupervisor(supervisor.into());
        self.supervisor(supervisor)?
            .send(SupervisorOrder::Remove { id: id.into(), ack })
            .map_err(|_| no_supervisor())?;
        if gone.await.map_err(|_| no_supervisor())? { Ok(()) } else { Err(ChildError::NoSuchChild(id.into())) }
    }

    /// Watches a thread on which actors live: `arbiter_stalled` when it does not answer in time, `arbiter_recovered` when it does
    /// again. While the tree runs.
    pub fn watch_arbiter(&self, name: &str, arbiter: actix_rt::ArbiterHandle) {
        self.0.pulses.lock().push(Pulse::new(name, arbiter));
    }

    /// The limits it was made with.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        self.0.observer.clone()
    }

    /// In a shutdown it is no surprise that whoever has ended takes nothing more.
    pub(crate) fn dampened(&self, letter: Event) -> Event {
        let level = if self.0.halt.borrow().is_some() { Level::INFO } else { letter.level };
        Event { level, ..letter }
    }

    /// Stream first, then the log, in one order whichever threads speak: an effect is not to stand before its cause. The observer hears
    /// it without any lock held.
    pub(crate) fn emit(&self, event: Event) {
        let pen = self.0.pen.lock();
        let event = self.0.stream.push(event);
        log::write(&event);
        drop(pen);
        self.0.observer.lifecycle(&event);
    }

    fn supervisor(&self, name: &str) -> Result<mpsc::UnboundedSender<SupervisorOrder>, ChildError> {
        self.0.supervisors.lock().get(name).cloned().ok_or_else(|| ChildError::NoSuchSupervisor(name.into()))
    }

    pub(crate) fn enter_supervisor(&self, name: &str, line: mpsc::UnboundedSender<SupervisorOrder>) {
        self.0.supervisors.lock().insert(name.into(), line);
    }

    pub(crate) fn leave_supervisor(&self, name: &str) {
        self.0.supervisors.lock().remove(name);
    }

    /// Takes a path for a child to come. False when another child has it.
    pub(crate) fn reserve(&self, path: &Arc<str>) -> bool {
        let mut seats = self.0.seats.lock();
        if seats.get(path).is_some_and(|seat| seat.taken) {
            return false;
        }
        seats.insert(path.clone(), Seat::reserved());
        true
    }

    pub(crate) fn forget(&self, path: &Arc<str>) {
        self.0.seats.lock().remove(path);
    }

    pub(crate) fn with_seat<R>(&self, path: &str, f: impl FnOnce(&mut Seat) -> R) -> Option<R> {
        self.0.seats.lock().get_mut(path).map(f)
    }

    pub(crate) fn with_seats<R>(&self, f: impl FnOnce(&mut BTreeMap<Arc<str>, Seat>) -> R) -> R {
        f(&mut self.0.seats.lock())
    }

    pub(crate) fn with_pulses<R>(&self, f: impl FnOnce(&mut Vec<Pulse>) -> R) -> R {
        f(&mut self.0.pulses.lock())
    }

    pub(crate) fn halt_at(&self, deadline: Instant) {
        self.0.halt.send_replace(Some(deadline));
    }

    pub(crate) fn halt(&self) -> watch::Receiver<Option<Instant>> {
        self.0.halt.subscribe()
    }

    pub(crate) fn leave_behind(&self, left: LeftOver) {
        self.0.left.lock().push(left);
    }

    pub(crate) fn take_left(&self) -> Vec<LeftOver> {
        std::mem::take(&mut *self.0.left.lock())
    }
}
