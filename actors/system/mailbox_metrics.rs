//! MailboxMetrics: for each kind of actor, how many run, and the total depth and capacity of their mailboxes.
use std::collections::BTreeMap;
use std::sync::Arc;

use supervision::{ActorSnapshot, ActorState, SupervisionBus};
use telemetry::Metrics;

/// Publishes the metrics of all actors.
pub struct MailboxMetrics {
    bus: SupervisionBus,
    metrics: Arc<Metrics>,
    /// The mailboxes of each kind of actor that was seen.
    kinds: BTreeMap<&'static str, MailboxTotals>,
}

/// The actors of a kind together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MailboxTotals {
    registered: i64,
    up: i64,
    depth: i64,
    capacity: i64,
}

impl MailboxMetrics {
    /// Metrics of the actors that this bus knows.
    pub fn new(bus: SupervisionBus, metrics: Arc<Metrics>) -> Self {
        Self { bus, metrics, kinds: BTreeMap::new() }
    }

    /// Sets the gauges of each kind of actor: zeros for a kind that has no actor any more.
    pub fn publish(&mut self) {
        add_up(&mut self.kinds, self.bus.snapshot().into_iter().map(totals));
        for (kind, MailboxTotals { registered, up, depth, capacity }) in &self.kinds {
            self.metrics.actor_registered.with([kind]).set(*registered);
            self.metrics.actor_up.with([kind]).set(*up);
            self.metrics.actor_mailbox_depth.with([kind]).set(*depth);
            self.metrics.actor_mailbox_capacity.with([kind]).set(*capacity);
        }
    }
}

/// The kind of an actor, and the totals of this actor alone.
fn totals(actor: ActorSnapshot) -> (&'static str, MailboxTotals) {
    let gauge_value = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
    let (depth, capacity) = (gauge_value(actor.mailbox_depth), gauge_value(actor.mailbox_capacity));
    let up = i64::from(actor.state == ActorState::Running);
    (actor.kind, MailboxTotals { registered: 1, up, depth, capacity })
}

/// Adds up the actors of each kind, from zero. A kind that was seen before stays.
fn add_up(
    kinds: &mut BTreeMap<&'static str, MailboxTotals>,
    actors: impl Iterator<Item = (&'static str, MailboxTotals)>,
) {
    kinds.values_mut().for_each(|totals| *totals = MailboxTotals::default());
    for (kind, MailboxTotals { registered, up, depth, capacity }) in actors {
        let totals = kinds.entry(kind).or_default();
        totals.registered += registered;
        totals.up += up;
        totals.depth += depth;
        totals.capacity += capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_without_an_actor_is_shown_with_zeros() {
        let running = MailboxTotals { registered: 1, up: 1, depth: 2, capacity: 8 };
        let mut kinds = BTreeMap::new();
        add_up(&mut kinds, [("PartitionWorker", running), ("PartitionWorker", running)].into_iter());
        assert_eq!(kinds["PartitionWorker"], MailboxTotals { registered: 2, up: 2, depth: 4, capacity: 16 });

        add_up(&mut kinds, [("OutboxPublisher", running)].into_iter());

        assert_eq!((kinds["PartitionWorker"], kinds["OutboxPublisher"]), (MailboxTotals::default(), running));
    }
}
