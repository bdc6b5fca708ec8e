//! Compares the responses of clients, what HTTP shows, what is in the Kafka topics and what was consumed.
use std::collections::{BTreeMap, BTreeSet};

use domain::Status;
use kit::checkers::{AcknowledgedEvent, check};
use ports::broker::consumer_groups::ConsumerRecord;
use serde_json::Value;

use crate::oracle::client_orders::{ClientOrder, OrderView};
use crate::oracle::event_clients::ClientBatch;
use crate::oracle::external_checks::check_external;
use crate::oracle::sql_writers::SqlChange;

/// Everything that the checks compare.
#[derive(Default)]
pub struct Evidence {
    pub orders: Vec<ClientOrder>,
    pub shown: BTreeMap<String, OrderView>,
    pub log: Vec<ConsumerRecord>,
    /// Event ids in the inbox.
    pub consumed: Vec<String>,
    /// The topic of the events of other services.
    pub events: Vec<ConsumerRecord>,
    pub batches: Vec<ClientBatch>,
    pub changes: Vec<SqlChange>,
}

/// The delivery guarantee that the log must satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryGuarantee {
    ExactlyOnce,
    /// Duplicates are allowed; first occurrences must be in order.
    AtLeastOnce,
}

/// Every violation of a guarantee, as text; empty when there is none.
pub fn violations(evidence: &Evidence, guarantee: DeliveryGuarantee) -> Vec<String> {
    let mut violations = log_violations(&evidence.log, &acknowledged_events(evidence), guarantee);
    check_orders(evidence, &mut violations);
    check_events(evidence, &mut violations);
    check_inbox(evidence, &mut violations);
    check_external(evidence, guarantee, &mut violations);
    violations
}

fn acknowledged_events(Evidence { orders, .. }: &Evidence) -> Vec<AcknowledgedEvent> {
    let versions = |order: &ClientOrder| (0..order.acknowledged.len() as u64).collect::<Vec<_>>();
    let known = orders.iter().filter_map(|order| Some((order.id.as_ref()?, versions(order))));
    known
        .flat_map(|(id, versions)| versions.into_iter().map(move |version| AcknowledgedEvent::of(id, version)))
        .collect()
}

/// Each event is in the log once, in order, without a gap.
pub fn log_violations(
    log: &[ConsumerRecord],
    acknowledged: &[AcknowledgedEvent],
    guarantee: DeliveryGuarantee,
) -> Vec<String> {
    let mut findings = check(log, acknowledged);
    if guarantee == DeliveryGuarantee::AtLeastOnce {
        findings.duplicated.clear();
    }
    let kinds = [
        ("lost", findings.lost),
        ("doubled", findings.duplicated),
        ("reordered", findings.reordered),
        ("gap", findings.gaps),
        ("malformed", findings.malformed),
    ];
    kinds.into_iter().flat_map(|(kind, found)| found.into_iter().map(move |what| format!("{kind}: {what}"))).collect()
}

/// HTTP agrees with the responses of clients and shows no order that no client created.
fn check_orders(Evidence { orders, shown, .. }: &Evidence, violations: &mut Vec<String>) {
    let mut by_label: BTreeMap<&str, Vec<(&String, &OrderView)>> = BTreeMap::new();
    for (id, view) in shown {
        by_label.entry(&view.label).or_default().push((id, view));
    }
    for order in orders {
        let found = by_label.remove(order.label.as_str()).unwrap_or_default();
        let stored = found.first().map(|(id, view)| ((*id).clone(), *view));
        match (&order.id, stored) {
            _ if found.len() > 1 => violations.push(format!("{} was created {} times", order.label, found.len())),
            (Some(id), Some((other, _))) if *id != other => {
                violations.push(format!("{} is {other}, not {id}", order.label));
            }
            (Some(id), None) => violations.push(format!("{} ({id}) was acknowledged and is missing", order.label)),
            (None, Some((id, _))) if order.unknown.is_none() => {
                violations.push(format!("{} ({id}) was refused", order.label));
            }
            (_, Some((id, view))) if !is_possible(order, view) => {
                violations.push(format!("{id} is shown as {view:?}, its client knows {order:?}"));
            }
            _ => {}
        }
    }
    violations.extend(by_label.keys().map(|label| format!("no client created {label}")));
}

fn is_possible(order: &ClientOrder, view: &OrderView) -> bool {
    let version = view.version as usize;
    version + 1 >= order.acknowledged.len() && order.states().get(version) == Some(&view.status)
}

/// The events of each order are exactly its changes: folding them gives the order that HTTP shows.
fn check_events(Evidence { orders, shown, log, .. }: &Evidence, violations: &mut Vec<String>) {
    let mut published: BTreeMap<&str, BTreeMap<u64, (Status, String)>> = BTreeMap::new();
    for ConsumerRecord { record, .. } in log {
        let event: Value = serde_json::from_slice(&record.value).unwrap_or_default();
        let status = event["status"].as_str().and_then(Status::parse);
        let (Some(status), Some(version)) = (status, event["version"].as_u64()) else {
            violations.push(format!("an event of {} has no status or version: {event}", record.key));
            continue;
        };
        let kind = event["eventType"].as_str().unwrap_or_default().to_owned();
        published.entry(&record.key).or_default().insert(version, (status, kind));
    }
    let by_label: BTreeMap<&str, &ClientOrder> = orders.iter().map(|order| (order.label.as_str(), order)).collect();
    for (id, view) in shown {
        let states = by_label.get(view.label.as_str()).map(|order| order.states()).unwrap_or_default();
        let expected: BTreeMap<u64, (Status, String)> = (0..=view.version)
            .zip(states)
            .map(|(version, state)| (version, (state, event_type(version, state))))
            .collect();
        let events = published.remove(id.as_str()).unwrap_or_default();
        if events != expected {
            violations.push(format!("the changes of {id} are {expected:?}, its events are {events:?}"));
        }
    }
    violations.extend(published.keys().map(|id| format!("events of {id}, which is not an order")));
}

fn event_type(version: u64, status: Status) -> String {
    match (version, status) {
        (0, _) => "ORDER_CREATED",
        (_, Status::Cancelled) => "ORDER_CANCELLED",
        _ => "ORDER_STATUS_CHANGED",
    }
    .to_owned()
}

/// The inbox has every event of the log once, and no other event.
fn check_inbox(Evidence { log, consumed, .. }: &Evidence, violations: &mut Vec<String>) {
    let id = |message: &ConsumerRecord| message.record.text("ce_id").map(str::to_owned);
    let published: BTreeSet<String> = log.iter().filter_map(id).collect();
    let seen: BTreeSet<String> = consumed.iter().cloned().collect();
    if seen.len() != consumed.len() {
        violations.push(format!(
            "{} of {} consumed events are duplicates",
            consumed.len() - seen.len(),
            consumed.len()
        ));
    }
    violations.extend(published.difference(&seen).map(|event| format!("never consumed: {event}")));
    violations.extend(seen.difference(&published).map(|event| format!("consumed and not in the log: {event}")));
}
