//! The registry of a tree: one entry for each path, with what snapshots, fault injection and the watchdog need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::Level;

use crate::bus::snapshot::{ActorSnapshot, ActorState, natural_order};
use crate::bus::supervisor_command::CommandSender;
use crate::events::event::SupervisionEvent;
use crate::mailbox::state::MailboxState;

/// The registry's entry for one path. Supervisors have one too, without a mailbox.
pub(crate) struct RegistryEntry {
    /// A child has the path, or it is reserved for one; otherwise the entry only keeps the state of a child that ended.
    pub(crate) occupied: bool,
    pub(crate) supervisor: Arc<str>,
    pub(crate) parent: Option<Arc<str>>,
    pub(crate) commands: Option<CommandSender>,
    pub(crate) mailbox: Option<Arc<MailboxState>>,
    pub(crate) stuck_after: Option<Duration>,
    pub(crate) state: ActorState,
    pub(crate) generation: u64,
    pub(crate) restarts: u64,
    /// When the latest incarnation started.
    pub(crate) started_at: Option<Instant>,
    pub(crate) last_exit: Option<String>,
    pub(crate) saturated: bool,
    /// When the last `message_unhandled` event of each reason was published.
    pub(crate) unhandled_at: [Option<Instant>; 3],
}

impl RegistryEntry {
    fn reserved() -> RegistryEntry {
        RegistryEntry {
            occupied: true,
            supervisor: "".into(),
            parent: None,
            commands: None,
            mailbox: None,
            stuck_after: None,
            state: ActorState::Restarting,
            generation: 0,
            restarts: 0,
            started_at: None,
            last_exit: None,
            saturated: false,
            unhandled_at: [None; 3],
        }
    }

    /// Records that the child ended for good: its path is free, its last state stays readable.
    pub(crate) fn retire(&mut self) {
        (self.state, self.occupied, self.commands) = (ActorState::Stopped, false, None);
    }

    /// An event about the actor of this entry.
    pub(crate) fn event(&self, path: &str, event: &'static str, level: Level) -> SupervisionEvent {
        let mut event = SupervisionEvent::new(event, level);
        event.supervisor = self.supervisor.clone();
        event.child = path.into();
        event.child_type = "worker";
        event.kind = self.mailbox.as_ref().map_or("", |mailbox| mailbox.kind);
        event.generation = self.generation;
        event
    }

    fn public_state(&self) -> ActorState {
        let paused = self.mailbox.as_ref().is_some_and(|mailbox| mailbox.paused.load(SeqCst));
        if self.state == ActorState::Running && paused { ActorState::Paused } else { self.state }
    }

    /// None for a supervisor, and for a path that is only reserved.
    fn snapshot(&self, path: &str) -> Option<ActorSnapshot> {
        let mailbox = self.mailbox.as_ref()?;
        Some(ActorSnapshot {
            path: path.to_owned(),
            kind: mailbox.kind,
            state: self.public_state(),
            generation: self.generation,
            restarts: self.restarts,
            uptime: self.started_at.filter(|_| self.state == ActorState::Running).map(|at| at.elapsed()),
            mailbox_depth: mailbox.outstanding(),
            mailbox_capacity: mailbox.capacity,
            last_exit: self.last_exit.clone(),
            supervisor: self.supervisor.to_string(),
            parent: self.parent.as_deref().map(str::to_owned),
        })
    }
}

/// All paths of one tree and their entries.
#[derive(Default)]
pub(crate) struct ActorRegistry(Mutex<BTreeMap<Arc<str>, RegistryEntry>>);

impl ActorRegistry {
    /// Reserves a path for a child that will be launched. False when another child has it.
    pub(crate) fn reserve(&self, path: &Arc<str>) -> bool {
        let mut entries = self.0.lock();
        if entries.get(path).is_some_and(|entry| entry.occupied) {
            return false;
        }
        entries.insert(path.clone(), RegistryEntry::reserved());
        true
    }

    pub(crate) fn remove(&self, path: &Arc<str>) {
        self.0.lock().remove(path);
    }

    pub(crate) fn with_entry<R>(&self, path: &str, f: impl FnOnce(&mut RegistryEntry) -> R) -> Option<R> {
        self.0.lock().get_mut(path).map(f)
    }

    pub(crate) fn with_entries<R>(&self, f: impl FnOnce(&mut BTreeMap<Arc<str>, RegistryEntry>) -> R) -> R {
        f(&mut self.0.lock())
    }

    /// Describes the work that the actor of this path has in progress.
    pub(crate) fn in_progress(&self, path: &str) -> Option<String> {
        let work = self.0.lock().get(path)?.mailbox.as_ref().map(|mailbox| Arc::clone(&mailbox.work))?;
        // The lock of the tree is released first: the descriptions are code of the actors.
        work.describe()
    }

    pub(crate) fn snapshot(&self) -> Vec<ActorSnapshot> {
        let entries = self.0.lock();
        let mut snapshots: Vec<ActorSnapshot> =
            entries.iter().filter_map(|(path, entry)| entry.snapshot(path)).collect();
        drop(entries);
        snapshots.sort_by(|a, b| natural_order(&a.path, &b.path));
        snapshots
    }
}
