//! What operators ask: rows, why one waits, partitions, health. The one door for HTTP, console and command line.
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use ports::clock::Clock;
use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RowDiagnosis, RowFilter, RowSelector, RowView};
use ports::outbox::{Depth, OutboxStore, RowId, RowStatus};
use ports::partitions::{PartitionLeases, PartitionView};

use crate::error::QueryError;
use crate::health::{HealthBoard, HealthSnapshot};

/// Most rows of one answer.
pub const ROWS_MAX: u32 = 500;

/// The operators' door.
pub struct Operations {
    outbox: Arc<dyn OutboxStore>,
    operators: Arc<dyn OutboxOperators>,
    leases: Arc<dyn PartitionLeases>,
    clock: Arc<dyn Clock>,
    vitals: HealthBoard,
}

/// RowPage and where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPage {
    /// In id order.
    pub rows: Vec<RowView>,
    /// `after` of the next page, if there is one.
    pub next: Option<RowId>,
}

impl Operations {
    /// Operations over these ports.
    pub fn new(
        outbox: Arc<dyn OutboxStore>,
        operators: Arc<dyn OutboxOperators>,
        leases: Arc<dyn PartitionLeases>,
        clock: Arc<dyn Clock>,
        vitals: HealthBoard,
    ) -> Self {
        Self { outbox, operators, leases, clock, vitals }
    }

    /// Now, for rooms that may not see the ports.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The health picture, without a wait.
    pub fn health(&self) -> Arc<HealthSnapshot> {
        self.vitals.read()
    }

    /// A page of rows; `limit` is clamped to 1…[`ROWS_MAX`].
    pub async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<RowPage, QueryError> {
        let limit = limit.clamp(1, ROWS_MAX);
        let mut rows = self.operators.rows(filter, limit + 1).await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next = if more { rows.last().map(|row| row.id) } else { None };
        Ok(RowPage { rows, next })
    }

    /// One row.
    pub async fn row(&self, id: RowId) -> Result<RowView, QueryError> {
        self.operators.row(id).await?.ok_or(QueryError::NotFound)
    }

    /// Why an event stands where it stands.
    pub async fn diagnose(&self, selector: RowSelector) -> Result<RowDiagnosis, QueryError> {
        self.operators.diagnose(selector).await?.ok_or(QueryError::NotFound)
    }

    /// Makes a waiting or parked row due now.
    pub async fn retry(&self, id: RowId, who: &str, why: &str) -> Result<(), QueryError> {
        let audit = audit(who, why);
        settled(self.operators.retry(id, &audit).await?).map(|_| ())
    }

    /// Parks a row.
    pub async fn park(&self, id: RowId, who: &str, why: &str) -> Result<(), QueryError> {
        let audit = audit(who, why);
        settled(self.operators.park(id, &audit).await?).map(|_| ())
    }

    /// How many parked rows match, and with `commit` sends them on their way.
    pub async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        commit: bool,
        who: &str,
        why: &str,
    ) -> Result<u64, QueryError> {
        let audit = audit(who, why);
        settled(self.operators.redrive(filter, limit, commit, &audit).await?)
    }

    /// Every partition.
    pub async fn partitions(&self) -> Result<Vec<PartitionView>, QueryError> {
        Ok(self.leases.overview().await?)
    }

    /// How much waits, asked of the store now.
    pub async fn depth(&self) -> Result<Depth, QueryError> {
        Ok(self.outbox.depth().await?)
    }
}

fn audit(who: &str, why: &str) -> Audit {
    Audit { operator: who.to_owned(), reason: why.to_owned() }
}

fn settled(operated: OperatorOutcome) -> Result<u64, QueryError> {
    match operated {
        OperatorOutcome::Done(rows) => Ok(rows),
        OperatorOutcome::Missing => Err(QueryError::NotFound),
        OperatorOutcome::WrongStatus(status) => {
            Err(QueryError::Conflict(format!("the row is {}; {}", status.as_str(), not_now(status))))
        }
    }
}

/// Why a row cannot be touched.
fn not_now(status: RowStatus) -> &'static str {
    match status {
        RowStatus::Pending => "it is due already, and goes as soon as the events of its order before it have gone",
        RowStatus::Parked => "it is parked already",
        RowStatus::InFlight => "it is under way: ask again in a moment",
        RowStatus::Failed | RowStatus::Sent => "only what has not left can be touched",
    }
}

/// An age as operators write it: `250ms`, `5s`, `2m`, `1h`, `7d`, or a bare `0`.
pub fn parse_age(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    // A century is as good as for ever, and fits into every store's intervals.
    let limit = 36_525 * 86_400_000;
    number.parse::<u64>().ok()?.checked_mul(millis).map(|millis| Duration::from_millis(millis.min(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_durations_are_in_the_configuration() {
        let ms = |millis| Some(Duration::from_millis(millis));
        assert_eq!(parse_age("0"), ms(0));
        assert_eq!(parse_age("250ms"), ms(250));
        assert_eq!(parse_age("5s"), ms(5_000));
        assert_eq!(parse_age("1h"), ms(3_600_000));
        for bad in ["", "5", "s", "-5s", "1.5s", "5 s", "1y", "99999999999999999999s"] {
            assert_eq!(parse_age(bad), None, "{bad}");
        }
    }
}
