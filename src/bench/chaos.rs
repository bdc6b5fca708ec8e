//! `posthaste chaos`: the program on throwaway data, under load, while its actors and processes are killed and frozen at random; then the check
//! that each event of each order and of other services was published, once, in order.
mod clients;
mod event_clients;
mod faults;
mod instances;
mod progress;
mod remaining_rows;
mod retrying_connection;
mod sql_writers;
mod tasks;
mod verdict;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::Error;
use crate::program::{BrokerUse, Program, ThrowawayData};
use crate::report::{ReportFormat, Reporter};
use crate::store::throwaway::with_data;
use clients::OrderClients;
use event_clients::EventClients;
use instances::{Addresses, Instances};
use progress::Progress;
use remaining_rows::await_drained;
use sql_writers::SqlWriters;
use verdict::read_verdict;

/// Longest time after the last fault until all orders are finished and no row waits.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);
/// Clients that publish events of other services over HTTP, and as many writers that publish from SQL where the store is PostgreSQL.
const PUBLISHERS: usize = 3;

/// The parameters of one run.
pub struct ChaosPlan {
    /// Duration of the load and of the faults.
    pub time: Duration,
    /// Clients that each take one order after another through its life.
    pub clients: usize,
    /// Processes of the service on the same data.
    pub instances: usize,
    /// Mean time between two faults. Those of one instance follow each other, those of several overlap.
    pub interval: Duration,
    /// The same seed injects the same faults in the same order into each instance.
    pub seed: u64,
    /// The format of the report.
    pub format: ReportFormat,
}

/// Runs the plan and prints what was injected and found. Returns whether every guarantee held.
///
/// # Errors
/// Data cannot be created or removed, or the service does not start.
pub async fn chaos<P: Program>(program: &P, plan: &ChaosPlan) -> Result<bool, Error> {
    if plan.instances > 1 && program.settings()["store"] == "embedded" {
        return Err(Error::new("the embedded store has one instance: set store.kind to run several"));
    }
    Box::pin(with_data(program, BrokerUse::Configured, async |data| Box::pin(run(program, plan, data)).await)).await
}

async fn run<P: Program>(program: &P, plan: &ChaosPlan, data: &P::Data) -> Result<bool, Error> {
    let reporter = Reporter::new("chaos", plan.format);
    reporter.progress(&format!("seed {}, starting", plan.seed));
    let addresses = Addresses::default();
    let topic = data.topic_named("customers");
    let mut instances = Instances::start(data, plan.instances, addresses.clone(), topic.clone()).await?;
    let progress = Rc::new(RefCell::new(Progress::default()));
    let end = Instant::now() + plan.time;
    let clients = OrderClients::start(data, (plan.clients, plan.seed), addresses.clone(), Rc::clone(&progress), end)?;
    let publishers = (PUBLISHERS, plan.seed);
    let event_clients = EventClients::start(data, publishers, (&addresses, &topic), &progress, end)?;
    let writers = SqlWriters::start(data, publishers, &topic, &progress, end).await?;

    reporter.progress(&format!("seed {}, faults under load for {:?}", plan.seed, plan.time));
    let counts = instances.inject(plan.seed, plan.interval, end).await?;

    reporter.progress("recovery");
    instances.restart_exited().await?;
    let unfinished = clients.finish(RECOVERY_TIMEOUT).await?;
    // A batch of a client may wait for a writer.
    let unfinished_publishers =
        writers.finish(RECOVERY_TIMEOUT).await? + event_clients.finish(RECOVERY_TIMEOUT).await?;
    let operations = data.operations().await?;
    let remaining = await_drained(async || operations.depth().await, RECOVERY_TIMEOUT).await?;
    let slowest_start = instances.slowest_start();
    let unexpected_exits = instances.stop().await?;

    let progress = progress.take();
    let mut verdict = read_verdict(data, &topic, &progress).await?;
    let exactly_once = program.settings()["delivery"] == "exactly-once";
    verdict.parked = remaining.parked;
    verdict.waiting = remaining.waiting;
    verdict.unfinished_orders = unfinished as u64;
    verdict.unfinished_publishers = unfinished_publishers as u64;
    verdict.unexpected_exits = unexpected_exits;
    let violations = verdict.violations(exactly_once);
    reporter.report(
        "result",
        &json!({
            "seed": plan.seed, "seconds": plan.time.as_secs_f64(), "instances": plan.instances, "clients": plan.clients,
            "faults": counts.json(), "orders": progress.finished.len(),
            "foreign": {"http": progress.http.len(), "sql": progress.sql.len(), "rolledBack": progress.rolled_back.len()},
            "checked": verdict.json(),
            "longestWithoutAnswerMs": progress.longest_outage.as_millis() as u64,
            "slowestStartMs": slowest_start.as_millis() as u64, "violations": violations,
        }),
    )?;
    Ok(violations.is_empty())
}
