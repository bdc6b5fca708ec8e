//! Writers of other services: clients that publish events through any instance that answers, and transactions that write with SQL.
use std::sync::Arc;
use std::time::Duration;

use app::commands::publish_events::fingerprint;
use app::dispatch::{EventsPublished, IdempotencyKey, PublishEvents, SubmittedEvent};
use domain::{EventId, Subject};
use kit::clock::{START_TIME, SeededRng};
use outbox::EventKey;
use ports::clock::Rng;
use ports::event_headers::EventHeaders;
use ports::outbox::events::ExternalEvent;

use crate::cluster::instances::InstanceRegistry;
use crate::cluster::postgres::events::{SqlEvent, SqlTransaction};
use crate::cluster::postgres::server::SimulatedPostgres;
use crate::cluster::trace::Trace;
use crate::cluster::writers::{REPETITIONS_MAX, Replies, Writers, pause};

/// Topics of the events.
pub const TOPICS: [&str; 2] = ["customers", "invoices"];
/// A header that some events have.
pub const TENANT: &str = "tenant";

/// Keys of the events, the same in each topic.
const KEYS: [&str; 4] = ["customer 7", "Ärger/ä", "0190163d-8694-739b-aea5-966c26f8ad91", "k"];
/// Number of batches that a client publishes.
const BATCHES: u64 = 3;
/// Number of transactions of a writer with SQL.
const TRANSACTIONS: u64 = 3;

/// The context that all writers of other services share.
#[derive(Clone)]
pub struct ExternalWriterContext {
    pub pause_max: Duration,
    pub registry: InstanceRegistry,
    pub postgres: SimulatedPostgres,
    pub replies: Replies,
    pub trace: Trace,
}

/// Starts these numbers of clients and of writers with SQL.
pub fn start(
    writers: &mut Writers,
    (clients, sql_writers): (u64, u64),
    seed: u64,
    writer_context: &ExternalWriterContext,
) {
    let rng = |number| SeededRng::new(seed.wrapping_mul(1_000).wrapping_add(number));
    for number in 0..clients {
        let publisher = HttpPublisher { number, rng: rng(number), writer_context: writer_context.clone() };
        writers.spawn(async move { publisher.write().await });
    }
    for number in clients..clients + sql_writers {
        let writer = SqlWriter { rng: rng(number), writer_context: writer_context.clone() };
        writers.spawn(async move { writer.write().await });
    }
}

fn random_below(rng: &SeededRng, limit: u64) -> u64 {
    rng.next_u64() % limit
}

fn new_event_id(rng: &SeededRng) -> EventId {
    EventId::new_v7(START_TIME, rng.entropy())
}

/// An event without an id, of the key with this number.
fn submitted_event(rng: &SeededRng, key: u64) -> SubmittedEvent {
    let tenant = [None, Some("blue"), Some("müller & söhne")][random_below(rng, 3) as usize];
    let payload = [&[0, 159, 146, 150][..], &rng.next_u64().to_be_bytes()].concat();
    SubmittedEvent {
        event_id: None,
        topic: TOPICS[random_below(rng, TOPICS.len() as u64) as usize].into(),
        key: EventKey::from_text(KEYS[(key % KEYS.len() as u64) as usize]),
        event_type: ["CustomerMoved", "com.example.invoice/sent v2"][random_below(rng, 2) as usize].into(),
        payload: payload.into(),
        headers: EventHeaders::from_pairs(tenant.map(|tenant| (TENANT, tenant))),
        content_type: (random_below(rng, 2) == 0).then(|| "application/x-protobuf".into()),
        trace: None,
    }
}

/// A client of `POST /events`.
struct HttpPublisher {
    number: u64,
    rng: SeededRng,
    writer_context: ExternalWriterContext,
}

impl HttpPublisher {
    async fn write(&self) {
        let ExternalWriterContext { postgres, replies, .. } = &self.writer_context;
        for batch in 0..BATCHES {
            let (command, fail_overs) = (self.command(batch), postgres.fail_overs());
            let Some(published) = self.publish(&command).await else { continue };
            published.events.iter().for_each(|event| replies.add_event(event.id));
            if random_below(&self.rng, 8) == 0 {
                self.check_repetition(&command, fail_overs).await;
            }
        }
    }

    /// One to three events: either they have ids of their own, or the batch has an idempotency key.
    fn command(&self, batch: u64) -> PublishEvents {
        let count = 1 + random_below(&self.rng, 3);
        let mut events: Vec<SubmittedEvent> =
            (0..count).map(|_| submitted_event(&self.rng, self.rng.next_u64())).collect();
        let has_key = random_below(&self.rng, 2) == 0;
        if !has_key {
            events.iter_mut().for_each(|event| event.event_id = Some(new_event_id(&self.rng)));
        }
        let idempotency_key = has_key.then(|| IdempotencyKey {
            key: format!("{}-{batch}", self.number).into(),
            fingerprint: fingerprint(&events),
        });
        let subject = Subject::new("shop").expect("a name");
        PublishEvents { subject, events, idempotency_key, span: None, request_id: Some(Arc::from("publish-1")) }
    }

    /// Publishes a batch, and retries on another instance if one fails. The command is the same each time.
    async fn publish(&self, command: &PublishEvents) -> Option<EventsPublished> {
        let ExternalWriterContext { pause_max, registry, .. } = &self.writer_context;
        for _ in 0..=REPETITIONS_MAX {
            pause(&self.rng, *pause_max).await;
            let Some(instance) = registry.find(self.rng.next_u64()) else { continue };
            if let Ok(published) = instance.publish(command.clone(), Duration::MAX).await {
                return Some(published);
            }
        }
        None
    }

    /// Repeats a command that has succeeded after this many fail-overs: none of its events is new, unless a fail-over has lost them.
    async fn check_repetition(&self, command: &PublishEvents, fail_overs: u32) {
        let ExternalWriterContext { postgres, trace, .. } = &self.writer_context;
        let Some(repeated) = self.publish(command).await else { return };
        let has_new = repeated.events.iter().any(|event| event.is_new);
        if has_new && postgres.fail_overs() == fail_overs {
            trace.violation(format!("a repeated command has published its events again: {repeated:?}"));
        }
    }
}

/// A service that writes with SQL, in transactions of its own.
struct SqlWriter {
    rng: SeededRng,
    writer_context: ExternalWriterContext,
}

impl SqlWriter {
    async fn write(&self) {
        let ExternalWriterContext { pause_max, postgres, replies, .. } = &self.writer_context;
        for _ in 0..TRANSACTIONS {
            pause(&self.rng, *pause_max).await;
            // A transaction that a failure of the primary undoes is not repeated.
            let committed = postgres.transaction(self.transaction()).await.unwrap_or_default();
            committed.into_iter().for_each(|id| replies.add_event(id));
        }
    }

    /// A short transaction, one with a rollback, one with a savepoint that is rolled back, a long one, or one with several keys.
    fn transaction(&self) -> SqlTransaction {
        let (key, short) =
            (random_below(&self.rng, KEYS.len() as u64), Duration::from_millis(1 + random_below(&self.rng, 300)));
        let committed = |events: Vec<SqlEvent>, held| SqlTransaction { events, held, commits: true };
        match random_below(&self.rng, 5) {
            0 => committed(vec![self.event(key)], short),
            1 => SqlTransaction { commits: false, ..committed(vec![self.event(key), self.event(key)], short) },
            2 => {
                let undone = SqlEvent { is_undone: true, ..self.event(key + 1) };
                committed(vec![self.event(key), undone, self.event(key)], short)
            }
            3 => committed(vec![self.event(key)], Duration::from_millis(1_000 + random_below(&self.rng, 6_000))),
            _ => committed((key..key + 3).map(|key| self.event(key)).collect(), short),
        }
    }

    fn event(&self, key: u64) -> SqlEvent {
        let SubmittedEvent { topic, key, event_type, payload, headers, content_type, trace, .. } =
            submitted_event(&self.rng, key);
        let (event_id, partition) = (new_event_id(&self.rng), self.writer_context.postgres.partition_of(&key));
        let event = ExternalEvent {
            event_id,
            topic,
            key,
            event_type,
            partition,
            payload,
            headers,
            content_type,
            trace,
            request_id: None,
        };
        SqlEvent { event, is_undone: false }
    }
}
