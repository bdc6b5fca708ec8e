//! Commits as arrays, one per column, the parameters of `unnest`.
use std::time::SystemTime;

use ports::orders::{Commit, IdempotencyRecord, format_items};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::sql_value::{SqlValue, event_uuid, key_group, order_uuid, system_time};
use crate::connection::statement_error::StatementResult;

/// The columns of idempotency records, in the order in which they are inserted.
#[derive(Default)]
pub(crate) struct IdempotencyColumns<'a> {
    subjects: Vec<&'a str>,
    keys: Vec<&'a str>,
    fingerprints: Vec<&'a [u8]>,
    orders: Vec<Uuid>,
}

impl<'a> IdempotencyColumns<'a> {
    pub(crate) fn new(idempotency_records: impl Iterator<Item = &'a IdempotencyRecord>) -> Self {
        let mut columns = Self::default();
        for idempotency_record in idempotency_records {
            columns.subjects.push(idempotency_record.subject.as_str());
            columns.keys.push(&idempotency_record.key);
            columns.fingerprints.push(&idempotency_record.fingerprint);
            columns.orders.push(order_uuid(idempotency_record.order_id));
        }
        columns
    }

    pub(crate) fn values(&self) -> [SqlValue<'_>; 4] {
        [
            (&self.subjects, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.fingerprints, Type::BYTEA_ARRAY),
            (&self.orders, Type::UUID_ARRAY),
        ]
    }
}

/// The columns of the commits' events, each with the order that must be written before it.
#[derive(Default)]
pub(crate) struct EventColumns<'a> {
    orders: Vec<Uuid>,
    ids: Vec<Uuid>,
    keys: Vec<Uuid>,
    partitions: Vec<i32>,
    sequences: Vec<i64>,
    occurred: Vec<SystemTime>,
    millis: Vec<i64>,
    counters: Vec<i64>,
    event_types: Vec<&'a str>,
    topics: Vec<&'a str>,
    regions: Vec<&'a str>,
    parents: Vec<Option<&'a str>>,
    states: Vec<Option<&'a str>>,
    payloads: Vec<&'a [u8]>,
    key_texts: Vec<Option<&'a str>>,
    headers: Vec<Option<String>>,
    content_types: Vec<Option<&'a str>>,
    request_ids: Vec<Option<&'a str>>,
    contract_checksums: Vec<Option<i32>>,
}

impl<'a> EventColumns<'a> {
    pub(crate) fn new(commits: &[&'a Commit]) -> Self {
        let mut columns = Self::default();
        for commit in commits {
            for event in &commit.events {
                columns.orders.push(order_uuid(commit.order.id));
                columns.ids.push(event_uuid(event.event_id));
                columns.keys.push(key_group(&event.key));
                columns.partitions.push(event.partition.0 as i32);
                columns.sequences.push(event.sequence as i64);
                columns.occurred.push(system_time(event.occurred_at));
                let stamp = event.stamp.as_ref();
                columns.millis.push(stamp.map_or(0, |stamp| stamp.hlc.millis));
                columns.counters.push(stamp.map_or(0, |stamp| stamp.hlc.counter.into()));
                columns.event_types.push(&event.event_type);
                columns.topics.push(&event.topic);
                columns.regions.push(stamp.map_or("", |stamp| stamp.region.as_str()));
                columns.parents.push(event.trace.as_ref().map(|trace| &*trace.parent));
                columns.states.push(event.trace.as_ref().and_then(|trace| trace.state.as_deref()));
                columns.payloads.push(&event.payload);
                columns.key_texts.push(event.key.text());
                columns.headers.push(event.headers.to_json());
                columns.content_types.push(event.content_type.as_deref());
                columns.request_ids.push(event.request_id.as_deref());
                columns.contract_checksums.push(event.contract_checksum.map(u32::cast_signed));
            }
        }
        columns
    }

    pub(crate) fn values(&self) -> [SqlValue<'_>; 19] {
        [
            (&self.orders, Type::UUID_ARRAY),
            (&self.ids, Type::UUID_ARRAY),
            (&self.keys, Type::UUID_ARRAY),
            (&self.partitions, Type::INT4_ARRAY),
            (&self.sequences, Type::INT8_ARRAY),
            (&self.occurred, Type::TIMESTAMPTZ_ARRAY),
            (&self.millis, Type::INT8_ARRAY),
            (&self.counters, Type::INT8_ARRAY),
            (&self.event_types, Type::TEXT_ARRAY),
            (&self.topics, Type::TEXT_ARRAY),
            (&self.regions, Type::TEXT_ARRAY),
            (&self.parents, Type::TEXT_ARRAY),
            (&self.states, Type::TEXT_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.key_texts, Type::TEXT_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&self.content_types, Type::TEXT_ARRAY),
            (&self.request_ids, Type::TEXT_ARRAY),
            (&self.contract_checksums, Type::INT4_ARRAY),
        ]
    }
}

/// The columns of the commits' orders.
#[derive(Default)]
pub(crate) struct OrderColumns<'a> {
    ids: Vec<Uuid>,
    owners: Vec<&'a str>,
    statuses: Vec<&'a str>,
    versions: Vec<i64>,
    created: Vec<SystemTime>,
    updated: Vec<SystemTime>,
    items: Vec<String>,
    totals: Vec<String>,
    regions: Vec<&'a str>,
    millis: Vec<i64>,
    counters: Vec<i64>,
}

impl<'a> OrderColumns<'a> {
    pub(crate) fn new(commits: &[&'a Commit]) -> StatementResult<Self> {
        let mut columns = Self::default();
        for commit in commits {
            let order = &commit.order;
            columns.ids.push(order_uuid(order.id));
            columns.owners.push(order.owner.as_str());
            columns.statuses.push(order.status.as_str());
            columns.versions.push(order.version as i64);
            columns.created.push(system_time(order.created_at));
            columns.updated.push(system_time(order.updated_at));
            // Only a creation writes items, which never change.
            if commit.expected.is_none() {
                columns.items.push(format_items(&order.items)?);
                columns.totals.push(order.items.total().to_string());
            }
            columns.regions.push(order.region.as_str());
            columns.millis.push(order.hlc.millis);
            columns.counters.push(order.hlc.counter.into());
        }
        Ok(columns)
    }

    pub(crate) fn creation(&self) -> [SqlValue<'_>; 11] {
        [
            (&self.ids, Type::UUID_ARRAY),
            (&self.owners, Type::TEXT_ARRAY),
            (&self.statuses, Type::TEXT_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.created, Type::TIMESTAMPTZ_ARRAY),
            (&self.updated, Type::TIMESTAMPTZ_ARRAY),
            (&self.items, Type::TEXT_ARRAY),
            (&self.totals, Type::TEXT_ARRAY),
            (&self.regions, Type::TEXT_ARRAY),
            (&self.millis, Type::INT8_ARRAY),
            (&self.counters, Type::INT8_ARRAY),
        ]
    }

    pub(crate) fn change(&self) -> [SqlValue<'_>; 7] {
        [
            (&self.ids, Type::UUID_ARRAY),
            (&self.statuses, Type::TEXT_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.updated, Type::TIMESTAMPTZ_ARRAY),
            (&self.regions, Type::TEXT_ARRAY),
            (&self.millis, Type::INT8_ARRAY),
            (&self.counters, Type::INT8_ARRAY),
        ]
    }
}
