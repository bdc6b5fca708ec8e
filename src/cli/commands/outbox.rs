//! `outbox`: lists, explains, retries, parks and redrives rows of the configured store. Needs no running service.
mod actions;
mod rows;
mod why;

use app::operators::outbox::Operations;
use app::port_types::{RowFilter, RowId, RowStatus};
use clap::Subcommand;
use domain::OrderId;
use posthaste::Config;

use super::super::failure::Failure;
use super::super::runtime::block_on;
use super::super::value_parsers::{event_type, order_id, row_id, status};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List rows, oldest first.
    List {
        /// Only rows with this status: PENDING, IN_FLIGHT, FAILED, PARKED or SENT.
        #[arg(long, value_parser = status)]
        status: Option<RowStatus>,
        /// Only rows of this order.
        #[arg(long, value_parser = order_id)]
        key: Option<OrderId>,
        /// Only rows of this event type, such as ORDER_CREATED.
        #[arg(long = "type", value_parser = event_type)]
        kind: Option<String>,
        /// Only rows after this row id.
        #[arg(long, value_parser = row_id)]
        after: Option<RowId>,
        /// Maximum number of rows; stderr names the row to continue after.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one row by its id.
    Show {
        /// The row's id, as `outbox list` shows it.
        #[arg(value_parser = row_id)]
        id: RowId,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Explain why an event has not been sent, or where it was sent.
    Why(why::Arguments),
    /// Make a waiting or parked row due now.
    Retry(actions::RowArguments),
    /// Park a row that has not been sent; later events of its order wait with it.
    Park(actions::RowArguments),
    /// Make parked rows due again, oldest first.
    Redrive(actions::RedriveArguments),
    /// Show the owner of every partition.
    Partitions {
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn outbox(config: &Config, verb: Verb) -> Result<u8, Failure> {
    block_on(async {
        let operations = posthaste::open_for_operator(config).await?.operations;
        execute(config, &operations, verb).await?;
        Ok(0)
    })
}

async fn execute(config: &Config, operations: &Operations, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List { status, key, kind, after, limit, json } => {
            let filter = RowFilter { status, key, kind, after, ..RowFilter::default() };
            rows::list(operations, filter, limit, json).await
        }
        Verb::Show { id, json } => rows::print_row(&rows::find_row(operations, id).await?, json),
        Verb::Why(arguments) => why::why(operations, config.broker.kind, &arguments).await,
        Verb::Retry(arguments) => actions::retry(operations, &arguments).await,
        Verb::Park(arguments) => actions::park(operations, &arguments).await,
        Verb::Redrive(arguments) => actions::redrive(operations, arguments).await,
        Verb::Partitions { json } => rows::partitions(operations, json).await,
    }
}
