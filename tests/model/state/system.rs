//! System: one state of the whole model.
use crate::configuration::{Configuration, DeliveryGuarantee, Faults, INSTANCES, KEYS_MAX};
use crate::invariants::Violation;
use crate::state::broker::Broker;
use crate::state::event_set::EventSet;
use crate::state::instance::Instance;
use crate::state::statement::Statement;
use crate::state::store::{RowStatus, Store};

/// Most statements that may be late at once.
pub const STATEMENTS_MAX: usize = 2;

/// Store, broker, instances, late statements, and the faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct System {
    pub store: Store,
    /// The store at the moment when replication stopped: a failover goes back to it.
    pub replica: Option<Store>,
    pub broker: Broker,
    pub instances: [Instance; INSTANCES],
    pub statements: [Option<Statement>; STATEMENTS_MAX],
    pub faults: Faults,
    /// Events of which the store lost a statement: they may be published twice.
    pub may_repeat: EventSet,
    pub violation: Option<Violation>,
}

impl System {
    /// The first state: both processes run, no lease is taken, and the committed rows are due.
    pub fn first(config: &Configuration) -> Self {
        let mut system = Self { faults: config.faults, ..Self::default() };
        system.store.ids_fenced = true;
        for (event, row) in config.events.iter().zip(&mut system.store.rows) {
            row.status = if event.is_committed { RowStatus::Pending } else { RowStatus::Uncommitted };
        }
        for instance in &mut system.instances {
            instance.is_alive = true;
        }
        system
    }

    /// Records a violation, unless the search looks for damage only and it is none.
    pub fn report(&mut self, config: &Configuration, violation: Violation) {
        if self.violation.is_none() && (config.counts_prevention || violation.is_damage()) {
            self.violation = Some(violation);
        }
    }

    /// Guarantees 3 and 5 on the records that are committed: each event once, and within a key in id order.
    pub fn check_records(&mut self, config: &Configuration) {
        for key in 0..KEYS_MAX {
            let mut seen = EventSet::default();
            for record in self.broker.logs[key].into_iter().flatten() {
                if !self.broker.is_record_committed(&record) {
                    continue;
                }
                let event = record.event as usize;
                if seen.contains(event) {
                    let is_permitted = config.guarantee == DeliveryGuarantee::AtLeastOnce;
                    if !is_permitted && !self.may_repeat.contains(event) {
                        self.report(config, Violation::Duplicate);
                    }
                    continue;
                }
                seen.insert(event);
                let is_overtaken = |earlier: usize| {
                    let status = self.store.rows[earlier].status;
                    let is_skipped = status == RowStatus::Parked && config.skips_parked_rows;
                    !seen.contains(earlier) && !is_skipped && status != RowStatus::Erased
                };
                if config.earlier_of_key(event).any(is_overtaken) {
                    self.report(config, Violation::OutOfOrder);
                }
            }
        }
    }

    /// Guarantee 2: each SENT event is committed on the broker.
    pub fn check_settled(&mut self, config: &Configuration) {
        let is_lost =
            |event: usize| self.store.rows[event].status == RowStatus::Sent && !self.broker.is_committed(config, event);
        if (0..config.events.len()).any(is_lost) {
            self.report(config, Violation::Lost);
        }
    }

    /// Whether this is a goal state: each event is SENT, or parked, or waits behind a parked one, or was lost with the store's own past.
    pub fn is_goal(&self, config: &Configuration) -> bool {
        let is_parked = |event: usize| self.store.rows[event].status == RowStatus::Parked;
        (0..config.events.len()).all(|event| match self.store.rows[event].status {
            RowStatus::Sent | RowStatus::Erased | RowStatus::Parked => true,
            RowStatus::Pending | RowStatus::Failed | RowStatus::Due => {
                !config.skips_parked_rows && config.earlier_of_key(event).any(is_parked)
            }
            RowStatus::Uncommitted | RowStatus::InFlight => false,
        })
    }
}
