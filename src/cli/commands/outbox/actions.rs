//! Changes to rows: retry or park one, redrive parked ones.
use std::time::Duration;

use app::error::QueryError;
use app::operators::outbox::Operations;
use app::port_types::{FailureType, RowFilter, RowId};
use app::units::duration;
use domain::OrderId;
use serde_json::json;

use super::super::super::confirm::{self, RedriveOptions};
use super::super::super::failure::Failure;
use super::super::super::operator::operator;
use super::super::super::output::print_line;
use super::super::super::value_parsers::{event_type, failure_type, order_id, row_id};
use super::rows::{find_row, print_row};

#[derive(clap::Args)]
pub(crate) struct RowArguments {
    /// The row's id, as `outbox list` shows it.
    #[arg(value_parser = row_id)]
    id: RowId,
    /// The reason; kept in the audit table.
    #[arg(long, default_value = "")]
    reason: String,
    /// Show the row and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation. Without a terminal, the command never asks.
    #[arg(long)]
    yes: bool,
    /// Print the row afterwards, as a JSON object.
    #[arg(long)]
    json: bool,
}

impl RowArguments {
    /// Runs the action after confirmation, reports it, and prints the row with --json or --dry-run.
    async fn run(
        &self,
        operations: &Operations,
        verb: &str,
        done: &str,
        action: impl AsyncFnOnce(RowId, &str, &str) -> Result<(), QueryError>,
    ) -> Result<(), Failure> {
        if !self.dry_run {
            self.confirm(operations, verb).await?;
            let result = action(self.id, &operator(), &self.reason).await;
            result.map_err(|error| Failure::querying(error, format!("row {}", self.id)))?;
            eprintln!("row {} {done}", self.id);
        }
        if self.json || self.dry_run { print_row(&find_row(operations, self.id).await?, self.json) } else { Ok(()) }
    }

    async fn confirm(&self, operations: &Operations, verb: &str) -> Result<(), Failure> {
        let row = find_row(operations, self.id).await?;
        let shown = format!("row {} ({}, {} of order {})", row.id, row.status.as_str(), row.kind, row.key);
        confirm::require_if_interactive(self.yes, &format!("{verb} {shown}?"))
    }
}

pub(super) async fn retry(operations: &Operations, arguments: &RowArguments) -> Result<(), Failure> {
    let retry = async |id, operator: &str, reason: &str| operations.retry(id, operator, reason).await;
    arguments.run(operations, "Retry", "is due now", retry).await
}

pub(super) async fn park(operations: &Operations, arguments: &RowArguments) -> Result<(), Failure> {
    let park = async |id, operator: &str, reason: &str| operations.park(id, operator, reason).await;
    arguments.run(operations, "Park", "is parked", park).await
}

#[derive(clap::Args)]
pub(crate) struct RedriveArguments {
    /// Only rows of this order.
    #[arg(long, value_parser = order_id)]
    key: Option<OrderId>,
    /// Only rows of this event type, such as ORDER_CREATED.
    #[arg(long = "type", value_parser = event_type)]
    kind: Option<String>,
    /// Only rows with this failure type: NETWORK, TIMEOUT, VALIDATION or SYSTEM.
    #[arg(long, value_parser = failure_type)]
    failure: Option<FailureType>,
    /// Only rows written at least this long ago: 250ms, 5s, 1h, 7d.
    #[arg(long, value_parser = duration)]
    older_than: Option<Duration>,
    /// Maximum number of rows.
    #[arg(long, default_value_t = 1_000)]
    limit: u32,
    #[command(flatten)]
    options: RedriveOptions,
}

pub(super) async fn redrive(operations: &Operations, arguments: RedriveArguments) -> Result<(), Failure> {
    let RedriveArguments { key, kind, failure: failure_type, older_than, limit, options } = arguments;
    let RedriveOptions { dry_run, yes, reason, json } = options;
    let filter = RowFilter { key, kind, failure_type, older_than, ..RowFilter::default() };
    let matched = operations.redrive(&filter, limit, false, &operator(), &reason).await?;
    eprintln!("{matched} parked rows match");
    let mut redriven = 0;
    if !dry_run && matched > 0 {
        // The operator confirms this number, so rows that were parked after the count are not retried.
        let limit = u32::try_from(matched).map_or(limit, |matched| matched.min(limit));
        confirm::require(yes, &format!("Retry {limit} parked rows?"))?;
        redriven = operations.redrive(&filter, limit, true, &operator(), &reason).await?;
        eprintln!("{redriven} rows are due now");
    }
    if json {
        print_line(&json!({"dryRun": dry_run, "matched": matched, "redriven": redriven}).to_string())?;
    }
    Ok(())
}
