//! What an actor must be to be supervised, and the constructor of its spec.

use std::sync::Arc;
use std::time::Duration;

use actix::dev::channel;
use actix::prelude::*;
use tokio::sync::Semaphore;

use crate::bus::Bus;
use crate::cell::Cell;
use crate::exit::Reason;
use crate::gauge::Gauge;
use crate::inbox::Inbox;
use crate::order::Line;
use crate::postbox::postbox;
use crate::spec::{ChildSpec, LaunchFn, Restart, Shutdown};

/// What a factory is told of the incarnation it builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Its number, from 1.
    pub generation: u64,
    /// How the one before it ended; none for the first.
    pub after: Option<Reason>,
}

/// How an actor drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draining {
    /// It is stopped as soon as its inbox is empty and no [`Slot`](crate::Slot) is held; new messages wait meanwhile. Work without a
    /// slot (timers, spawned futures) is cut.
    WhenIdle,
    /// It calls `ctx.stop()` itself when it is done.
    ByItself,
}

/// An actor that can be supervised. Written by [`supervised!`](crate::supervised).
pub trait Child: Actor<Context = Context<Self>> + Supervised {
    /// The actor is asked to finish what it holds; it has its spec's shutdown limit. Comes after the messages before it, and not while
    /// the actor waits in `ctx.wait`.
    fn drain(&mut self, _ctx: &mut Context<Self>) -> Draining {
        Draining::WhenIdle
    }
}

/// Makes an actor supervised, in one line. With a second argument, a `fn(&mut Self, &mut Context<Self>)` that is called when the
/// actor is to drain and calls `ctx.stop()` when it has; without, the actor is stopped once its inbox is empty and idle.
///
/// ```
/// # use actix::prelude::*;
/// struct Worker { in_flight: usize }
/// impl Actor for Worker { type Context = Context<Self>; }
/// impl Worker {
///     fn finish(&mut self, ctx: &mut Context<Self>) { if self.in_flight == 0 { ctx.stop() } }
/// }
/// supervision::supervised!(Worker, Worker::finish);
/// ```
#[macro_export]
macro_rules! supervised {
    ($actor:ty) => {
        impl $crate::actix::Supervised for $actor {
            fn restarting(&mut self, _ctx: &mut $crate::actix::Context<Self>) {
                $crate::renew(self);
            }
        }
        impl $crate::Child for $actor {}
    };
    ($actor:ty, $drain:expr) => {
        impl $crate::actix::Supervised for $actor {
            fn restarting(&mut self, _ctx: &mut $crate::actix::Context<Self>) {
                $crate::renew(self);
            }
        }
        impl $crate::Child for $actor {
            fn drain(&mut self, ctx: &mut $crate::actix::Context<Self>) -> $crate::Draining {
                let drain: fn(&mut Self, &mut $crate::actix::Context<Self>) = $drain;
                drain(self, ctx);
                $crate::Draining::ByItself
            }
        }
    };
}

/// An actor child at `path`, and the way into it. Nothing runs yet, but the inbox is final: wiring, also in circles, is done with it
/// before the start and holds over every restart.
///
/// `capacity` bounds queued and in-flight messages together. `factory` builds one incarnation; it must be cheap and take nothing, for
/// the next instance is built when the old one dies: acquire in `started()`. Its panic counts as a failed start.
///
/// # Panics
/// When `capacity` is zero or beyond what a semaphore counts: a mistake of the program.
pub fn actor<A: Child>(
    bus: &Bus,
    path: &str,
    capacity: usize,
    factory: impl Fn(Birth) -> A + Send + 'static,
) -> (Inbox<A>, ChildSpec) {
    assert!(
        capacity > 0 && capacity <= Semaphore::MAX_PERMITS.min(u32::MAX as usize),
        "an inbox of {capacity} at {path}"
    );
    // 0 is actix's word for unbounded: the gauge's semaphore is the bound.
    let (sender, receiver) = channel::channel::<A>(0);
    let addr = Addr::new(sender);
    let kind = short_name::<A>();
    let gauge = Arc::new(Gauge::new(kind, capacity, bus.observer()));
    let inbox = Inbox::new(addr.clone(), gauge.clone());
    let cell_gauge = gauge.clone();
    let launch: LaunchFn = Box::new(move |launch| {
        let (line, orders) = postbox();
        let (link, arbiter) = (launch.link, launch.arbiter);
        let cell = move || Cell::new(receiver, addr, Box::new(factory), orders, link, cell_gauge);
        match arbiter {
            // A dead arbiter drops the closure and with it `orders`: the first order then fails, and the child counts as lost.
            Some(arbiter) => drop(arbiter.spawn_fn(move || drop(tokio::task::spawn_local(cell())))),
            None => drop(tokio::task::spawn_local(cell())),
        }
        Line::Cell(line)
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
        gauge: Some(gauge),
        launch,
    };
    (inbox, spec)
}

/// A type's name without its modules and parameters: `PartitionWorker`.
pub(crate) fn short_name<T>() -> &'static str {
    let full = std::any::type_name::<T>();
    let plain = full.split('<').next().unwrap_or(full);
    plain.rsplit("::").next().unwrap_or(plain)
}
