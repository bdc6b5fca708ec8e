//! `outbox redrive`: makes parked rows due again, oldest first, at a rate.
use std::time::Duration;

use api::{Pace, PacedRedrive, row_document};
use app::operators::outbox::OutboxOperations;
use app::port_types::{Audit, EventKey, FailureType, PartitionNo, RedriveMode, RowFilter, RowStatus, RowView};
use app::units::duration;
use serde_json::{Value, json};

use super::rows::rows_table;
use crate::cli::confirm::{self, RedriveOptions};
use crate::cli::failure::Failure;
use crate::cli::operator::operator;
use crate::cli::output::progress::progress_bar;
use crate::cli::output::terminal::TerminalFeatures;
use crate::cli::output::{pluralize, print_line, print_message};
use crate::cli::value_parsers::{at_least_one, event_key, event_type, failure_type, partition};

/// Rows that a dry run lists.
const LISTED_MAX: u32 = 10;

#[derive(clap::Args)]
pub(crate) struct RedriveArguments {
    /// Only rows of this key, such as an order id.
    #[arg(short, long, value_parser = event_key)]
    key: Option<EventKey>,
    /// Only rows of this partition of the outbox.
    #[arg(long, value_parser = partition())]
    partition: Option<PartitionNo>,
    /// Only rows of this event type, such as ORDER_CREATED.
    #[arg(long = "type", value_parser = event_type)]
    kind: Option<String>,
    /// Only rows with this failure type.
    #[arg(long, value_parser = failure_type(), ignore_case = true)]
    failure: Option<FailureType>,
    /// Only rows written at least this long ago: 250ms, 5s, 1h, 7d.
    #[arg(long, value_parser = duration)]
    older_than: Option<Duration>,
    /// Maximum number of rows.
    #[arg(short = 'n', long, default_value_t = 1_000, value_parser = at_least_one())]
    limit: u32,
    /// The reason; kept in the audit table, which `posthaste audit` lists.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    options: RedriveOptions,
}

pub(super) async fn redrive(operations: &OutboxOperations, arguments: RedriveArguments) -> Result<(), Failure> {
    let RedriveArguments { key, partition, kind, failure: failure_type, older_than, limit, reason, options } =
        arguments;
    let RedriveOptions { dry_run, rate, yes, output } = options;
    let status = Some(RowStatus::Parked);
    let filter = RowFilter { status, key, partition, event_type: kind, failure_type, older_than, after: None };
    let matched = operations.redrive(&filter, limit, RedriveMode::DryRun, &operator(), &reason).await?;
    print_message(format_args!("{}", pluralize(matched, "parked row matches", "parked rows match")));
    let (mut redriven, mut listed) = (0, Vec::new());
    if dry_run {
        listed = operations.rows(&filter, LISTED_MAX.min(limit.max(1))).await?.rows;
    } else if matched > 0 {
        // The operator confirms this number, so rows that were parked after the count are not retried.
        let limit = matched.min(u64::from(limit));
        confirm::require(yes, &format!("Retry {}?", pluralize(limit, "parked row", "parked rows")))?;
        let (bar, audit) = (progress_bar("redriving", limit), Audit { operator: operator(), reason });
        let progress = |seen| bar.set_position(seen);
        let redrive = PacedRedrive { limit, pace: Pace::from_rate(rate), time_max: None, progress: &progress };
        redriven = redrive.rows(operations, &filter, &audit).await?;
        bar.finish_and_clear();
        print_message(format_args!("{} due now", pluralize(redriven, "row is", "rows are")));
        if matched > limit {
            print_message(format_args!(
                "{} not changed: repeat the command for the others, or raise --limit",
                matched - limit
            ));
        }
    }
    if output.is_json() {
        return print_line(&report(dry_run, matched, redriven, &listed).to_string());
    }
    print_listed(&listed, matched)
}

/// The result as JSON; a dry run lists its first rows.
fn report(dry_run: bool, matched: u64, redriven: u64, listed: &[RowView]) -> Value {
    let mut report = json!({"dryRun": dry_run, "matched": matched, "redriven": redriven});
    if dry_run {
        report["rows"] = listed.iter().map(row_document).collect();
    }
    report
}

fn print_listed(listed: &[RowView], matched: u64) -> Result<(), Failure> {
    if listed.is_empty() {
        return Ok(());
    }
    print_line(&rows_table(listed, TerminalFeatures::of_stdout()))?;
    let more = matched.saturating_sub(listed.len() as u64);
    if more > 0 {
        print_message(format_args!("and {more} more"));
    }
    Ok(())
}
