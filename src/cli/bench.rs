//! `bench`: measures the program with the scenarios and durations of the arguments.
use std::path::Path;
use std::time::Duration;

use bench::{Plan, Scenario};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use posthaste::Environment;

use super::configured_program::ConfiguredProgram;
use super::failure::Failure;
use super::output::format::OutputArguments;
use super::runtime::block_on;
use super::value_parsers::at_least_one_second;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchScenario {
    /// Creates orders over HTTP; each client sends the next request after a response.
    Create,
    /// Drains waiting events through the relay, and compares that with the store's statements alone.
    Relay,
    /// Latency from commit to broker and consumer, idle and at half of the highest rate.
    EndToEnd,
    /// Latency from commit to acknowledgement and settlement at the rates of --rate, as exact percentiles.
    Latency,
    /// Cost of claims and latency at --rate while another transaction stays open on PostgreSQL, beside runs without one.
    Held,
    /// Cost of a claim beside --events rows that are not due, beside claims without them, with the store's statements alone.
    Waiting,
    /// Events per second of posthaste.publish with 4 and 64 connections, beside plain INSERTs, and a bulk of 100,000 keys, on PostgreSQL.
    Publish,
    /// Compares latency before, during and after a load of 32 times as many clients, which create and list orders.
    Overload,
    /// Drains in turns with another relay, the command of --peer; without one, prints the line that a peer is run with.
    Peers,
    /// All of them but `peers`, one after the other.
    All,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The measurement to make.
    #[arg(default_value = "all")]
    scenario: BenchScenario,
    /// Clients that each send a request after the response to their last one.
    #[arg(long, default_value_t = 64, value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_535))]
    clients: usize,
    /// Duration of the load in each round; at least a second.
    #[arg(long, default_value = "4s", value_parser = at_least_one_second)]
    time: Duration,
    /// Rounds of each comparison, in turns; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Waiting events that the relay drains in each round.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    events: u64,
    /// Orders that these events belong to.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// Orders per second of `latency`; several are measured in turns.
    #[arg(long = "rate", value_name = "RATE", default_values_t = [500, 2_000, 3_000], value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// Shell command of `peers`. Its environment has the services, a database of its own and the load: DSN, BROKERS, N, P, BATCH, RATE,
    /// SECONDS, and the variables of psql.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

impl Arguments {
    fn plan(&self) -> Plan {
        let scenario = match self.scenario {
            BenchScenario::Create => Some(Scenario::Create),
            BenchScenario::Relay => Some(Scenario::Relay),
            BenchScenario::EndToEnd => Some(Scenario::EndToEnd),
            BenchScenario::Latency => Some(Scenario::Latency),
            BenchScenario::Held => Some(Scenario::Held),
            BenchScenario::Waiting => Some(Scenario::Waiting),
            BenchScenario::Publish => Some(Scenario::Publish),
            BenchScenario::Overload => Some(Scenario::Overload),
            BenchScenario::Peers => Some(Scenario::Peers),
            BenchScenario::All => None,
        };
        let &Self { clients, time, rounds, events, keys, output, .. } = self;
        Plan {
            scenario,
            clients,
            time,
            rounds,
            events,
            keys,
            rates: self.rates.clone(),
            peer: self.peer.clone(),
            format: output.format().into(),
        }
    }
}

/// Measures this program on throwaway data; the configured data are not touched.
pub(crate) fn bench(file: Option<&Path>, environment: &Environment, arguments: &Arguments) -> Result<u8, Failure> {
    let program = ConfiguredProgram::load(file, environment)?;
    if !program.has_broker() {
        return Err(Failure::new("there is nothing to measure without a broker: set broker.kind"));
    }
    unless_output_closed(block_on(bench::run(&program, &arguments.plan())))?;
    Ok(0)
}

/// The result of a run; `None` where it ended because the reader of its figures has closed the pipe.
pub(super) fn unless_output_closed<T>(result: Result<T, bench::Error>) -> Result<Option<T>, Failure> {
    match result {
        Err(error) if error.is_output_closed() => Ok(None),
        result => result.map(Some).map_err(Failure::new),
    }
}
