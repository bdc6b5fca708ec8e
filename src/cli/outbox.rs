//! `outbox`: look into the outbox of the configured store, explain why a row waits, retry or park one. Needs no running service.
use std::time::Duration;

use api::{partition_document, row_document, standing_document};
use app::contract::rfc3339;
use app::operate::{Operations, age};
use app::seen::{FailureType, RowFilter, RowStatus, RowView, Standing, Whose};
use clap::Subcommand;
use domain::{EventId, OrderId, Timestamp};
use posthaste::Config;

use super::{Failure, block_on, line};

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
        /// Only this type's.
        #[arg(long = "type")]
        kind: Option<String>,
        /// Only behind this row.
        #[arg(long)]
        after: Option<i64>,
        /// Most rows.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one row.
    Show {
        /// Its id.
        id: i64,
        /// As a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Say why an event has not left, or where it went.
    Why {
        /// The order whose first waiting event is meant.
        #[arg(long, value_parser = order_id, required_unless_present = "event", conflicts_with = "event")]
        key: Option<OrderId>,
        /// The event.
        #[arg(long, value_parser = event_id)]
        event: Option<EventId>,
        /// As a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Make a waiting or parked row due now.
    Retry(Act),
    /// Park a row that has not left; its order's later events wait with it.
    Park(Act),
    /// Make parked rows due again, oldest first.
    Redrive {
        /// Only this order's.
        #[arg(long, value_parser = order_id)]
        key: Option<OrderId>,
        /// Only this type's.
        #[arg(long = "type")]
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
        /// Say how many rows match and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Do it without asking.
        #[arg(long)]
        yes: bool,
        /// Why; kept in the audit table.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Who owns which partition.
    Partitions {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
pub(crate) struct Act {
    /// The row's id.
    id: i64,
    /// Why; kept in the audit table.
    #[arg(long, default_value = "")]
    reason: String,
    /// Show the row and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Taken and not needed: nothing is asked about one row, but a script may say yes to every verb that changes something.
    #[arg(long, hide = true)]
    yes: bool,
    /// Print the row as it is afterwards, as a JSON object.
    #[arg(long)]
    json: bool,
}

fn status(text: &str) -> Result<RowStatus, String> {
    RowStatus::parse(text).ok_or_else(|| "one of PENDING, IN_FLIGHT, FAILED, PARKED, SENT".to_owned())
}

fn order_id(text: &str) -> Result<OrderId, String> {
    OrderId::parse(text).ok_or_else(|| "an order id is a hyphenated UUID".to_owned())
}

pub(super) fn failure_type(text: &str) -> Result<FailureType, String> {
    FailureType::parse(text).ok_or_else(|| "one of NETWORK, TIMEOUT, VALIDATION, SYSTEM".to_owned())
}

pub(super) fn older_than(text: &str) -> Result<Duration, String> {
    age(text).ok_or_else(|| "a duration such as 250ms, 5s, 1h or 7d".to_owned())
}

/// Who acts, for the audit.
pub(super) fn operator() -> String {
    std::env::var("USER").unwrap_or_else(|_| "operator".to_owned())
}

fn event_id(text: &str) -> Result<EventId, String> {
    EventId::parse(text).ok_or_else(|| "an event id is a hyphenated UUID".to_owned())
}

pub(crate) fn outbox(config: &Config, verb: Verb) -> Result<u8, Failure> {
    block_on(async {
        let operations = posthaste::beside(config).await?.operations;
        carry_out(&operations, verb).await
    })
}

async fn carry_out(operations: &Operations, verb: Verb) -> Result<u8, Failure> {
    let who = operator();
    match verb {
        Verb::List { status, key, kind, after, limit, json } => {
            let filter = RowFilter { status, key, kind, after, ..RowFilter::default() };
            list(operations, filter, limit, json).await?;
        }
        Verb::Show { id, json } => print_row(&operations.row(id).await?, json)?,
        Verb::Why { key, event, json } => {
            let whose =
                key.map(Whose::Key).or(event.map(Whose::Event)).ok_or_else(|| Failure::new("give --key or --event"))?;
            print_why(&operations.why(whose).await?, operations.now(), json)?;
        }
        Verb::Retry(act) => {
            if !act.dry_run {
                operations.retry(act.id, &who, &act.reason).await?;
                eprintln!("row {} is due now", act.id);
            }
            after(operations, &act).await?;
        }
        Verb::Park(act) => {
            if !act.dry_run {
                operations.park(act.id, &who, &act.reason).await?;
                eprintln!("row {} is parked", act.id);
            }
            after(operations, &act).await?;
        }
        Verb::Redrive { key, kind, failure: failure_type, older_than, limit, dry_run, yes, reason } => {
            let filter = RowFilter { key, kind, failure_type, older_than, ..RowFilter::default() };
            let rows = operations.redrive(&filter, limit, false, &who, &reason).await?;
            eprintln!("{rows} parked rows match");
            if !dry_run && rows > 0 {
                if !yes {
                    return Err(Failure::new("nothing was changed; repeat with --yes to make them due"));
                }
                let rows = operations.redrive(&filter, limit, true, &who, &reason).await?;
                eprintln!("{rows} rows are due now");
            }
        }
        Verb::Partitions { json } => partitions(operations, json).await?,
    }
    Ok(0)
}

/// Shows the row an operator acted on, where that was asked for.
async fn after(operations: &Operations, act: &Act) -> Result<(), Failure> {
    if act.json || act.dry_run { print_row(&operations.row(act.id).await?, act.json) } else { Ok(()) }
}

async fn list(operations: &Operations, mut filter: RowFilter, limit: u32, json: bool) -> Result<(), Failure> {
    let mut left = limit;
    while left > 0 {
        let page = operations.rows(&filter, left).await?;
        for row in &page.rows {
            print_row(row, json)?;
        }
        left = left.saturating_sub(page.rows.len() as u32);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    Ok(())
}

fn print_row(row: &RowView, json: bool) -> Result<(), Failure> {
    if json {
        return line(&row_document(row).to_string());
    }
    let due = row.next_attempt_at.map(|at| format!(", due {}", rfc3339(at))).unwrap_or_default();
    let why = row.last_failure_reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    line(&format!(
        "{:>8} {:<9} {} {} partition {} attempts {}{due}{why}",
        row.id,
        row.status.as_str(),
        row.kind,
        row.key,
        row.partition,
        row.retry_count
    ))
}

fn print_why(standing: &Standing, now: Timestamp, json: bool) -> Result<(), Failure> {
    if json {
        return line(&standing_document(standing, now).to_string());
    }
    let Standing { row, head, owner, epoch, deaths, sent_to, .. } = standing;
    line(standing.verdict(now))?;
    print_row(row, false)?;
    match (sent_to, head) {
        (Some(place), _) => line(&format!("it left: {} {}/{}", place.topic, place.partition, place.offset))?,
        (None, Some(head)) => {
            line("it waits behind an earlier event of its order:")?;
            print_row(head, false)?;
        }
        (None, None) => {}
    }
    let owner = owner.as_ref().map_or("nobody".to_owned(), ToString::to_string);
    line(&format!(
        "its partition {} is owned by {owner}, epoch {epoch}; its claimer died {deaths} times",
        row.partition
    ))
}

async fn partitions(operations: &Operations, json: bool) -> Result<(), Failure> {
    for view in operations.partitions().await? {
        if json {
            line(&partition_document(view).to_string())?;
        } else {
            let owner = view.owner.as_ref().map_or("nobody".to_owned(), ToString::to_string);
            line(&format!(
                "{:>4} {owner} epoch {} counter {} depth {}",
                view.partition, view.epoch, view.counter, view.depth
            ))?;
        }
    }
    Ok(())
}
