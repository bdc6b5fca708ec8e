//! OTP-style supervision of actix actors: child specs, restart strategies, restart intensity, escalation, ordered shutdown, bounded
//! mailboxes, fault injection, and one stream of lifecycle events. The crate knows no order, no metric and no other workspace crate.
//!
//! The model is the supervisor behaviour of Erlang/OTP ("OTP Design Principles", chapter "Supervisor Behaviour"); names are OTP's
//! wherever OTP has one. A difference from OTP is stated at the item that differs.
//!
//! actix does not tolerate panics: a panic destroys the actor and its mailbox for good, also under `actix::Supervisor`. Here an *actor
//! task* owns the actor's future and polls it under `catch_unwind`. After a panic it calls the public `ContextFut::restart` with a
//! fresh instance from the child's factory. The mailbox and every address survive the restart. Only in-flight work is lost, and its
//! callers receive an error at once.
//!
//! ```
//! use actix::prelude::*;
//! use std::time::Duration;
//! use supervision::{MailboxMessage, RootSupervisor, Strategy, SupervisionBus, SupervisorSpec, actor};
//!
//! #[derive(Message)]
//! #[rtype(result = "u64")]
//! struct Double(u64);
//!
//! struct Doubler;
//! impl Actor for Doubler {
//!     type Context = Context<Self>;
//! }
//! supervision::supervised!(Doubler);
//! impl Handler<MailboxMessage<Double>> for Doubler {
//!     type Result = u64;
//!     fn handle(&mut self, message: MailboxMessage<Double>, ctx: &mut Self::Context) -> u64 {
//!         let (Double(n), _permit) = message.begin(ctx);
//!         n * 2
//!     }
//! }
//!
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
//! # tokio::task::LocalSet::new().block_on(&rt, async {
//! let bus = SupervisionBus::default();
//! let (doubler, child) = actor(&bus, "/doubler", 64, |_incarnation| Doubler);
//! let spec = SupervisorSpec::new("root", Strategy::OneForOne, 3, Duration::from_secs(60)).child(child);
//! let root = RootSupervisor::start(spec, bus).await;
//! assert_eq!(doubler.ask(Double(21), Duration::from_secs(1)).await, Ok(42));
//! assert!(root.shutdown(Duration::from_secs(5)).await.unfinished.is_empty());
//! # });
//! ```
//!
//! Rules for users of this crate:
//! - Every profile sets `panic = "unwind"`.
//! - No `cancel_future`: a stale cancellation survives a restart. No `ResponseFuture`: it runs outside the actor and outlives it.
//! - An actor waits for permits only *down* a pipeline; acknowledgements and credits go up with `do_send`, so no two actors deadlock.
//! - A handler that blocks its thread cannot be killed; the watchdog reports the thread as a stalled arbiter.
#![warn(missing_docs)]

mod bus;
mod child;
mod events;
mod mailbox;
mod tree;

pub use bus::drain_report::{DrainReport, UnfinishedActor};
pub use bus::faults::NoSuchActor;
pub use bus::options::Options;
pub use bus::snapshot::{ActorSnapshot, ActorState};
pub use bus::supervision_bus::{ChildError, SupervisionBus};
pub use bus::supervisor_registry::SupervisorSnapshot;
pub use child::actor::actor;
pub use child::backoff::Backoff;
pub use child::exit::ExitReason;
pub use child::in_progress::{WorkInProgress, in_progress};
pub use child::panic_guard::replace_instance;
pub use child::policy::{Restart, Shutdown, Strategy};
pub use child::spec::{ChildSpec, SupervisorSpec};
pub use child::supervised::{DrainMode, Incarnation, SupervisedActor};
pub use events::event::{FieldValue, SupervisionEvent};
pub use events::observer::Observer;
pub use mailbox::ask_error::AskError;
pub use mailbox::handle::Mailbox;
pub use mailbox::message::{MailboxMessage, MailboxPermit};
pub use tree::root::RootSupervisor;

#[doc(hidden)]
pub use actix;
