//! The parameters of a run, and the values that all scenarios share.
use std::time::Duration;

use crate::report::{ReportFormat, Reporter};

/// The scenarios of a run, and their parameters.
pub struct Plan {
    /// `None` measures every scenario.
    pub scenario: Option<Scenario>,
    /// Clients that each send a request after the response to their last one.
    pub clients: usize,
    /// Duration of the load in each round.
    pub time: Duration,
    /// Rounds of each comparison; the median counts.
    pub rounds: u32,
    /// Events that the relay drains in each round.
    pub events: u64,
    /// Orders that these events belong to.
    pub keys: u64,
    /// Orders per second of each latency measurement.
    pub rates: Vec<u32>,
    /// Shell command that runs another relay, for comparison.
    pub peer: Option<String>,
    /// The format of the report.
    pub format: ReportFormat,
}

/// A measurement by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Orders over HTTP as fast as they are answered.
    Create,
    /// Waiting events drained by the relay.
    Relay,
    /// Latency from commit to acknowledgement and consumption.
    EndToEnd,
    /// Latency from commit to acknowledgement and settlement at set rates.
    Latency,
    /// Claims and latency while another transaction stays open on PostgreSQL.
    Held,
    /// Claims while rows that are not due wait in the outbox.
    Waiting,
    /// The SQL function of writers compared with plain INSERTs.
    Publish,
    /// Another relay on the same services, in turns.
    Peers,
    /// Far more clients than the service can serve.
    Overload,
}

/// The program, the plan and the reporter, which every scenario uses.
pub(crate) struct Bench<'a, P> {
    pub program: &'a P,
    pub plan: &'a Plan,
    pub reporter: Reporter,
}
