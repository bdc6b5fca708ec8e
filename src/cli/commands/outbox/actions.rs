//! Changes to one row: retry and park.
use app::error::QueryError;
use app::operators::outbox::OutboxOperations;
use app::port_types::RowId;

use super::rows::{find_row, print_row};
use crate::cli::confirm;
use crate::cli::failure::Failure;
use crate::cli::operator::operator;
use crate::cli::output::format::OutputArguments;
use crate::cli::output::print_message;
use crate::cli::value_parsers::row_id;

#[derive(clap::Args)]
pub(crate) struct RowArguments {
    /// The row's id, as `outbox list` shows it.
    #[arg(value_parser = row_id)]
    id: RowId,
    /// The reason; kept in the audit table, which `posthaste audit` lists.
    #[arg(long, default_value = "")]
    reason: String,
    /// Show the row and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation. Without a terminal, the command never asks.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    output: OutputArguments,
}

impl RowArguments {
    /// Runs the action after confirmation, reports it, and prints the row with --json or --dry-run.
    async fn run(
        &self,
        operations: &OutboxOperations,
        verb: &str,
        done: &str,
        action: impl AsyncFnOnce(RowId, &str, &str) -> Result<(), QueryError>,
    ) -> Result<(), Failure> {
        if !self.dry_run {
            self.confirm(operations, verb).await?;
            let result = action(self.id, &operator(), &self.reason).await;
            result.map_err(|error| Failure::querying(error, format!("row {}", self.id)))?;
            print_message(format_args!("row {} {done}", self.id));
        }
        let format = self.output.format();
        if format.is_json() || self.dry_run { print_row(&find_row(operations, self.id).await?, format) } else { Ok(()) }
    }

    async fn confirm(&self, operations: &OutboxOperations, verb: &str) -> Result<(), Failure> {
        let row = find_row(operations, self.id).await?;
        let shown = format!("row {} ({}, {} of key {})", row.id, row.status.as_str(), row.event_type, row.key);
        confirm::require_if_interactive(self.yes, &format!("{verb} {shown}?"))
    }
}

pub(super) async fn retry(operations: &OutboxOperations, arguments: &RowArguments) -> Result<(), Failure> {
    let retry = async |id, operator: &str, reason: &str| operations.retry(id, operator, reason).await;
    arguments.run(operations, "Retry", "is due now", retry).await
}

pub(super) async fn park(operations: &OutboxOperations, arguments: &RowArguments) -> Result<(), Failure> {
    let park = async |id, operator: &str, reason: &str| operations.park(id, operator, reason).await;
    arguments.run(operations, "Park", "is parked", park).await
}
