//! What HTTP may ask of the actors. Implemented by the room `actors`; HTTP knows only this.
use std::sync::Arc;

use async_trait::async_trait;
use domain::{Items, Order, OrderId, Status, Subject};
use futures::stream::BoxStream;
use ports::orders::TraceContext;

use crate::error::CommandError;

/// Whose orders a caller may see and change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Only the own ones.
    Owner(Subject),
    /// All.
    Admin,
}

impl Viewer {
    /// Whether this order is there for the viewer.
    pub fn sees(&self, order: &Order) -> bool {
        match self {
            Viewer::Admin => true,
            Viewer::Owner(subject) => *subject == order.owner,
        }
    }

    /// The owner to filter by.
    pub fn owner(&self) -> Option<Subject> {
        match self {
            Viewer::Admin => None,
            Viewer::Owner(subject) => Some(subject.clone()),
        }
    }
}

/// A client's name for one intent, with what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedIntent {
    /// 1…128 printable ASCII characters.
    pub key: Arc<str>,
    /// SHA-256 of the body as parsed: see [`crate::commands::create_order::fingerprint`].
    pub fingerprint: [u8; 32],
}

/// Place an order.
#[derive(Clone, Debug)]
pub struct CreateOrder {
    /// Who.
    pub subject: Subject,
    /// What.
    pub items: Items,
    /// Under which idempotency key.
    pub intent: Option<KeyedIntent>,
    /// The request's trace context.
    pub trace: Option<TraceContext>,
}

/// What the client last saw, as far as it says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangePreconditions {
    /// `If-Match`, judged first.
    pub if_match: Option<IfMatch>,
    /// `version` of the body.
    pub version: Option<u64>,
}

/// The versions that `If-Match` lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// `*`.
    Any,
    /// These; a tag that names no version of ours matches nothing and is left out.
    OneOf(Vec<u64>),
}

/// Move an order on, or withdraw it (`to` = CANCELLED).
#[derive(Clone, Debug)]
pub struct ChangeOrder {
    /// Which.
    pub id: OrderId,
    /// Where to.
    pub to: Status,
    /// As seen by whom.
    pub viewer: Viewer,
    /// Only if it is still as the client saw it.
    pub preconditions: ChangePreconditions,
    /// The request's trace context.
    pub trace: Option<TraceContext>,
}

/// A placed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The order as it is now.
    pub order: Arc<Order>,
    /// Whether it had been placed before under the same key.
    pub replayed: bool,
}

/// An actor as operators see it: one row of `/admin/actors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorView {
    /// Its place in the tree, `/relay/partition-worker-7`.
    pub path: String,
    /// Its kind, `PartitionWorker`.
    pub actor: String,
    /// `running`, `restarting`, `stopped` or `paused`.
    pub state: &'static str,
    /// Counts its lives, from 1.
    pub generation: u64,
    /// How often it was restarted.
    pub restarts: u64,
    /// Messages queued or being worked on.
    pub mailbox_depth: usize,
    /// Most of them.
    pub mailbox_capacity: usize,
    /// Why its last life ended.
    pub last_exit: Option<String>,
    /// The supervisor that stands in its path.
    pub parent: Option<String>,
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Panic at once.
    Panic,
    /// Exit normally; the supervisor decides.
    Stop,
    /// Handle nothing until resumed.
    Pause,
    /// Go on.
    Resume,
}

/// Why no fault was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// `fault_injection.enabled` is false.
    #[error("fault injection is not enabled")]
    Disabled,
    /// No actor has this path.
    #[error("no such actor")]
    NoSuchActor,
}

/// One item of the live stream: a lifecycle fact or a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveEvent {
    /// Grows by one; a reader that reconnects names the last it saw.
    pub seq: u64,
    /// `child_exited`, `region_passive`, …
    pub event: String,
    /// A JSON object with the fact's fields.
    pub data: String,
}

/// The live stream from a point on.
pub struct LiveFeed {
    /// What is still remembered after that point.
    pub backlog: Vec<LiveEvent>,
    /// What happens from now on; ends when the service stops or the reader is too slow.
    pub next: BoxStream<'static, LiveEvent>,
}

/// The actors' door.
#[async_trait]
pub trait Dispatch: Send + Sync {
    /// Places an order. Answers within the request timeout.
    async fn create(&self, command: CreateOrder) -> Result<Created, CommandError>;

    /// Moves an order on or withdraws it. Answers within the request timeout.
    async fn change(&self, command: ChangeOrder) -> Result<Arc<Order>, CommandError>;

    /// Every actor, by path.
    fn actors(&self) -> Vec<ActorView>;

    /// Does harm, for tests and drills.
    ///
    /// # Errors
    /// InjectedFault injection is off, or nobody has this path.
    fn inject(&self, path: &str, fault: InjectedFault, by: &str) -> Result<(), InjectError>;

    /// Whether faults may be injected at all.
    fn faults_enabled(&self) -> bool;

    /// The live stream after `seq`, or from now on.
    fn live(&self, after: Option<u64>) -> LiveFeed;
}
