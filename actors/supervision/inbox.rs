//! A mailbox bound that binds: queued and in flight together never exceed the capacity, over every clone and every thread.
//!
//! actix's own capacity is none: `send` never waits for room, each clone of an address has a free place, `do_send` ignores it, and
//! work in flight is not counted. So the mailbox itself is unbounded here and a semaphore stands before it.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use crate::ask::AskError;
use crate::child::short_name;
use crate::gauge::{Gauge, Undelivered};
use crate::job::Job;

/// The way into an actor. Cheap to clone; stays valid over every restart.
pub struct Inbox<A: Actor> {
    addr: Addr<A>,
    gauge: Arc<Gauge>,
}

impl<A: Actor> Clone for Inbox<A> {
    fn clone(&self) -> Self {
        Inbox { addr: self.addr.clone(), gauge: self.gauge.clone() }
    }
}

impl<A: Actor> std::fmt::Debug for Inbox<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox")
            .field("kind", &self.gauge.kind)
            .field("depth", &self.depth())
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl<A: Actor> Inbox<A> {
    pub(crate) fn new(addr: Addr<A>, gauge: Arc<Gauge>) -> Self {
        Inbox { addr, gauge }
    }

    /// The bare address, for acks, credits and control that go up a pipeline by `do_send`: not bounded, not counted.
    pub fn addr(&self) -> &Addr<A> {
        &self.addr
    }

    /// Messages outstanding: queued and being worked on.
    pub fn depth(&self) -> usize {
        self.gauge.outstanding()
    }

    /// Most messages that may be outstanding.
    pub fn capacity(&self) -> usize {
        self.gauge.capacity
    }

    /// Takes nothing new, for good; what is queued is still worked on. Those who wait for a slot get [`AskError::Closed`].
    pub fn close(&self) {
        self.gauge.slots.close();
    }

    /// Puts the message into the mailbox or hands it back: [`AskError::Overloaded`] without a free slot, [`AskError::Closed`] when
    /// the actor or its inbox is gone for good.
    pub fn try_tell<M>(&self, message: M) -> Result<(), (AskError, M)>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<Job<M>>,
        A: Actor<Context = Context<A>>,
    {
        match self.try_slot::<M>() {
            Ok(permit) => {
                self.addr.do_send(Job::new(message, permit, &self.gauge));
                Ok(())
            }
            Err(error) => Err((error, message)),
        }
    }

    /// Waits for a slot, first come first served over all senders, then puts the message into the mailbox. [`AskError::Closed`] when
    /// the actor or its inbox is gone for good. Cancel-safe: dropped while it waits, nothing was sent.
    pub async fn tell<M>(&self, message: M) -> Result<(), AskError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<Job<M>>,
        A: Actor<Context = Context<A>>,
    {
        let permit = self.slot::<M>().await?;
        self.addr.do_send(Job::new(message, permit, &self.gauge));
        Ok(())
    }

    /// Asks, with one deadline over the wait for a slot, the queue and the work. [`AskError::Closed`] at once when the actor dies on
    /// the message. Dropped or timed out: a message still queued is skipped, work already begun goes on and keeps its slot.
    pub async fn ask<M>(&self, message: M, deadline: Duration) -> Result<M::Result, AskError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<Job<M>>,
        A: Actor<Context = Context<A>>,
    {
        let answer = async {
            let permit = self.slot::<M>().await?;
            self.addr.send(Job::new(message, permit, &self.gauge)).await.map_err(|_| AskError::Closed)
        };
        tokio::time::timeout(deadline, answer).await.unwrap_or(Err(AskError::Timeout))
    }

    /// Asks only when a slot is free, else [`AskError::Overloaded`] at once; then as [`ask`](Inbox::ask), the deadline over queue and
    /// work.
    pub async fn try_ask<M>(&self, message: M, deadline: Duration) -> Result<M::Result, AskError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<Job<M>>,
        A: Actor<Context = Context<A>>,
    {
        let permit = self.try_slot::<M>()?;
        let answer = self.addr.send(Job::new(message, permit, &self.gauge));
        match tokio::time::timeout(deadline, answer).await {
            Ok(answer) => answer.map_err(|_| AskError::Closed),
            Err(_) => Err(AskError::Timeout),
        }
    }

    fn try_slot<M>(&self) -> Result<OwnedSemaphorePermit, AskError> {
        let error = match self.gauge.slots.clone().try_acquire_owned() {
            Ok(permit) if self.addr.connected() => return Ok(permit),
            Ok(_) | Err(TryAcquireError::Closed) => AskError::Closed,
            Err(TryAcquireError::NoPermits) => AskError::Overloaded,
        };
        let why = if error == AskError::Overloaded { Undelivered::Overloaded } else { Undelivered::Closed };
        self.gauge.lost(why, short_name::<M>());
        Err(error)
    }

    async fn slot<M>(&self) -> Result<OwnedSemaphorePermit, AskError> {
        match self.gauge.slots.clone().acquire_owned().await {
            Ok(permit) if self.addr.connected() => Ok(permit),
            Ok(_) | Err(_) => {
                self.gauge.lost(Undelivered::Closed, short_name::<M>());
                Err(AskError::Closed)
            }
        }
    }
}
