//! The channel of commands to an actor task, which checks it at every poll: one atomic load when the channel is empty.
//!
//! tokio's channel registers its waker at each check, and that alone costs an `ask` several percent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

use crate::child::command::ActorCommand;

struct Channel {
    /// Whether the queue holds commands. Written only under its lock.
    has_commands: AtomicBool,
    queue: Mutex<CommandQueue>,
}

#[derive(Default)]
struct CommandQueue {
    commands: VecDeque<ActorCommand>,
    waker: Option<Waker>,
    closed: bool,
}

/// The side of supervisors and operators.
#[derive(Clone)]
pub(crate) struct ActorCommandSender(Arc<Channel>);

/// The side of the actor task.
pub(crate) struct ActorCommandReceiver {
    channel: Arc<Channel>,
    /// The waker that the queue holds.
    registered: Option<Waker>,
}

pub(crate) fn command_channel() -> (ActorCommandSender, ActorCommandReceiver) {
    let channel = Arc::new(Channel { has_commands: AtomicBool::new(false), queue: Mutex::default() });
    (ActorCommandSender(channel.clone()), ActorCommandReceiver { channel, registered: None })
}

impl ActorCommandSender {
    /// False when the actor task has ended.
    pub(crate) fn send(&self, command: ActorCommand) -> bool {
        let mut queue = self.0.queue.lock();
        if queue.closed {
            return false;
        }
        queue.commands.push_back(command);
        self.0.has_commands.store(true, Ordering::Release);
        let waker = queue.waker.clone();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl ActorCommandReceiver {
    /// Takes the next command. Without one, the task is woken when one arrives.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Option<ActorCommand> {
        if !self.registered.as_ref().is_some_and(|registered| registered.will_wake(cx.waker())) {
            // Registered before the flag is read: a sender that sets the flag after this read finds the new waker.
            self.channel.queue.lock().waker = Some(cx.waker().clone());
            self.registered = Some(cx.waker().clone());
        }
        if !self.channel.has_commands.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.channel.queue.lock();
        let command = queue.commands.pop_front();
        self.channel.has_commands.store(!queue.commands.is_empty(), Ordering::Release);
        command
    }
}

impl Drop for ActorCommandReceiver {
    fn drop(&mut self) {
        let mut queue = self.channel.queue.lock();
        queue.closed = true;
        let rest = (std::mem::take(&mut queue.commands), queue.waker.take());
        // Dropped after the lock: a waker may own the task, and the task's drop must not take the lock again.
        drop(queue);
        drop(rest);
    }
}
