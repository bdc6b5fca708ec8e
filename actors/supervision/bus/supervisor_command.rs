//! The commands to a supervisor's task, and the sender of commands to a child of either type.

use tokio::sync::{mpsc, oneshot};

use crate::child::command::{ActorCommand, ChildCommand};
use crate::child::command_channel::ActorCommandSender;
use crate::child::spec::ChildSpec;

/// A command to a supervisor's task.
pub(crate) enum SupervisorCommand {
    /// A command of the supervisor above.
    Supervise(ChildCommand),
    AddChild(ChildSpec),
    /// The reply is false when the supervisor has no child with that id.
    RemoveChild {
        id: String,
        reply: oneshot::Sender<bool>,
    },
}

/// Sends commands to a child, actor or supervisor.
#[derive(Clone)]
pub(crate) enum CommandSender {
    Actor(ActorCommandSender),
    Supervisor(mpsc::UnboundedSender<SupervisorCommand>),
}

impl CommandSender {
    /// False when the child's task has ended.
    pub(crate) fn send(&self, command: ChildCommand) -> bool {
        match self {
            CommandSender::Actor(actor) => actor.send(ActorCommand::Supervise(command)),
            CommandSender::Supervisor(supervisor) => supervisor.send(SupervisorCommand::Supervise(command)).is_ok(),
        }
    }
}
