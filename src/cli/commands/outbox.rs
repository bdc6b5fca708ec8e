//! `outbox`: lists, explains, retries, parks and redrives rows of the configured store. Needs no running service.
mod actions;
mod explain;
#[cfg(test)]
mod fixture;
mod redrive;
mod rows;
mod show;
mod why;

use app::operators::outbox::OutboxOperations;
use app::port_types::{EventKey, FailureType, PartitionNo, RowFilter, RowId, RowStatus};
use clap::Subcommand;
use posthaste::Config;

use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::runtime::block_on;
use super::super::value_parsers::{at_least_one, event_key, event_type, failure_type, partition, row_id, row_status};

#[derive(Subcommand)]
pub(crate) enum OutboxCommand {
    /// List rows, oldest first.
    List {
        /// Only rows with this status.
        #[arg(short, long, value_parser = row_status(), ignore_case = true)]
        status: Option<RowStatus>,
        /// Only rows of this key, such as an order id.
        #[arg(short, long, value_parser = event_key)]
        key: Option<EventKey>,
        /// Only rows of this partition of the outbox.
        #[arg(long, value_parser = partition())]
        partition: Option<PartitionNo>,
        /// Only rows of this event type, such as ORDER_CREATED.
        #[arg(long = "type", value_parser = event_type)]
        kind: Option<String>,
        /// Only rows whose last failure has this type.
        #[arg(long, value_parser = failure_type(), ignore_case = true)]
        failure: Option<FailureType>,
        /// Only rows after this row id.
        #[arg(long, value_parser = row_id)]
        after: Option<RowId>,
        /// Maximum number of rows; stderr names the row to continue after.
        #[arg(short = 'n', long, default_value_t = 100, value_parser = at_least_one())]
        limit: u32,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Show one row by its id: its state and why, its topic, headers and payload, and the command to run next.
    Show {
        /// The row's id, as `outbox list` shows it.
        #[arg(value_parser = row_id)]
        id: RowId,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Explain why an event has not been sent, or where it was sent.
    Why(why::Arguments),
    /// Make a waiting or parked row due now.
    Retry(actions::RowArguments),
    /// Park a row that has not been sent; later events of its key wait with it.
    Park(actions::RowArguments),
    /// Make parked rows due again, oldest first.
    Redrive(redrive::RedriveArguments),
    /// Show the owner of every partition.
    Partitions {
        #[command(flatten)]
        output: OutputArguments,
    },
}

pub(crate) fn outbox(config: &Config, command: OutboxCommand) -> Result<u8, Failure> {
    block_on(async {
        let operations = posthaste::open_for_operator(config).await?.operations;
        execute(config, &operations, command).await?;
        Ok(0)
    })
}

async fn execute(config: &Config, operations: &OutboxOperations, command: OutboxCommand) -> Result<(), Failure> {
    match command {
        OutboxCommand::List { status, key, partition, kind, failure: failure_type, after, limit, output } => {
            let filter = RowFilter { status, key, partition, event_type: kind, failure_type, after, older_than: None };
            rows::list(operations, filter, limit, output.format()).await
        }
        OutboxCommand::Show { id, output } => show::show(config, operations, id, output.format()).await,
        OutboxCommand::Why(arguments) => why::why(operations, config.broker.kind, &arguments).await,
        OutboxCommand::Retry(arguments) => actions::retry(operations, &arguments).await,
        OutboxCommand::Park(arguments) => actions::park(operations, &arguments).await,
        OutboxCommand::Redrive(arguments) => redrive::redrive(operations, arguments).await,
        OutboxCommand::Partitions { output } => rows::partitions(operations, output.format()).await,
    }
}
