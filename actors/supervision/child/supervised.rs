//! The trait of supervised actors, with the drain hook, and the macro that implements it.

use actix::prelude::*;

use crate::child::exit::ExitReason;

/// The incarnation that a factory builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// The number of the incarnation, from 1.
    pub generation: u64,
    /// How the previous incarnation ended; none for the first.
    pub previous_exit: Option<ExitReason>,
}

/// How a draining actor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    /// The actor is stopped as soon as its mailbox is empty and no [`MailboxPermit`](crate::MailboxPermit) is held; new messages wait
    /// meanwhile. Work without a permit (timers, spawned futures) is cancelled.
    WhenIdle,
    /// The actor calls `ctx.stop()` itself when it has drained.
    StopsItself,
}

/// An actor that can be supervised. [`supervised!`](crate::supervised) writes the implementation.
pub trait SupervisedActor: Actor<Context = Context<Self>> + Supervised {
    /// Called when the actor is to finish its outstanding work, within the shutdown limit of its spec. Before the call, the handler of every
    /// message that the [`Mailbox`](crate::Mailbox) held when the drain was requested has begun; later messages wait until the call. It is not
    /// called while the actor waits in `ctx.wait`.
    fn drain(&mut self, _ctx: &mut Context<Self>) -> DrainMode {
        DrainMode::WhenIdle
    }
}

/// Implements [`SupervisedActor`] and actix's `Supervised`. The optional second argument is a `fn(&mut Self, &mut Context<Self>)` that is
/// called when the actor is to drain, and that calls `ctx.stop()` once it has drained. Without it, the actor is stopped once its
/// mailbox is empty and it is idle.
///
/// ```
/// # use actix::prelude::*;
/// struct Worker { in_flight: usize }
/// impl Actor for Worker { type Context = Context<Self>; }
/// impl Worker {
///     fn drain(&mut self, ctx: &mut Context<Self>) { if self.in_flight == 0 { ctx.stop() } }
/// }
/// supervision::supervised!(Worker, Worker::drain);
/// ```
#[macro_export]
macro_rules! supervised {
    ($actor:ty) => {
        impl $crate::actix::Supervised for $actor {
            fn restarting(&mut self, _ctx: &mut $crate::actix::Context<Self>) {
                $crate::replace_instance(self);
            }
        }
        impl $crate::SupervisedActor for $actor {}
    };
    ($actor:ty, $drain:expr) => {
        impl $crate::actix::Supervised for $actor {
            fn restarting(&mut self, _ctx: &mut $crate::actix::Context<Self>) {
                $crate::replace_instance(self);
            }
        }
        impl $crate::SupervisedActor for $actor {
            fn drain(&mut self, ctx: &mut $crate::actix::Context<Self>) -> $crate::DrainMode {
                let drain: fn(&mut Self, &mut $crate::actix::Context<Self>) = $drain;
                drain(self, ctx);
                $crate::DrainMode::StopsItself
            }
        }
    };
}
