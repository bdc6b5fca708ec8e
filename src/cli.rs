//! The command line: noun, then verb. Data goes to stdout, messages go to stderr.
mod admin_client;
mod bench;
mod chaos;
mod commands;
mod configured_program;
mod confirm;
mod failure;
mod help;
mod operator;
mod output;
mod running_service;
mod runtime;
mod value_parsers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use posthaste::{Config, Environment};

use commands::{
    actors, adopt, audit, demo, dlt, doctor, documents, migrate, outbox, serve, token, top, topic, version, webhook,
};
use failure::Failure;
use output::print_message;

/// An order service that never loses an event.
#[derive(Parser)]
#[command(name = "posthaste", version, about, max_term_width = 120)]
pub(crate) struct CommandLine {
    /// Configuration file. It overrides the defaults; the environment (POSTHASTE__SECTION__KEY) overrides both.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the service. Without configuration: embedded store and broker, data in ./data.
    Serve(serve::Arguments),
    /// Relay the events that other services publish in the database, without the order API; runs as a sidecar.
    Relay(serve::Arguments),
    /// Start an embedded service, place orders and show how each event travels; then keep running.
    Demo(demo::Arguments),
    /// Bring the store's schema up to date, or show its state. The embedded store migrates itself at the start.
    Migrate(migrate::Arguments),
    /// Publish the rows that another service inserts into an outbox table of its own, such as one for Debezium.
    Adopt(adopt::Arguments),
    /// Check the configuration, every dependency, partitions and waiting rows.
    Doctor(doctor::Arguments),
    /// List and explain outbox rows; retry, park or redrive them.
    #[command(subcommand)]
    Outbox(outbox::OutboxCommand),
    /// List what operators did to outbox rows, newest first: who, when and why.
    Audit(audit::Arguments),
    /// List dead letters and send them back to their topic.
    #[command(subcommand)]
    Dlt(dlt::DltCommand),
    /// Show the actors of a running service, or make one panic.
    #[command(subcommand)]
    Actors(actors::ActorsCommand),
    /// Watch a running service: what is wrong, rates, latency, waiting rows, actors.
    Top(top::Arguments),
    /// List and read the broker's topics, also while the service runs.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Subscribe endpoints of other systems to topics, test them, and see what was delivered.
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// Measure creates, the relay and end-to-end latency.
    Bench(bench::Arguments),
    /// Kill and freeze this program under load, on throwaway data, and check that no event is lost, doubled or out of order.
    Chaos(chaos::Arguments),
    /// Mint tokens for trying things out.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Print the effective configuration or its schema.
    #[command(subcommand)]
    Config(documents::ConfigCommand),
    /// Print the schemas of the events, for a registry and for consumers.
    #[command(subcommand)]
    Schema(documents::SchemaCommand),
    /// Print the OpenAPI document.
    Openapi,
    /// Print a completion script for a shell, or the man pages.
    Completions(documents::CompletionArguments),
    /// Print the version, the commit and the features of this program.
    Version(version::Arguments),
}

pub(crate) fn run() -> ExitCode {
    match execute(parse()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.is_printed {
                print_message(format_args!("posthaste: {}", failure.message));
            }
            ExitCode::from(failure.code)
        }
    }
}

/// The arguments of this process. Ends the process with 2 where they are not valid, and with 0 after `--help` and `--version`.
fn parse() -> CommandLine {
    let matches = help::with_examples(CommandLine::command()).get_matches();
    CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn execute(arguments: CommandLine) -> Result<u8, Failure> {
    let file = arguments.config.as_deref();
    let environment = Environment::from_process()?;
    let config = || Config::load(file, &environment);
    match arguments.command {
        Command::Serve(arguments) => serve::serve(file, &environment, &arguments),
        Command::Relay(arguments) => serve::relay(file, &environment, &arguments),
        Command::Demo(arguments) => demo::demo(config()?, file, &arguments),
        Command::Migrate(arguments) => migrate::migrate(&config()?, &arguments),
        Command::Adopt(arguments) => adopt::adopt(&config()?, &arguments),
        Command::Doctor(arguments) => doctor::doctor(file, &environment, &arguments),
        Command::Outbox(command) => outbox::outbox(&config()?, command),
        Command::Audit(arguments) => audit::audit(&config()?, arguments),
        Command::Dlt(command) => dlt::dlt(&config()?, command),
        Command::Actors(command) => actors::actors(&config()?, command),
        Command::Top(arguments) => top::top(&config()?, &arguments),
        Command::Topic(command) => topic::topic(&config()?, command),
        Command::Webhook(command) => webhook::webhook(&config()?, command),
        Command::Bench(arguments) => bench::bench(file, &environment, &arguments),
        Command::Chaos(arguments) => chaos::chaos(file, &environment, &arguments),
        Command::Token(command) => token::token(&config()?, command),
        Command::Config(command) => documents::config(file, &environment, &command),
        Command::Schema(command) => documents::schema(&command),
        Command::Openapi => documents::openapi(),
        Command::Version(arguments) => version::version(&arguments),
        Command::Completions(arguments) => documents::completions::<CommandLine>(&arguments),
    }
}
