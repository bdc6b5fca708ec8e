//! The envelope of a message and the slot that rides in it until the work is done.

use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::child::short_name;
use crate::gauge::{Gauge, Undelivered};
use crate::guard;

/// Messages an actor handles in a row before it lets timers and the other actors of its arbiter run. 64: actix handles a mailbox
/// until it is empty, so without this a flood stops every clock of the thread; the yield costs little at this distance.
const FAIR_EVERY: u32 = 64;

/// A message as it stands in a mailbox. An actor implements `Handler<Job<M>>` and begins with [`Job::open`].
pub struct Job<M> {
    message: M,
    slot: Slot,
}

impl<M: Message> Message for Job<M> {
    type Result = M::Result;
}

impl<M> Job<M> {
    pub(crate) fn new(message: M, permit: OwnedSemaphorePermit, gauge: &Arc<Gauge>) -> Self {
        let now = Instant::now();
        gauge.taken(now);
        let slot =
            Slot { _permit: permit, gauge: gauge.clone(), message: short_name::<M>, queued_at: now, opened_at: None };
        Job { message, slot }
    }

    /// Begins the work: the message, and the slot to keep as long as the work runs (move it into the future when the handler
    /// answers with a `ResponseActFuture`). Lets others run every 64 messages.
    pub fn open<A: Actor<Context = Context<A>>>(mut self, ctx: &mut Context<A>) -> (M, Slot) {
        self.slot.opened_at = Some(Instant::now());
        if self.slot.gauge.begun() % u64::from(FAIR_EVERY) == u64::from(FAIR_EVERY) - 1 {
            yield_to_others(ctx);
        }
        (self.message, self.slot)
    }
}

/// One place of an inbox, taken. Given back when dropped: on completion, on a panic, on kill and restart (the future that holds it
/// is dropped), when a caller gives up while the message is still queued.
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    gauge: Arc<Gauge>,
    message: fn() -> &'static str,
    queued_at: Instant,
    opened_at: Option<Instant>,
}

impl Slot {
    /// How long the message waited in the mailbox; zero before it was opened.
    pub fn waited(&self) -> std::time::Duration {
        self.opened_at.map_or(std::time::Duration::ZERO, |at| at.duration_since(self.queued_at))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let now = Instant::now();
        match self.opened_at {
            Some(at) => self.gauge.observer.handled(self.gauge.kind, at - self.queued_at, now - at),
            None if self.gauge.closed.load(std::sync::atomic::Ordering::SeqCst) => {
                self.gauge.lost(Undelivered::Closed, (self.message)());
            }
            None => self.gauge.lost(Undelivered::Expired, (self.message)()),
        }
        if std::thread::panicking() {
            guard::blame((self.message)());
        }
        self.gauge.given_back(now);
    }
}

/// The same fairness for messages that come without an inbox (`do_send`): a field of the actor, [`tick`](Fair::tick) in each handler.
#[derive(Debug, Default)]
pub struct Fair {
    handled: u32,
}

impl Fair {
    /// Counts a message; every 64th lets others run.
    pub fn tick<A: Actor<Context = Context<A>>>(&mut self, ctx: &mut Context<A>) {
        self.handled = (self.handled + 1) % FAIR_EVERY;
        if self.handled == 0 {
            yield_to_others(ctx);
        }
    }
}

fn yield_to_others<A: Actor<Context = Context<A>>>(ctx: &mut Context<A>) {
    ctx.wait(actix::fut::wrap_future(tokio::task::yield_now()));
}
