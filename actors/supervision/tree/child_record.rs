//! A supervisor's record of one child: its settings from the spec, and its current incarnation.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::bus::supervisor_command::CommandSender;
use crate::child::command::ChildCommand;
use crate::child::policy::{Restart, Shutdown};
use crate::child::spec::{ChildBody, ChildSpec};
use crate::mailbox::state::MailboxState;

pub(crate) struct ChildRecord {
    /// Unique over the whole life of its supervisor: a signal of a removed child never matches another child.
    pub(crate) token: u64,
    pub(crate) id: String,
    pub(crate) path: Arc<str>,
    pub(crate) kind: &'static str,
    pub(crate) restart: Restart,
    pub(crate) start_timeout: Duration,
    pub(crate) shutdown: Shutdown,
    pub(crate) significant: bool,
    pub(crate) commands: CommandSender,
    pub(crate) mailbox: Option<Arc<MailboxState>>,
    pub(crate) running: bool,
    pub(crate) generation: u64,
    /// Failures in a row, the input of the back-off.
    pub(crate) failures: u32,
    pub(crate) started_at: Instant,
    /// Uptime of the last incarnation.
    pub(crate) uptime: Duration,
    pub(crate) exited_at: Instant,
    /// Reason of the last exit, for the event and the count of the restart that follows it.
    pub(crate) last_exit: Option<&'static str>,
    pub(crate) restart_at: Option<Instant>,
}

impl ChildRecord {
    /// Launches the child's task and records it. The task runs nothing before `ChildCommand::Start`.
    pub(crate) fn launch(spec: ChildSpec, token: u64, launch: impl FnOnce(ChildBody) -> CommandSender) -> ChildRecord {
        let now = Instant::now();
        let mailbox = match &spec.body {
            ChildBody::Actor { mailbox, .. } => Some(mailbox.clone()),
            ChildBody::Supervisor(_) => None,
        };
        ChildRecord {
            token,
            id: spec.id,
            path: spec.path.into(),
            kind: spec.kind,
            restart: spec.restart,
            start_timeout: spec.start_timeout,
            shutdown: spec.shutdown,
            significant: spec.significant,
            commands: launch(spec.body),
            mailbox,
            running: false,
            generation: 0,
            failures: 0,
            started_at: now,
            uptime: Duration::ZERO,
            exited_at: now,
            last_exit: None,
            restart_at: None,
        }
    }

    pub(crate) fn is_supervisor(&self) -> bool {
        matches!(self.commands, CommandSender::Supervisor(_))
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.mailbox.as_ref().map_or(0, |mailbox| mailbox.outstanding())
    }
}

impl Drop for ChildRecord {
    fn drop(&mut self) {
        // An error means that the child's task has ended already.
        let _ = self.commands.send(ChildCommand::Exit);
    }
}
