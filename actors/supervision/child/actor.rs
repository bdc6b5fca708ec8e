//! The constructor of an actor child: its mailbox and its child spec.

use std::sync::Arc;
use std::time::Duration;

use actix::dev::channel;
use actix::prelude::*;
use tokio::sync::Semaphore;

use crate::bus::supervision_bus::SupervisionBus;
use crate::child::actor_task::ActorTask;
use crate::child::command_channel::command_channel;
use crate::child::policy::{Restart, Shutdown};
use crate::child::spec::{ChildBody, ChildSpec, LaunchFn};
use crate::child::supervised::{Incarnation, SupervisedActor};
use crate::mailbox::handle::Mailbox;
use crate::mailbox::state::MailboxState;
use crate::mailbox::type_name::short_name;

/// Makes the mailbox and the child spec of an actor at `path`. Nothing runs yet, but the mailbox is final: actors are wired with it
/// before the start, also in circles, and it stays valid over every restart.
///
/// `capacity` bounds queued and in-flight messages together. `factory` builds one incarnation. It must be cheap and acquire nothing,
/// because the next instance is built when the previous one exits; an actor acquires its resources in `started()`. A panic of the
/// factory counts as a failed start.
///
/// # Panics
/// When `capacity` is zero or more than a semaphore can count: a programming error.
pub fn actor<A: SupervisedActor>(
    bus: &SupervisionBus,
    path: &str,
    capacity: usize,
    factory: impl Fn(Incarnation) -> A + Send + 'static,
) -> (Mailbox<A>, ChildSpec) {
    assert!(
        capacity > 0 && capacity <= Semaphore::MAX_PERMITS.min(u32::MAX as usize),
        "invalid mailbox capacity {capacity} at {path}"
    );
    // 0 makes the actix channel unbounded: the semaphore of the mailbox state is the bound.
    let (sender, receiver) = channel::channel::<A>(0);
    let addr = Addr::new(sender);
    let kind = short_name::<A>();
    let state = Arc::new(MailboxState::new(kind, capacity, bus.observer()));
    let mailbox = Mailbox::new(addr.clone(), state.clone());
    let task_state = state.clone();
    let launch: LaunchFn = Box::new(move |link, arbiter| {
        let (sender, commands) = command_channel();
        let task = move || ActorTask::new(receiver, addr, Box::new(factory), commands, link, task_state);
        match arbiter {
            // A dead arbiter drops the closure and with it `commands`: the first command then fails, and the child counts as lost.
            Some(arbiter) => drop(arbiter.spawn_fn(move || drop(tokio::task::spawn_local(task())))),
            None => drop(tokio::task::spawn_local(task())),
        }
        sender
    });
    let spec = ChildSpec {
        id: path.rsplit('/').next().unwrap_or(path).to_owned(),
        path: path.to_owned(),
        kind,
        restart: Restart::Permanent,
        start_timeout: Duration::from_secs(10),
        shutdown: Shutdown::Timeout(Duration::from_secs(5)),
        significant: false,
        arbiter: None,
        stuck_after: None,
        body: ChildBody::Actor { mailbox: state, launch },
    };
    (mailbox, spec)
}
