//! `chaos`: faults under load, on throwaway data of the configured store and broker.
use std::path::Path;
use std::time::Duration;

use bench::ChaosPlan;
use clap::builder::RangedU64ValueParser;
use posthaste::Environment;

use super::bench::unless_output_closed;
use super::configured_program::ConfiguredProgram;
use super::failure::Failure;
use super::output::format::OutputArguments;
use super::output::print_message;
use super::runtime::block_on;
use super::value_parsers::at_least_one_second;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Duration of the load and of the faults; at least a second.
    #[arg(long, default_value = "60s", value_parser = at_least_one_second)]
    time: Duration,
    /// Clients that each take one order after another through its life.
    #[arg(long, default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_024))]
    clients: usize,
    /// Processes of the service; more than one needs PostgreSQL or Redis as the store.
    #[arg(long, default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=16))]
    instances: usize,
    /// Mean time between two faults; at least a second.
    #[arg(long, default_value = "1s", value_parser = at_least_one_second)]
    interval: Duration,
    /// The same seed injects the same faults in the same order; a random one by default.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Runs this program on throwaway data, injects faults, and checks its guarantees; the configured data are not touched.
pub(crate) fn chaos(file: Option<&Path>, environment: &Environment, arguments: &Arguments) -> Result<u8, Failure> {
    let program = ConfiguredProgram::load(file, environment)?;
    if !program.has_broker() {
        return Err(Failure::new("nothing is published without a broker: set broker.kind"));
    }
    let &Arguments { time, clients, instances, interval, seed, output } = arguments;
    let seed = seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let plan = ChaosPlan { time, clients, instances, interval, seed, format: output.format().into() };
    let Some(holds) = unless_output_closed(block_on(bench::chaos(&program, &plan)))? else { return Ok(0) };
    if holds {
        print_message(format_args!("every guarantee held"));
    } else {
        print_message(format_args!("posthaste: a guarantee was broken; --seed {seed} injects the same faults again"));
    }
    Ok(u8::from(!holds))
}
