//! Supervision of actix actors: restart in place, strategies, restart intensity, ordered shutdown, bounded inboxes and the events
//! that tell about all of it. Knows nothing of orders, of metrics or of any other room.
//!
//! actix gives no tolerance against panics: a panic destroys the actor and its mailbox for good, also under `actix::Supervisor`.
//! Here a *cell* owns the actor's future, polls it under `catch_unwind` and, on death, calls the public `ContextFut::restart` with a
//! fresh instance from the child's factory. The mailbox and every address survive; only work in flight is lost, and whoever waits
//! for it gets an error at once.
//!
//! ```
//! use actix::prelude::*;
//! use std::time::Duration;
//! use supervision::{Bus, Job, Root, Strategy, SupervisorSpec, actor};
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
//! impl Handler<Job<Double>> for Doubler {
//!     type Result = u64;
//!     fn handle(&mut self, job: Job<Double>, ctx: &mut Self::Context) -> u64 {
//!         let (Double(n), _slot) = job.open(ctx);
//!         n * 2
//!     }
//! }
//!
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
//! # tokio::task::LocalSet::new().block_on(&rt, async {
//! let bus = Bus::default();
//! let (doubler, spec) = actor(&bus, "/doubler", 64, |_birth| Doubler);
//! let root = Root::start(SupervisorSpec::new("root", Strategy::OneForOne, 3, Duration::from_secs(60)).child(spec), bus).await;
//! assert_eq!(doubler.ask(Double(21), Duration::from_secs(1)).await, Ok(42));
//! assert!(root.shutdown(Duration::from_secs(5)).await.left.is_empty());
//! # });
//! ```
//!
//! Rules that come with it: `panic = "unwind"` in every profile; no `cancel_future` (a stale cancel survives a restart); no
//! `ResponseFuture` (it runs outside the actor and outlives it); wait for permits only *down* a pipeline, send acks and credits up
//! with `do_send`; a handler that blocks its thread cannot be killed.
#![warn(missing_docs)]

mod arbiter;
mod ask;
mod backoff;
mod bus;
mod cell;
mod child;
mod event;
mod exit;
mod faults;
mod gauge;
mod guard;
mod inbox;
mod intensity;
mod job;
mod kid;
mod log;
mod options;
mod order;
mod postbox;
mod restarts;
mod root;
mod snapshot;
mod spec;
mod starts;
mod stops;
mod stream;
mod supervisor;
mod watch;

pub use ask::AskError;
pub use backoff::Backoff;
pub use bus::{Bus, ChildError};
pub use child::{Birth, Child, Draining, actor};
pub use event::{Event, Value};
pub use exit::Reason;
pub use faults::NoSuchActor;
pub use guard::renew;
pub use inbox::Inbox;
pub use job::{Fair, Job, Slot};
pub use options::{Observer, Options};
pub use root::{DrainReport, LeftOver, Root};
pub use snapshot::{Row, State};
pub use spec::{ChildSpec, Restart, Shutdown, Strategy, SupervisorSpec};

#[doc(hidden)]
pub use actix;
