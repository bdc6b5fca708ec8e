//! Fault injection by the path of an actor (panic, kill, stop, pause), for operators, drills and tests.

use std::sync::atomic::Ordering::SeqCst;

use tokio::time::Instant;
use tracing::Level;

use crate::bus::registry::RegistryEntry;
use crate::bus::supervision_bus::SupervisionBus;
use crate::bus::supervisor_command::CommandSender;
use crate::child::command::{ActorCommand, ChildCommand};
use crate::child::exit::ExitReason;

/// No running actor has that path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no actor at {0}")]
pub struct NoSuchActor(
    /// The path that the caller named.
    pub String,
);

/// Each fault names its author (`by`), is published as a `fault_injected` event, takes effect without waiting for a message, and does
/// nothing to an actor between two incarnations. No fault can interrupt a handler that blocks its thread.
impl SupervisionBus {
    /// Makes the actor panic inside its own poll: in-flight work is lost and its callers receive an error at once.
    ///
    /// # Errors
    /// [`NoSuchActor`] when no running actor has the path.
    pub fn panic(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        self.inject(path, "panic", by, |_| ActorCommand::Panic { by: by.into() })
    }

    /// Kills the actor, also while it hangs in a `ctx.wait`.
    ///
    /// # Errors
    /// [`NoSuchActor`] when no running actor has the path.
    pub fn kill(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        let reason = ExitReason::Killed { by: by.into() };
        self.inject(path, "kill", by, |_| ActorCommand::Supervise(ChildCommand::Kill { reason, is_final: false }))
    }

    /// Ends the actor normally, as `ctx.stop()` does; its restart type decides whether it is started again.
    ///
    /// # Errors
    /// [`NoSuchActor`] when no running actor has the path.
    pub fn stop(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        self.inject(path, "stop", by, |_| ActorCommand::Stop)
    }

    /// Pauses the actor: it handles nothing until it is resumed, exits or is drained. A starting actor is paused once it has started, and an
    /// actor that drains is not paused.
    ///
    /// # Errors
    /// [`NoSuchActor`] when no running actor has the path.
    pub fn pause(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        self.inject(path, "pause", by, |entry| {
            set_paused(entry, true);
            ActorCommand::CheckPaused
        })
    }

    /// Resumes a paused actor, which continues with its next message.
    ///
    /// # Errors
    /// [`NoSuchActor`] when no running actor has the path.
    pub fn resume(&self, path: &str, by: &str) -> Result<(), NoSuchActor> {
        self.inject(path, "resume", by, |entry| {
            set_paused(entry, false);
            ActorCommand::CheckPaused
        })
    }

    fn inject(
        &self,
        path: &str,
        fault: &str,
        by: &str,
        command: impl FnOnce(&RegistryEntry) -> ActorCommand,
    ) -> Result<(), NoSuchActor> {
        let target = self.registry().with_entry(path, |entry| {
            let Some(CommandSender::Actor(commands)) = entry.commands.clone() else { return None };
            let command = command(entry);
            Some((commands, command, entry.event(path, "fault_injected", Level::WARN)))
        });
        let Some(Some((commands, command, event))) = target else { return Err(NoSuchActor(path.into())) };
        // The event first, so that it precedes its effects.
        self.publish(event.with_text("fault", fault).with_text("by", by));
        if commands.send(command) { Ok(()) } else { Err(NoSuchActor(path.into())) }
    }
}

fn set_paused(entry: &RegistryEntry, paused: bool) {
    if let Some(mailbox) = &entry.mailbox {
        mailbox.paused.store(paused, SeqCst);
        // The watchdog must not count the time of the pause.
        mailbox.record_progress(Instant::now());
    }
}
