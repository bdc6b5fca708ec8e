//! What operators do with rows: retry or park one, send parked ones on their way.
use std::time::Duration;

use app::error::QueryError;
use app::operators::outbox::Operations;
use app::port_types::{FailureType, RowFilter, RowId};
use domain::OrderId;
use serde_json::json;

use super::super::values::{event_type, failure_type, older_than, order_id, row_id};
use super::super::{Failure, consent, line};
use super::look::{print_row, row};
use super::operator;

#[derive(clap::Args)]
pub(crate) struct OnRow {
    /// The row's id.
    #[arg(value_parser = row_id)]
    id: RowId,
    /// Why; kept in the audit table.
    #[arg(long, default_value = "")]
    reason: String,
    /// Show the row and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do it without asking. Only whoever sits at a terminal is asked.
    #[arg(long)]
    yes: bool,
    /// Print the row as it is afterwards, as a JSON object.
    #[arg(long)]
    json: bool,
}

impl OnRow {
    /// Asks whether the row as it stands is meant.
    async fn consented(&self, operations: &Operations, verb: &str) -> Result<(), Failure> {
        let row = row(operations, self.id).await?;
        let what = format!("row {} ({}, {} of order {})", row.id, row.status.as_str(), row.kind, row.key);
        consent::not_denied(self.yes, &format!("{verb} {what}?"))
    }

    /// Shows the row afterwards, where that was asked for.
    async fn after(&self, operations: &Operations) -> Result<(), Failure> {
        if self.json || self.dry_run { print_row(&row(operations, self.id).await?, self.json) } else { Ok(()) }
    }

    /// Does it where it is meant, and says so.
    async fn carry_out(
        &self,
        operations: &Operations,
        verb: &str,
        done: &str,
        act: impl AsyncFnOnce(RowId, &str, &str) -> Result<(), QueryError>,
    ) -> Result<(), Failure> {
        if !self.dry_run {
            self.consented(operations, verb).await?;
            let acted = act(self.id, &operator(), &self.reason).await;
            acted.map_err(|error| Failure::about(error, format!("row {}", self.id)))?;
            eprintln!("row {} {done}", self.id);
        }
        self.after(operations).await
    }
}

pub(super) async fn retry(operations: &Operations, on_row: &OnRow) -> Result<(), Failure> {
    let retry = async |id, who: &str, why: &str| operations.retry(id, who, why).await;
    on_row.carry_out(operations, "Retry", "is due now", retry).await
}

pub(super) async fn park(operations: &Operations, on_row: &OnRow) -> Result<(), Failure> {
    let park = async |id, who: &str, why: &str| operations.park(id, who, why).await;
    on_row.carry_out(operations, "Park", "is parked", park).await
}

#[derive(clap::Args)]
pub(crate) struct Redrive {
    /// Only this order's.
    #[arg(long, value_parser = order_id)]
    key: Option<OrderId>,
    /// Only this type's, such as ORDER_CREATED.
    #[arg(long = "type", value_parser = event_type)]
    kind: Option<String>,
    /// Only what failed this way: NETWORK, TIMEOUT, VALIDATION or SYSTEM.
    #[arg(long, value_parser = failure_type)]
    failure: Option<FailureType>,
    /// Only what was written at least so long ago: 250ms, 5s, 1h, 7d.
    #[arg(long, value_parser = older_than)]
    older_than: Option<Duration>,
    /// Most rows.
    #[arg(long, default_value_t = 1_000)]
    limit: u32,
    #[command(flatten)]
    terms: consent::Terms,
}

pub(super) async fn redrive(operations: &Operations, asked: Redrive) -> Result<(), Failure> {
    let Redrive { key, kind, failure: failure_type, older_than, limit, terms } = asked;
    let consent::Terms { dry_run, yes, reason, json } = terms;
    let filter = RowFilter { key, kind, failure_type, older_than, ..RowFilter::default() };
    let matched = operations.redrive(&filter, limit, false, &operator(), &reason).await?;
    eprintln!("{matched} parked rows match");
    let mut redriven = 0;
    if !dry_run && matched > 0 {
        // No more than somebody said yes to, whatever was parked meanwhile.
        let limit = u32::try_from(matched).map_or(limit, |matched| matched.min(limit));
        consent::given(yes, &format!("Send {limit} rows on their way?"))?;
        redriven = operations.redrive(&filter, limit, true, &operator(), &reason).await?;
        eprintln!("{redriven} rows are due now");
    }
    if json {
        line(&json!({"dryRun": dry_run, "matched": matched, "redriven": redriven}).to_string())?;
    }
    Ok(())
}
