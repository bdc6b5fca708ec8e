//! The actor task: it owns one actor's future, executes its supervisor's commands before the actor's own work, and survives the
//! actor's panics.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context as TaskContext, Poll};

use actix::dev::ContextFut;
use actix::dev::channel::AddressReceiver;
use actix::fut::{ActorFuture, wrap_future};
use actix::prelude::*;
use tokio::time::Instant;

use crate::child::command::{ActorCommand, ChildCommand, DrainRequest};
use crate::child::command_channel::ActorCommandReceiver;
use crate::child::exit::{ExitReason, ExitReport};
use crate::child::panic_guard::{catch_panic, with_replacement};
use crate::child::signal::{Lifecycle, SupervisorLink};
use crate::child::supervised::{DrainMode, Incarnation, SupervisedActor};
use crate::mailbox::state::MailboxState;

type RunningActor<A> = ContextFut<A, Context<A>>;
type IncarnationFactory<A> = Box<dyn Fn(Incarnation) -> A + Send>;

/// A drain in progress.
struct Drain {
    reason: ExitReason,
    is_final: bool,
    /// Number of messages that were sent before the request. The hook runs once their handlers have begun.
    enqueued: u64,
    /// The hook is an item of the actor's context.
    hook_spawned: bool,
    /// The result of the actor's drain hook, once it ran.
    mode: Rc<Cell<Option<DrainMode>>>,
    /// Resolves when the mailbox is empty, and holds new messages back until then, so that they cannot delay the hook without end.
    mailbox_drained: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

/// Calls the drain hook and stores its result.
struct DrainHook(Rc<Cell<Option<DrainMode>>>);

impl<A: SupervisedActor> ActorFuture<A> for DrainHook {
    type Output = ();

    fn poll(self: Pin<&mut Self>, actor: &mut A, ctx: &mut Context<A>, _: &mut TaskContext<'_>) -> Poll<()> {
        // After a message whose handler called `ctx.wait`, actix polls the items once before it polls what the handler waits for. It polls them
        // again when the wait has ended.
        if ctx.waiting() {
            return Poll::Pending;
        }
        self.0.set(Some(actor.drain(ctx)));
        Poll::Ready(())
    }
}

pub(crate) struct ActorTask<A: SupervisedActor> {
    /// None before the first start and after the final exit.
    actor: Option<RunningActor<A>>,
    receiver: Option<AddressReceiver<A>>,
    /// Keeps the mailbox connected, so that actix never refuses a restart. None after the final exit.
    addr: Option<Addr<A>>,
    factory: IncarnationFactory<A>,
    commands: ActorCommandReceiver,
    link: SupervisorLink,
    mailbox: Arc<MailboxState>,
    generation: u64,
    previous_exit: Option<ExitReason>,
    running: bool,
    /// Set once `started()` and its `ctx.wait` futures are done.
    started: Rc<Cell<bool>>,
    /// The factory panicked after the last exit: the failed instance is still in place.
    needs_instance: bool,
    injected_panic: Option<String>,
    drain: Option<Drain>,
    span: tracing::Span,
}

impl<A: SupervisedActor> Unpin for ActorTask<A> {}

impl<A: SupervisedActor> ActorTask<A> {
    pub(crate) fn new(
        receiver: AddressReceiver<A>,
        addr: Addr<A>,
        factory: IncarnationFactory<A>,
        commands: ActorCommandReceiver,
        link: SupervisorLink,
        mailbox: Arc<MailboxState>,
    ) -> Self {
        ActorTask {
            actor: None,
            receiver: Some(receiver),
            addr: Some(addr),
            factory,
            commands,
            link,
            mailbox,
            generation: 0,
            previous_exit: None,
            running: false,
            started: Rc::default(),
            needs_instance: false,
            injected_panic: None,
            drain: None,
            span: tracing::Span::none(),
        }
    }

    /// Returns false when the task is to end.
    fn execute(&mut self, command: ActorCommand) -> bool {
        match command {
            ActorCommand::Supervise(ChildCommand::Start { generation }) if !self.running => self.start(generation),
            ActorCommand::Supervise(ChildCommand::Kill { reason, is_final }) if self.running => {
                return self.exit(reason, is_final);
            }
            // The supervisor, not the task, watches the request's deadline.
            ActorCommand::Supervise(ChildCommand::Drain(DrainRequest { reason, is_final, .. })) if self.running => {
                self.begin_drain(reason, is_final);
            }
            ActorCommand::Supervise(
                ChildCommand::Kill { is_final, .. } | ChildCommand::Drain(DrainRequest { is_final, .. }),
            ) => return !is_final,
            // The pause came between two incarnations or during a drain, where it has no target.
            ActorCommand::CheckPaused if !self.running || self.drain.is_some() => {
                self.mailbox.paused.store(false, SeqCst)
            }
            ActorCommand::Supervise(ChildCommand::Start { .. }) | ActorCommand::CheckPaused => {}
            ActorCommand::Supervise(ChildCommand::Exit) => return false,
            ActorCommand::Panic { by } if self.running => self.injected_panic = Some(by),
            ActorCommand::Stop if self.running => {
                self.mailbox.paused.store(false, SeqCst);
                self.actor_context().stop();
            }
            // Between two incarnations a fault has no target.
            ActorCommand::Panic { .. } | ActorCommand::Stop => {}
        }
        true
    }

    fn actor_context(&mut self) -> &mut Context<A> {
        self.actor.as_mut().expect("a running task has an actor").ctx()
    }

    fn start(&mut self, generation: u64) {
        self.generation = generation;
        if self.actor.is_none() || self.needs_instance {
            let fresh = match catch_panic(|| (self.factory)(self.incarnation(generation))) {
                Ok(fresh) => fresh,
                Err(reason) => return self.report_exit(ExitReport::without_messages(reason)),
            };
            match (self.actor.as_mut(), self.receiver.take()) {
                (None, Some(receiver)) => self.actor = Some(Context::with_receiver(receiver).into_future(fresh)),
                (Some(actor), _) => with_replacement(fresh, || drop(catch_panic(|| actor.restart()))),
                (None, None) => return self.report_exit(ExitReport::without_messages(ExitReason::ArbiterLost)),
            }
            self.needs_instance = false;
        }
        // actix polls wait futures newest first and before the mailbox, so this one runs after started() and after every ctx.wait of
        // started(), and before the first message. A panic before it is a failed start.
        let (link, started) = (self.link.clone(), Rc::new(Cell::new(false)));
        self.started = started.clone();
        self.actor_context().wait(wrap_future(async move {
            started.set(true);
            link.notify(generation, Lifecycle::Started);
        }));
        self.running = true;
        self.mailbox.record_progress(Instant::now());
        self.span = tracing::error_span!(target: "supervision", "actor", actor = &*self.link.path);
    }

    fn incarnation(&self, generation: u64) -> Incarnation {
        Incarnation { generation, previous_exit: self.previous_exit.clone() }
    }

    /// The request does not go through the mailbox: it can neither be lost there nor reach the next incarnation.
    fn begin_drain(&mut self, reason: ExitReason, is_final: bool) {
        if let Some(drain) = self.drain.as_mut() {
            drain.is_final |= is_final;
            return;
        }
        self.mailbox.paused.store(false, SeqCst);
        let enqueued = self.mailbox.enqueued();
        let mode = Rc::default();
        self.drain = Some(Drain { reason, is_final, enqueued, hook_spawned: false, mode, mailbox_drained: None });
    }

    /// Advances a drain after a poll of the actor. Returns whether the actor is to be polled again.
    fn advance_drain(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let Some(drain) = self.drain.as_mut() else { return false };
        if drain.mode.get() == Some(DrainMode::StopsItself) {
            drain.mailbox_drained = None;
            return false;
        }
        let drained = drain.mailbox_drained.get_or_insert_with(|| Box::pin(self.mailbox.clone().drained()));
        let is_empty = drained.as_mut().poll(cx).is_ready();
        if is_empty {
            // A future must not be polled after its completion.
            drain.mailbox_drained = None;
        }
        if drain.mode.get() == Some(DrainMode::WhenIdle) {
            if is_empty {
                // The actor is being stopped, so only its exit is left to wait for.
                drain.mode.set(Some(DrainMode::StopsItself));
                self.actor_context().stop();
            }
            return is_empty;
        }
        if drain.hook_spawned || !self.mailbox.is_taken(drain.enqueued, cx.waker()) {
            return false;
        }
        drain.hook_spawned = true;
        let hook = DrainHook(drain.mode.clone());
        self.actor_context().spawn(hook);
        true
    }

    /// Ends this incarnation. Returns true when the task waits for a next one.
    fn exit(&mut self, reason: ExitReason, is_final: bool) -> bool {
        let (outstanding, in_progress) = (self.mailbox.outstanding(), self.mailbox.work.take());
        self.previous_exit = Some(reason.clone());
        self.running = false;
        self.injected_panic = None;
        self.mailbox.paused.store(false, SeqCst);
        let report = if is_final {
            self.close();
            ExitReport { reason, queued: outstanding, in_flight: 0, in_progress }
        } else {
            self.replace_actor();
            let queued = self.mailbox.outstanding();
            ExitReport { reason, queued, in_flight: outstanding.saturating_sub(queued), in_progress }
        };
        self.drain = None;
        self.report_exit(report);
        !is_final
    }

    /// Drops the old state and its futures at the exit, not after the back-off: their callers receive an error and their locks and
    /// connections are released now.
    fn replace_actor(&mut self) {
        let incarnation = self.incarnation(self.generation + 1);
        let Some(actor) = self.actor.as_mut() else { return };
        match catch_panic(|| (self.factory)(incarnation)) {
            Ok(fresh) => {
                self.needs_instance = false;
                with_replacement(fresh, || {
                    // If a Drop panics, the next call drops the remaining fields. Three calls: futures, waits, the state.
                    for _ in 0..3 {
                        if catch_panic(|| actor.restart()).is_ok() {
                            break;
                        }
                    }
                });
            }
            Err(_) => {
                self.needs_instance = true;
                // Without a replacement the restart drops the futures and leaves the failed state in place.
                let _ = catch_panic(|| actor.restart());
            }
        }
    }

    /// Drops state and mailbox for good: callers of queued messages receive an error now.
    fn close(&mut self) {
        self.mailbox.closed.store(true, SeqCst);
        self.addr = None;
        self.receiver = None;
        if let Some(mut actor) = self.actor.take() {
            // Otherwise ContextFut::drop polls the actor once more, even while a panic unwinds: two panics abort the process.
            actor.ctx().terminate();
            let _ = catch_panic(move || drop(actor));
        }
    }

    fn report_exit(&self, report: ExitReport) {
        self.link.notify(self.generation, Lifecycle::Exited(report));
    }

    fn poll_actor(&mut self, cx: &mut TaskContext<'_>) -> Result<Poll<()>, ExitReason> {
        let actor = self.actor.as_mut().expect("a running task has an actor");
        let injected_panic = self.injected_panic.take();
        let _entered = self.span.enter();
        catch_panic(|| {
            if let Some(by) = injected_panic {
                panic!("fault injected by {by}");
            }
            self.mailbox.work.scope(|| Pin::new(actor).poll(cx))
        })
    }
}

impl<A: SupervisedActor> Future for ActorTask<A> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = &mut *self;
        // Commands first: they take effect while the actor waits, is paused or is flooded with messages.
        while let Some(command) = this.commands.poll(cx) {
            if !this.execute(command) {
                return Poll::Ready(());
            }
        }
        while this.running {
            let paused = this.started.get() && this.mailbox.paused.load(SeqCst);
            if paused && this.injected_panic.is_none() {
                return Poll::Pending;
            }
            let (reason, is_final) = match this.poll_actor(cx) {
                Ok(Poll::Pending) if this.advance_drain(cx) => continue,
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(())) => this
                    .drain
                    .as_ref()
                    .map_or((ExitReason::Normal, false), |drain| (drain.reason.clone(), drain.is_final)),
                Err(reason) => (reason, this.drain.as_ref().is_some_and(|drain| drain.is_final)),
            };
            if !this.exit(reason, is_final) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl<A: SupervisedActor> Drop for ActorTask<A> {
    fn drop(&mut self) {
        self.close();
        if self.running {
            self.report_exit(ExitReport::without_messages(ExitReason::ArbiterLost));
        }
    }
}
