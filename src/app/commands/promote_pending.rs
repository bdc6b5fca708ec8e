//! Promotes PENDING orders to PROCESSING: bounded pages, one transaction per order.
use std::collections::VecDeque;

use domain::{OrderId, Status, Timestamp};

use super::context::CommandContext;
use crate::admission::write_gate::WriteGateClosed;
use crate::dispatch::{ChangeOrder, ChangePreconditions, Viewer};
use crate::error::CommandError;

/// The pages of one run over the PENDING orders. Pages continue after an id, so that an order whose promotion fails is not listed again in the
/// same run. A run begins after the order at which the last one stopped, and ends with that order: damaged orders delay no younger ones.
#[derive(Debug)]
pub struct PendingPages {
    /// The ids that are left, in the order in which they are listed: at most two ranges.
    ranges: VecDeque<IdRange>,
}

#[derive(Clone, Copy, Debug)]
struct IdRange {
    /// The range begins after this id.
    after: Option<OrderId>,
    /// The last id of the range; `None` for no limit.
    until: Option<OrderId>,
}

impl PendingPages {
    /// All pending orders, oldest first; where the last run stopped at one, first the younger ones. Those that are created after `now` are then
    /// left to the next run: otherwise the older ones would wait for them.
    pub fn after(stopped_at: Option<OrderId>, now: Timestamp) -> Self {
        let ranges = match stopped_at {
            None => vec![IdRange { after: None, until: None }],
            Some(_) => {
                let youngest = OrderId::new_v7(now, [u8::MAX; 10]);
                let younger = IdRange { after: stopped_at, until: Some(youngest) };
                vec![younger, IdRange { after: None, until: stopped_at }]
            }
        };
        Self { ranges: ranges.into() }
    }

    /// Lists the next page, which may be empty; `None` after the last one.
    pub async fn next(&mut self, context: &CommandContext, limit: u32) -> Result<Option<Vec<OrderId>>, CommandError> {
        let Some(range) = self.ranges.front_mut() else { return Ok(None) };
        let mut ids = context.orders.oldest(Status::Pending, range.after, limit).await?;
        let is_full = ids.len() >= limit as usize;
        range.after = ids.last().copied().or(range.after);
        let is_at_end = range.until.is_some() && range.after >= range.until;
        ids.retain(|id| range.until.is_none_or(|until| *id <= until));
        if !is_full || is_at_end {
            self.ranges.pop_front();
        }
        Ok(Some(ids))
    }
}

/// The command that promotes one order. It passes the same checks as a client's command.
pub fn promotion(id: OrderId) -> ChangeOrder {
    ChangeOrder {
        id,
        to: Status::Processing,
        viewer: Viewer::Admin,
        preconditions: ChangePreconditions::default(),
        trace: None,
        span: None,
        request_id: None,
    }
}

/// Most orders in a row that may fail. Damaged orders are rare and lie apart: three failures in a row are an outage of the store.
const FAILURES_IN_A_ROW_MAX: u32 = 3;

/// One run over the pending orders.
#[derive(Debug, Default)]
pub struct PromotionRun {
    /// Orders promoted so far.
    pub promoted: u64,
    failures_in_a_row: u32,
}

/// The next step of a run after one order.
#[derive(Debug, PartialEq, Eq)]
pub enum PromotionStep {
    /// Goes on: the order was promoted, or it refuses the promotion because it changed meanwhile, here or in another region.
    Next,
    /// Goes on: only this order failed.
    Skipped(CommandError),
    /// Ends: the write gate is closed.
    HeldBack(WriteGateClosed),
    /// Ends: the store fails.
    Stopped(CommandError),
}

impl PromotionRun {
    /// Counts the result of one order. An order that cannot be read or changed does not delay the younger ones.
    pub fn record<T>(&mut self, result: Result<T, CommandError>) -> PromotionStep {
        let failed = match result {
            Ok(_) => {
                self.promoted += 1;
                None
            }
            Err(CommandError::Conflict(_) | CommandError::RegionConflict(_) | CommandError::NotFound) => None,
            Err(CommandError::Gated(why)) => return PromotionStep::HeldBack(why),
            Err(full @ CommandError::StorageFull(_)) => return PromotionStep::Stopped(full),
            Err(error) => Some(error),
        };
        self.failures_in_a_row = if failed.is_some() { self.failures_in_a_row + 1 } else { 0 };
        match failed {
            None => PromotionStep::Next,
            Some(error) if self.failures_in_a_row >= FAILURES_IN_A_ROW_MAX => PromotionStep::Stopped(error),
            Some(error) => PromotionStep::Skipped(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_orders_are_skipped_until_three_in_a_row_fail() {
        let failure = || CommandError::Unavailable("damaged".into());
        let mut run = PromotionRun::default();

        assert_eq!(run.record::<()>(Err(failure())), PromotionStep::Skipped(failure()));
        assert_eq!(run.record::<()>(Err(failure())), PromotionStep::Skipped(failure()));
        assert_eq!(run.record(Ok(())), PromotionStep::Next);
        assert_eq!(run.record::<()>(Err(failure())), PromotionStep::Skipped(failure()));
        assert_eq!(run.record::<()>(Err(CommandError::NotFound)), PromotionStep::Next);
        for _ in 0..2 {
            assert_eq!(run.record::<()>(Err(failure())), PromotionStep::Skipped(failure()));
        }
        assert_eq!(run.record::<()>(Err(failure())), PromotionStep::Stopped(failure()));

        assert_eq!(run.promoted, 1);
    }

    #[test]
    fn a_full_store_ends_the_run_at_once() {
        let full = || CommandError::StorageFull("disk".into());

        assert_eq!(PromotionRun::default().record::<()>(Err(full())), PromotionStep::Stopped(full()));
    }
}
