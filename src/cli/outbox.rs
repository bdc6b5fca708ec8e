//! `outbox`: look into the outbox of the configured store, explain why a row waits, retry or park one. Needs no running service.
mod act;
mod look;
mod why;

use app::operators::outbox::Operations;
use app::port_types::{RowFilter, RowId, RowStatus};
use clap::Subcommand;
use domain::OrderId;
use posthaste::Config;

use super::values::{event_type, order_id, row_id, status};
use super::{Failure, block_on};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List rows, in the order in which they were written.
    List {
        /// PENDING, IN_FLIGHT, FAILED, PARKED or SENT.
        #[arg(long, value_parser = status)]
        status: Option<RowStatus>,
        /// Only this order's.
        #[arg(long, value_parser = order_id)]
        key: Option<OrderId>,
        /// Only this type's, such as ORDER_CREATED.
        #[arg(long = "type", value_parser = event_type)]
        kind: Option<String>,
        /// Only behind this row.
        #[arg(long, value_parser = row_id)]
        after: Option<RowId>,
        /// Most rows; stderr tells where more begin.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one row.
    Show {
        /// Its id.
        #[arg(value_parser = row_id)]
        id: RowId,
        /// As a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Say why an event has not left, or where it went.
    Why(why::Arguments),
    /// Make a waiting or parked row due now.
    Retry(act::OnRow),
    /// Park a row that has not left; its order's later events wait with it.
    Park(act::OnRow),
    /// Make parked rows due again, oldest first.
    Redrive(act::Redrive),
    /// Who owns which partition.
    Partitions {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

/// Who acts, for the audit: whoever became another one by sudo is told by name.
pub(super) fn operator() -> String {
    let name = |variable: &&str| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let named = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(name);
    named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}

pub(crate) fn outbox(config: &Config, verb: Verb) -> Result<u8, Failure> {
    block_on(async {
        let operations = posthaste::beside(config).await?.operations;
        carry_out(config, &operations, verb).await?;
        Ok(0)
    })
}

async fn carry_out(config: &Config, operations: &Operations, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List { status, key, kind, after, limit, json } => {
            let filter = RowFilter { status, key, kind, after, ..RowFilter::default() };
            look::list(operations, filter, limit, json).await
        }
        Verb::Show { id, json } => look::print_row(&look::row(operations, id).await?, json),
        Verb::Why(arguments) => why::why(operations, config.broker_kind, &arguments).await,
        Verb::Retry(on_row) => act::retry(operations, &on_row).await,
        Verb::Park(on_row) => act::park(operations, &on_row).await,
        Verb::Redrive(redrive) => act::redrive(operations, redrive).await,
        Verb::Partitions { json } => look::partitions(operations, json).await,
    }
}
