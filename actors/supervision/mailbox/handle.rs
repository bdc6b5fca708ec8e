//! The senders' handle of a mailbox. Queued and in-flight messages together never exceed its capacity, over every clone and thread.
//!
//! actix's own capacity does not bound a mailbox: `send` never waits for room, each clone of an address has one extra place, `do_send`
//! ignores the capacity, and in-flight work is not counted. So the actix mailbox is unbounded here and a semaphore guards it.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use crate::mailbox::ask_error::AskError;
use crate::mailbox::message::MailboxMessage;
use crate::mailbox::state::{MailboxState, UnhandledReason};
use crate::mailbox::type_name::short_name;

/// A handle to an actor's bounded mailbox. Cheap to clone, and valid over every restart of the actor.
pub struct Mailbox<A: Actor> {
    addr: Addr<A>,
    state: Arc<MailboxState>,
}

impl<A: Actor> Clone for Mailbox<A> {
    fn clone(&self) -> Self {
        Mailbox { addr: self.addr.clone(), state: self.state.clone() }
    }
}

impl<A: Actor> std::fmt::Debug for Mailbox<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox")
            .field("kind", &self.state.kind)
            .field("depth", &self.depth())
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl<A: Actor> Mailbox<A> {
    pub(crate) fn new(addr: Addr<A>, state: Arc<MailboxState>) -> Self {
        Mailbox { addr, state }
    }

    /// The actix address, for acknowledgements, credits and control messages that go up a pipeline with `do_send`. Messages sent through
    /// it are neither bounded nor counted.
    pub fn addr(&self) -> &Addr<A> {
        &self.addr
    }

    /// The number of outstanding messages: queued and in flight.
    pub fn depth(&self) -> usize {
        self.state.outstanding()
    }

    /// The most messages that may be outstanding at once.
    pub fn capacity(&self) -> usize {
        self.state.capacity
    }

    /// Refuses new messages for good; queued messages are still handled. Senders that wait for a permit get [`AskError::Closed`].
    pub fn close(&self) {
        self.state.permits.close();
    }

    /// Sends the message if a permit is free, without waiting; otherwise returns it with the error.
    ///
    /// # Errors
    /// [`AskError::Overloaded`] without a free permit, [`AskError::Closed`] when the actor or its mailbox is closed for good.
    pub fn try_send<M>(&self, message: M) -> Result<(), (AskError, M)>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<MailboxMessage<M>>,
        A: Actor<Context = Context<A>>,
    {
        match self.try_acquire::<M>() {
            Ok(permit) => {
                self.addr.do_send(MailboxMessage::new(message, permit, &self.state));
                Ok(())
            }
            Err(error) => Err((error, message)),
        }
    }

    /// Waits for a permit, first come first served over all senders, then sends the message. Cancel-safe: if the future is dropped
    /// while it waits, nothing was sent.
    ///
    /// # Errors
    /// [`AskError::Closed`] when the actor or its mailbox is closed for good.
    pub async fn send<M>(&self, message: M) -> Result<(), AskError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<MailboxMessage<M>>,
        A: Actor<Context = Context<A>>,
    {
        let permit = self.acquire::<M>().await?;
        self.addr.do_send(MailboxMessage::new(message, permit, &self.state));
        Ok(())
    }

    /// Sends the message and waits for the reply. One deadline covers the wait for a permit, the queue and the work. If the future is
    /// dropped or times out, a message that is still queued is skipped; work that has begun continues and keeps its permit.
    ///
    /// # Errors
    /// [`AskError::Timeout`] at the deadline, [`AskError::Closed`] at once when the actor fails on the message or is closed for good.
    pub async fn ask<M>(&self, message: M, deadline: Duration) -> Result<M::Result, AskError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<MailboxMessage<M>>,
        A: Actor<Context = Context<A>>,
    {
        let reply = async {
            let permit = self.acquire::<M>().await?;
            self.addr.send(MailboxMessage::new(message, permit, &self.state)).await.map_err(|_| AskError::Closed)
        };
        tokio::time::timeout(deadline, reply).await.unwrap_or(Err(AskError::Timeout))
    }

    /// Like [`ask`](Mailbox::ask), but does not wait for a permit: the deadline covers the queue and the work.
    ///
    /// # Errors
    /// Fails as [`ask`](Mailbox::ask) does, and with [`AskError::Overloaded`] at once without a free permit.
    pub async fn try_ask<M>(&self, message: M, deadline: Duration) -> Result<M::Result, AskError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<MailboxMessage<M>>,
        A: Actor<Context = Context<A>>,
    {
        let permit = self.try_acquire::<M>()?;
        let reply = self.addr.send(MailboxMessage::new(message, permit, &self.state));
        match tokio::time::timeout(deadline, reply).await {
            Ok(reply) => reply.map_err(|_| AskError::Closed),
            Err(_) => Err(AskError::Timeout),
        }
    }

    fn try_acquire<M>(&self) -> Result<OwnedSemaphorePermit, AskError> {
        let (error, reason) = match self.state.permits.clone().try_acquire_owned() {
            Ok(permit) if self.addr.connected() => return Ok(permit),
            Ok(_) | Err(TryAcquireError::Closed) => (AskError::Closed, UnhandledReason::Closed),
            Err(TryAcquireError::NoPermits) => (AskError::Overloaded, UnhandledReason::Overloaded),
        };
        self.state.record_unhandled(reason, short_name::<M>());
        Err(error)
    }

    async fn acquire<M>(&self) -> Result<OwnedSemaphorePermit, AskError> {
        match self.state.permits.clone().acquire_owned().await {
            Ok(permit) if self.addr.connected() => Ok(permit),
            Ok(_) | Err(_) => {
                self.state.record_unhandled(UnhandledReason::Closed, short_name::<M>());
                Err(AskError::Closed)
            }
        }
    }
}
