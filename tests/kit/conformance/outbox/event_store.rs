//! The suite of `EventStore`: a batch of another service's events is written at once or not at all, and each event once.
use std::collections::{BTreeMap, BTreeSet};

use domain::EventId;
use futures::future::join_all;
use ports::Error;
use ports::operators::RowFilter;
use ports::orders::IdempotencyRecord;
use ports::outbox::events::{EventBatch, EventBatchOutcome, ExternalEvent};
use ports::partitions::PartitionNo;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, P0, fixture};
use crate::conformance::fixture::worker::{ALL, worker};
use crate::murmur2::topic_partition;

suite! { $ events:
    an_event_is_claimed_as_it_was_handed_over,
    events_of_a_key_are_numbered_from_one_in_each_topic,
    events_of_a_batch_keep_their_order,
    an_event_that_was_published_before_is_published_once,
    an_event_that_occurs_twice_in_a_batch_is_published_once,
    a_used_idempotency_key_publishes_nothing_and_names_its_first_use,
    an_idempotency_key_is_one_for_orders_and_events,
    batches_that_overlap_at_once_publish_each_event_once,
    a_partition_that_does_not_exist_is_refused,
    a_batch_without_events_is_accepted,
}

impl<B: Backend> Fixture<'_, B> {
    /// An event in the partition of its key: a store may compute it itself, as SQL writers let it do.
    fn external_event(&self, topic: &str, key: &str) -> ExternalEvent {
        let partition = PartitionNo(topic_partition(key.as_bytes(), self.backend.partitions()));
        let row = self.factory.external_row(key, 1, partition);
        ExternalEvent {
            event_id: row.event_id,
            topic: topic.into(),
            key: row.key,
            event_type: row.event_type,
            partition,
            payload: row.payload,
            headers: row.headers,
            content_type: row.content_type,
            trace: Some(self.factory.trace()),
            request_id: row.request_id,
        }
    }

    /// A record of ann's.
    fn idempotency_record(&self) -> IdempotencyRecord {
        self.factory.idempotency_record(&self.factory.creation("ann", P0).order, "k-1")
    }

    async fn publish(&self, events: &[ExternalEvent]) -> Vec<bool> {
        match self.publish_with(events, None).await {
            EventBatchOutcome::Done { is_new } => is_new,
            other @ EventBatchOutcome::KeyUsed(_) => panic!("{other:?} without an idempotency record"),
        }
    }

    async fn publish_with(
        &self,
        events: &[ExternalEvent],
        idempotency_record: Option<IdempotencyRecord>,
    ) -> EventBatchOutcome {
        let batch = EventBatch { events: events.to_vec(), idempotency_record };
        self.backend.events().publish(batch).await.expect("the events are published")
    }

    /// The ids of all rows in the partitions of these events, as workers claim them, with their numbers.
    async fn claimed(&self, events: &[ExternalEvent]) -> Vec<(EventId, u64)> {
        let partitions: BTreeSet<PartitionNo> = events.iter().map(|event| event.partition).collect();
        let mut claimed = Vec::new();
        for partition in partitions {
            let rows = worker(self.backend, "a", partition).await.drain(ALL).await;
            claimed.extend(rows.iter().map(|row| (row.event_id, row.sequence)));
        }
        claimed
    }

    async fn rows_written(&self) -> usize {
        self.rows(RowFilter::default()).await.len()
    }
}

async fn an_event_is_claimed_as_it_was_handed_over<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let event = fixture.external_event("customers", "customer \"7\" / müller");

    assert_eq!(fixture.publish(std::slice::from_ref(&event)).await, [true]);

    let claimed = worker(backend, "a", event.partition).await.claim(ALL).await.rows.remove(0);
    assert_eq!((claimed.event_id, &claimed.key), (event.event_id, &event.key));
    assert_eq!((&claimed.event_type, &claimed.topic, claimed.sequence), (&event.event_type, &event.topic, 1));
    assert_eq!((claimed.payload.as_deref(), claimed.stamp), (Some(&*event.payload), None));
    assert_eq!((claimed.headers, claimed.content_type), (event.headers, event.content_type));
    assert_eq!((claimed.trace, claimed.request_id), (event.trace, event.request_id));
}

async fn events_of_a_key_are_numbered_from_one_in_each_topic<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let event = |topic, key| fixture.external_event(topic, key);
    let first = [event("customers", "7"), event("customers", "8"), event("invoices", "7"), event("customers", "7")];
    let second = [event("customers", "7"), event("invoices", "7"), event("customers", "9")];

    fixture.publish(&first).await;
    fixture.publish(&second).await;

    let numbers: BTreeMap<EventId, u64> =
        fixture.claimed(&[first.as_slice(), &second].concat()).await.into_iter().collect();
    let of = |events: &[ExternalEvent]| events.iter().map(|event| numbers[&event.event_id]).collect::<Vec<_>>();
    assert_eq!((of(&first), of(&second)), (vec![1, 1, 1, 2], vec![3, 2, 1]));
}

async fn events_of_a_batch_keep_their_order<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let events: Vec<ExternalEvent> = (0..20).map(|_| fixture.external_event("customers", "7")).collect();

    fixture.publish(&events).await;

    let expected: Vec<(EventId, u64)> = events.iter().map(|event| event.event_id).zip(1..).collect();
    assert_eq!(fixture.claimed(&events).await, expected);
}

async fn an_event_that_was_published_before_is_published_once<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let [known, new] = [0, 1].map(|_| fixture.external_event("customers", "7"));
    fixture.publish(std::slice::from_ref(&known)).await;

    assert_eq!(fixture.publish(&[known.clone(), new.clone()]).await, [false, true]);

    assert_eq!(fixture.claimed(std::slice::from_ref(&known)).await, [(known.event_id, 1), (new.event_id, 2)]);
}

async fn an_event_that_occurs_twice_in_a_batch_is_published_once<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let event = fixture.external_event("customers", "7");

    assert_eq!(fixture.publish(&[event.clone(), event.clone()]).await, [true, false]);

    assert_eq!(fixture.claimed(std::slice::from_ref(&event)).await, [(event.event_id, 1)]);
}

async fn a_used_idempotency_key_publishes_nothing_and_names_its_first_use<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let idempotency_record = fixture.idempotency_record();
    let events = [0, 1].map(|_| fixture.external_event("customers", "7"));
    assert_eq!(
        fixture.publish_with(&events, Some(idempotency_record.clone())).await,
        EventBatchOutcome::Done { is_new: vec![true, true] }
    );

    let again = [fixture.external_event("customers", "7")];
    let other = IdempotencyRecord { fingerprint: [9; 32], ..idempotency_record.clone() };

    assert_eq!(fixture.publish_with(&again, Some(other)).await, EventBatchOutcome::KeyUsed(idempotency_record));
    assert_eq!(fixture.rows_written().await, 2);
}

async fn an_idempotency_key_is_one_for_orders_and_events<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut commit = fixture.factory.creation("ann", P0);
    let idempotency_record = fixture.factory.idempotency_record(&commit.order, "k-1");
    commit.idempotency_record = Some(idempotency_record.clone());
    fixture.committed(commit).await;

    let published =
        fixture.publish_with(&[fixture.external_event("customers", "7")], Some(idempotency_record.clone())).await;

    assert_eq!(published, EventBatchOutcome::KeyUsed(idempotency_record));
    assert_eq!(fixture.rows_written().await, 1, "only the order's event");
}

async fn batches_that_overlap_at_once_publish_each_event_once<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let keys = ["7", "8", "9"];
    let events: Vec<ExternalEvent> = (0..9).map(|at| fixture.external_event("customers", keys[at % 3])).collect();
    let batches: Vec<Vec<ExternalEvent>> =
        (0..6).map(|from| events.iter().cycle().skip(from).take(6).cloned().collect()).collect();

    let results = join_all(batches.iter().map(|batch| fixture.publish(batch))).await;

    let new = results.iter().flatten().filter(|is_new| **is_new).count();
    let claimed = fixture.claimed(&events).await;
    assert_eq!((new >= 9, claimed.len()), (true, 9), "{results:?}");
    for key in keys {
        let ids: Vec<EventId> =
            events.iter().filter(|event| &*event.key.to_text() == key).map(|event| event.event_id).collect();
        let mut numbers: Vec<u64> =
            claimed.iter().filter(|(id, _)| ids.contains(id)).map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3], "a number is drawn once and none is left out");
    }
}

async fn a_partition_that_does_not_exist_is_refused<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let legal = fixture.external_event("customers", "7");
    let partition = PartitionNo(backend.partitions());
    let beyond = ExternalEvent { partition, ..fixture.external_event("customers", "7") };

    let result = backend.events().publish(EventBatch { events: vec![legal, beyond], idempotency_record: None }).await;

    assert!(matches!(result, Err(Error::Rejected(_))), "{result:?}");
    assert_eq!(fixture.rows_written().await, 0);
}

async fn a_batch_without_events_is_accepted<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let idempotency_record = fixture.idempotency_record();

    assert_eq!(fixture.publish(&[]).await, Vec::<bool>::new());

    assert_eq!(
        fixture.publish_with(&[], Some(idempotency_record.clone())).await,
        EventBatchOutcome::Done { is_new: Vec::new() }
    );
    assert_eq!(
        fixture.publish_with(&[], Some(idempotency_record.clone())).await,
        EventBatchOutcome::KeyUsed(idempotency_record)
    );
}
