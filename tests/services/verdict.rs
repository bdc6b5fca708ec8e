//! The judge: what clients were told, what HTTP shows, what stands on Kafka and what was consumed, held against each other.
use std::collections::{BTreeMap, BTreeSet};

use domain::Status;
use kit::checkers::{AcknowledgedEvent, check};
use ports::source::Delivery;
use serde_json::Value;

use crate::book::{Line, Shown};

/// Everything there is to hold against each other.
#[derive(Default)]
pub struct Evidence {
    pub lines: Vec<Line>,
    pub shown: BTreeMap<String, Shown>,
    pub log: Vec<Delivery>,
    /// Event ids in the inbox.
    pub consumed: Vec<String>,
}

/// How often an event may stand in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    One,
    /// Doubles are forgiven; first occurrences must be in order.
    AtLeastOne,
}

/// All that is wrong; empty when every law was kept.
pub fn wrongs(evidence: &Evidence, copies: Copies) -> Vec<String> {
    let mut wrongs = log(evidence, copies);
    orders(evidence, &mut wrongs);
    events(evidence, &mut wrongs);
    consumed(evidence, &mut wrongs);
    wrongs
}

/// Events are there once, in order, without a gap.
fn log(Evidence { lines, log, .. }: &Evidence, copies: Copies) -> Vec<String> {
    let versions = |line: &Line| (0..line.told.len() as u64).collect::<Vec<_>>();
    let told = lines.iter().filter_map(|line| Some((line.id.as_ref()?, versions(line))));
    let answered: Vec<AcknowledgedEvent> = told
        .flat_map(|(id, versions)| versions.into_iter().map(move |version| AcknowledgedEvent::of(id, version)))
        .collect();
    let mut findings = check(log, &answered);
    if copies == Copies::AtLeastOne {
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

/// HTTP shows what clients were told, and no order that nobody wanted.
fn orders(Evidence { lines, shown, .. }: &Evidence, wrongs: &mut Vec<String>) {
    let mut by_label: BTreeMap<&str, Vec<(&String, &Shown)>> = BTreeMap::new();
    for (id, order) in shown {
        by_label.entry(&order.label).or_default().push((id, order));
    }
    for line in lines {
        let found = by_label.remove(line.label.as_str()).unwrap_or_default();
        let there = found.first().map(|(id, order)| ((*id).clone(), *order));
        match (&line.id, there) {
            _ if found.len() > 1 => wrongs.push(format!("{} was placed {} times", line.label, found.len())),
            (Some(id), Some((other, _))) if *id != other => wrongs.push(format!("{} is {other}, not {id}", line.label)),
            (Some(id), None) => wrongs.push(format!("{} ({id}) was answered and is gone", line.label)),
            (None, Some((id, _))) if line.open.is_none() => wrongs.push(format!("{} ({id}) was refused", line.label)),
            (_, Some((id, order))) if !may_be(line, order) => {
                wrongs.push(format!("{id} is shown as {order:?}, its client knows {line:?}"));
            }
            _ => {}
        }
    }
    wrongs.extend(by_label.keys().map(|label| format!("nobody placed {label}")));
}

fn may_be(line: &Line, order: &Shown) -> bool {
    let version = order.version as usize;
    version + 1 >= line.told.len() && line.states().get(version) == Some(&order.status)
}

/// Events tell exactly what happened to the orders that are there: their fold is what HTTP shows.
fn events(Evidence { lines, shown, log, .. }: &Evidence, wrongs: &mut Vec<String>) {
    let mut told: BTreeMap<&str, BTreeMap<u64, (Status, String)>> = BTreeMap::new();
    for Delivery { record, .. } in log {
        let event: Value = serde_json::from_slice(&record.value).unwrap_or_default();
        let status = event["status"].as_str().and_then(Status::parse);
        let (Some(status), Some(version)) = (status, event["version"].as_u64()) else {
            wrongs.push(format!("an event of {} has no status or version: {event}", record.key));
            continue;
        };
        let kind = event["eventType"].as_str().unwrap_or_default().to_owned();
        told.entry(&record.key).or_default().insert(version, (status, kind));
    }
    let by_label: BTreeMap<&str, &Line> = lines.iter().map(|line| (line.label.as_str(), line)).collect();
    for (id, order) in shown {
        let states = by_label.get(order.label.as_str()).map(|line| line.states()).unwrap_or_default();
        let happened: BTreeMap<u64, (Status, String)> =
            (0..=order.version).zip(states).map(|(version, state)| (version, (state, kind(version, state)))).collect();
        let told = told.remove(id.as_str()).unwrap_or_default();
        if told != happened {
            wrongs.push(format!("of {id} happened {happened:?}, its events tell {told:?}"));
        }
    }
    wrongs.extend(told.keys().map(|id| format!("alien: events of {id}, which is no order")));
}

fn kind(version: u64, status: Status) -> String {
    match (version, status) {
        (0, _) => "ORDER_CREATED",
        (_, Status::Cancelled) => "ORDER_CANCELLED",
        _ => "ORDER_STATUS_CHANGED",
    }
    .to_owned()
}

/// What stands in the log was consumed, and nothing else.
fn consumed(Evidence { log, consumed, .. }: &Evidence, wrongs: &mut Vec<String>) {
    let id = |delivery: &Delivery| {
        let (_, id) = delivery.record.headers.iter().find(|(name, _)| &**name == "ce_id")?;
        String::from_utf8(id.to_vec()).ok()
    };
    let published: BTreeSet<String> = log.iter().filter_map(id).collect();
    let seen: BTreeSet<String> = consumed.iter().cloned().collect();
    if seen.len() != consumed.len() {
        wrongs.push(format!("{} of {} consumed events are doubles", consumed.len() - seen.len(), consumed.len()));
    }
    wrongs.extend(published.difference(&seen).map(|event| format!("never consumed: {event}")));
    wrongs.extend(seen.difference(&published).map(|event| format!("consumed and not in the log: {event}")));
}
