//! A message in a mailbox and the permit that it holds until its work is done.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::child::panic_guard;
use crate::mailbox::state::{MailboxState, UnhandledReason};
use crate::mailbox::type_name::short_name;

/// Messages an actor handles in a row before it yields to timers and to the other actors of its arbiter. 64: actix handles a mailbox
/// until it is empty, so without a yield a flood stops every timer of the thread; at this distance the yield costs little.
const MESSAGES_PER_YIELD: u64 = 64;

/// A message as it is queued in a mailbox. An actor implements `Handler<MailboxMessage<M>>`, which starts with
/// [`begin`](MailboxMessage::begin).
pub struct MailboxMessage<M> {
    message: M,
    permit: MailboxPermit,
}

impl<M: Message> Message for MailboxMessage<M> {
    type Result = M::Result;
}

impl<M> MailboxMessage<M> {
    pub(crate) fn new(message: M, permit: OwnedSemaphorePermit, mailbox: &Arc<MailboxState>) -> Self {
        let now = Instant::now();
        mailbox.record_enqueued(now);
        let permit = MailboxPermit {
            _permit: permit,
            mailbox: mailbox.clone(),
            message_type: short_name::<M>,
            queued_at: now,
            begun_at: None,
            span: tracing::Span::current(),
        };
        MailboxMessage { message, permit }
    }

    /// Begins the work. Returns the message and the permit, which the handler keeps as long as the work runs: a handler that returns a
    /// `ResponseActFuture` moves it into the future. Every 64th call makes the actor yield once before its next message.
    pub fn begin<A: Actor<Context = Context<A>>>(mut self, ctx: &mut Context<A>) -> (M, MailboxPermit) {
        self.permit.begun_at = Some(Instant::now());
        if self.permit.mailbox.record_started() % MESSAGES_PER_YIELD == MESSAGES_PER_YIELD - 1 {
            ctx.wait(actix::fut::wrap_future(tokio::task::yield_now()));
        }
        (self.message, self.permit)
    }
}

/// One unit of a mailbox's capacity. It is released on drop: on completion, on a panic, on a kill or a restart (which drop the future
/// that holds it), and when a caller gives up while the message is still queued.
pub struct MailboxPermit {
    _permit: OwnedSemaphorePermit,
    mailbox: Arc<MailboxState>,
    message_type: fn() -> &'static str,
    queued_at: Instant,
    begun_at: Option<Instant>,
    /// The span in which the message was sent.
    span: tracing::Span,
}

impl MailboxPermit {
    /// The span in which the message was sent. A handler that works for its sender runs in it, so that its log lines carry the sender's
    /// fields.
    pub fn span(&self) -> &tracing::Span {
        &self.span
    }

    /// Time from the sending of the message until its work began; zero while it is queued.
    pub fn queued_for(&self) -> Duration {
        self.begun_at.map_or(Duration::ZERO, |at| at - self.queued_at)
    }
}

impl Drop for MailboxPermit {
    fn drop(&mut self) {
        let now = Instant::now();
        if self.begun_at.is_none() {
            self.mailbox.record_dropped();
        }
        match self.begun_at {
            Some(at) => self.mailbox.observer.handled(self.mailbox.kind, at - self.queued_at, now - at),
            None if self.mailbox.closed.load(std::sync::atomic::Ordering::SeqCst) => {
                self.mailbox.record_unhandled(UnhandledReason::Closed, (self.message_type)());
            }
            None => self.mailbox.record_unhandled(UnhandledReason::Expired, (self.message_type)()),
        }
        if std::thread::panicking() {
            panic_guard::record_panicking_message((self.message_type)());
        }
        self.mailbox.record_released(now);
    }
}
