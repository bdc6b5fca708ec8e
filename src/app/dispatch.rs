//! The interface between HTTP and the actors: commands, actor views, fault injection, live events. Crate `actors` implements it.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Items, Order, OrderId, Status, Subject};
use futures::stream::BoxStream;
use ports::event_headers::EventHeaders;
use ports::orders::TraceContext;
use ports::outbox::EventKey;

use crate::error::CommandError;

/// The orders that a caller may see and change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Only orders of this subject.
    Owner(Subject),
    /// Orders of every subject.
    Admin,
}

impl Viewer {
    /// Whether this order is visible to the viewer.
    pub fn sees(&self, order: &Order) -> bool {
        match self {
            Viewer::Admin => true,
            Viewer::Owner(subject) => *subject == order.owner,
        }
    }

    /// The owner to filter by; `None` for all owners.
    pub fn owner(&self) -> Option<Subject> {
        match self {
            Viewer::Admin => None,
            Viewer::Owner(subject) => Some(subject.clone()),
        }
    }
}

/// A client's idempotency key with the fingerprint of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key: 1 to 128 printable ASCII characters.
    pub key: Arc<str>,
    /// SHA-256 of the parsed body: see [`crate::commands::create_order::fingerprint`].
    pub fingerprint: [u8; 32],
}

/// Span of the request that a command comes from: the parent of the spans that the command causes. Only of traces that are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSpan {
    /// Id of the trace, as in a `traceparent`.
    pub trace_id: u128,
    /// Id of the span in its trace.
    pub span_id: u64,
}

/// Command to place an order.
#[derive(Clone, Debug)]
pub struct CreateOrder {
    /// Subject that places the order.
    pub subject: Subject,
    /// Items of the new order.
    pub items: Items,
    /// Idempotency key, if the client sent one.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Trace context that the order's event carries on: the client's, or that of the request's span.
    pub trace: Option<TraceContext>,
    /// Span of the request, if its trace is sampled.
    pub span: Option<RequestSpan>,
    /// Id of the request, which the order's event carries on.
    pub request_id: Option<Arc<str>>,
}

/// Versions that the client expects, as far as it sent any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangePreconditions {
    /// The `If-Match` header, checked before `version`.
    pub if_match: Option<IfMatch>,
    /// The `version` member of the body.
    pub version: Option<u64>,
}

/// Versions that match the `If-Match` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// `*` matches every version.
    Any,
    /// Versions of the listed tags; tags that are not a version match nothing and are omitted.
    OneOf(Vec<u64>),
}

/// Command to change an order's status, or to cancel it (`to` = CANCELLED).
#[derive(Clone, Debug)]
pub struct ChangeOrder {
    /// Id of the order to change.
    pub id: OrderId,
    /// Status after the change.
    pub to: Status,
    /// Restricts the command to orders that the caller may see.
    pub viewer: Viewer,
    /// Versions at which the change is allowed.
    pub preconditions: ChangePreconditions,
    /// Trace context that the order's event carries on: the client's, or that of the request's span.
    pub trace: Option<TraceContext>,
    /// Span of the request, if its trace is sampled.
    pub span: Option<RequestSpan>,
    /// Id of the request, which the order's event carries on; `None` where the service makes the change by itself.
    pub request_id: Option<Arc<str>>,
}

/// Result of a [`CreateOrder`] command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedOrder {
    /// The order in its present state.
    pub order: Arc<Order>,
    /// Whether an earlier request with the same key placed it.
    pub replayed: bool,
}

/// An event that another service hands over, checked by the rules of `outbox::event_rules`.
#[derive(Clone, Debug)]
pub struct SubmittedEvent {
    /// The id that the service chose; an event without one gets a new id.
    pub event_id: Option<EventId>,
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Key by which events keep their order.
    pub key: EventKey,
    /// Type of the event.
    pub event_type: Arc<str>,
    /// Value of the record, unchanged.
    pub payload: Arc<[u8]>,
    /// Headers that the service adds to the record.
    pub headers: EventHeaders,
    /// Media type of the payload; `None` is `application/json`.
    pub content_type: Option<Arc<str>>,
    /// Trace context of the event, or of the request.
    pub trace: Option<TraceContext>,
}

/// Writes events of another service to the outbox, all or none.
#[derive(Clone, Debug)]
pub struct PublishEvents {
    /// The client's subject, to which its idempotency keys belong.
    pub subject: Subject,
    /// The events; those of one key are published in this order.
    pub events: Vec<SubmittedEvent>,
    /// Idempotency key, if the client sent one.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Span of the request, if its trace is sampled.
    pub span: Option<RequestSpan>,
    /// Id of the request, which the events carry on.
    pub request_id: Option<Arc<str>>,
}

/// One event of a [`PublishEvents`] command after its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// Id of the event.
    pub id: EventId,
    /// Whether it is new; one that was published before is left as it is.
    pub is_new: bool,
}

/// Result of a [`PublishEvents`] command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsPublished {
    /// The events in the order of the command.
    pub events: Vec<AcceptedEvent>,
    /// Whether an earlier request with the same key published them.
    pub replayed: bool,
}

/// An actor's state: one row of `/admin/actors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorView {
    /// Path in the supervision tree, such as `/relay/partition-worker-7`.
    pub path: String,
    /// Type of the actor, such as `PartitionWorker`.
    pub actor: String,
    /// `running`, `restarting`, `stopped` or `paused`.
    pub state: &'static str,
    /// Number of starts, from 1.
    pub generation: u64,
    /// Number of restarts by the supervisor.
    pub restarts: u64,
    /// Time since its last start; `None` while it does not run.
    pub uptime: Option<Duration>,
    /// Number of messages queued or in progress.
    pub mailbox_depth: usize,
    /// Upper limit of `mailbox_depth`.
    pub mailbox_capacity: usize,
    /// Work that the actor has in progress, such as a batch with its first rows, where its code names it.
    pub in_progress: Option<String>,
    /// Reason of the last exit.
    pub last_exit: Option<String>,
    /// Label of the actor's supervisor, as in [`SupervisorView`].
    pub supervisor: String,
    /// Path of the nearest supervisor above that has a path.
    pub parent: Option<String>,
}

/// A supervisor of the tree, with the limit of its restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorView {
    /// Its path, or its name if it has no path.
    pub label: String,
    /// Label of the supervisor above; `None` for the root.
    pub parent: Option<String>,
    /// `one_for_one`, `rest_for_one` or `one_for_all`.
    pub strategy: &'static str,
    /// Most restarts within the window; one more stops the supervisor, and the one above decides.
    pub restarts_max: usize,
    /// Length of the sliding window.
    pub window: Duration,
    /// Number of restarts in the window that ends now.
    pub restarts_in_window: usize,
}

/// A fault to inject into an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The actor panics at once.
    Panic,
    /// The actor exits normally; its supervisor decides about a restart.
    Stop,
    /// The actor handles no message until it is resumed.
    Pause,
    /// A paused actor handles messages again.
    Resume,
}

/// Why a fault was not injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// The configuration has `fault_injection.enabled` = false.
    #[error("fault injection is not enabled (fault_injection.enabled)")]
    Disabled,
    /// The tree has no actor with this path.
    #[error("no such actor")]
    NoSuchActor,
}

/// One event of the live stream: an actor's life cycle or a change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveEvent {
    /// Sequence number; a client that reconnects sends the last one it received. That of `lagged` is the number of the last missed event.
    pub seq: u64,
    /// Name of the event, such as `child_exited` or `region_passive`. `lagged` counts the events that the reader missed.
    pub event: String,
    /// The event's fields as a JSON object.
    pub data: String,
    /// Time since the event.
    pub age: Duration,
}

/// The live stream after a sequence number.
pub struct LiveFeed {
    /// Buffered events after that number.
    pub backlog: Vec<LiveEvent>,
    /// Later events; the stream ends when the service stops or the reader is too slow. Events that it can no longer read are counted first.
    pub next: BoxStream<'static, LiveEvent>,
}

/// Sends commands to the actors and reads their state.
#[async_trait]
pub trait Dispatch: Send + Sync {
    /// Places an order. Returns within `time_limit`, the rest of the request timeout; the outcome is then known unless the command had
    /// reached the store. Not cancel-safe: after a missing reply it evicts what may be outdated from the cache, and releases the idempotency key.
    async fn create(&self, command: CreateOrder, time_limit: Duration) -> Result<CreatedOrder, CommandError>;

    /// Changes or cancels an order. Returns within `time_limit`, as [`create`](Dispatch::create) does.
    async fn change(&self, command: ChangeOrder, time_limit: Duration) -> Result<Arc<Order>, CommandError>;

    /// Publishes events of another service. Returns within `time_limit`, as [`create`](Dispatch::create) does.
    async fn publish(&self, command: PublishEvents, time_limit: Duration) -> Result<EventsPublished, CommandError>;

    /// Lists every actor, sorted by path.
    fn actors(&self) -> Vec<ActorView>;

    /// Lists every supervisor; each comes before the supervisors below it.
    fn supervisors(&self) -> Vec<SupervisorView>;

    /// Adds an event to the live stream, for facts outside the tree such as an operator's action. It is not logged.
    fn announce(&self, event: &'static str, fields: Vec<(&'static str, String)>);

    /// Injects a fault into an actor, for tests and drills. `operator` is logged.
    ///
    /// # Errors
    /// Fault injection is disabled, or no actor has this path.
    fn inject(&self, path: &str, fault: InjectedFault, operator: &str) -> Result<(), InjectError>;

    /// Whether fault injection is enabled.
    fn faults_enabled(&self) -> bool;

    /// Subscribes to the live stream after a sequence number. Without one, or with 0, it begins with all buffered events.
    fn live(&self, after: Option<u64>) -> LiveFeed;
}
