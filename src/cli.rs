//! The command line: noun, then verb. Data goes to stdout, messages go to stderr.
mod admin_client;
mod bench;
mod commands;
mod confirm;
mod failure;
mod operator;
mod output;
mod runtime;
mod value_parsers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use posthaste::{Config, Environment};

use commands::{actors, demo, dlt, doctor, documents, migrate, outbox, serve, token, topic};
use failure::Failure;

/// An order service that never loses an event.
#[derive(Parser)]
#[command(name = "posthaste", version, about, max_term_width = 120)]
struct Arguments {
    /// Configuration file. It overrides the defaults; the environment (POSTHASTE__SECTION__KEY) overrides both.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service. Without configuration: embedded store and broker, data in ./data.
    Serve(serve::Arguments),
    /// Start an embedded service, place orders and show how each event travels; then keep running.
    Demo(demo::Arguments),
    /// Bring the store's schema up to date, or show its state. The embedded store migrates itself at the start.
    Migrate(migrate::Arguments),
    /// Check the configuration, every dependency, partitions and waiting rows.
    Doctor(doctor::Arguments),
    /// List and explain outbox rows; retry, park or redrive them.
    #[command(subcommand)]
    Outbox(outbox::Verb),
    /// List dead letters and send them back to their topic.
    #[command(subcommand)]
    Dlt(dlt::Verb),
    /// Show the actors of a running service, or make one panic.
    #[command(subcommand)]
    Actors(actors::Verb),
    /// List and read the broker's topics, also while the service runs.
    #[command(subcommand)]
    Topic(topic::Verb),
    /// Measure creates, the relay and end-to-end latency.
    Bench(bench::Arguments),
    /// Mint tokens for trying things out.
    #[command(subcommand)]
    Token(token::Verb),
    /// Print the effective configuration or its schema.
    #[command(subcommand)]
    Config(documents::ConfigVerb),
    /// Print the schemas of the events, for a registry and for consumers.
    #[command(subcommand)]
    Schema(documents::SchemaVerb),
    /// Print the OpenAPI document.
    Openapi,
    /// Print a completion script for a shell, or the man pages.
    Completions(documents::CompletionArguments),
}

pub(crate) fn run() -> ExitCode {
    match execute(Arguments::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("posthaste: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn execute(arguments: Arguments) -> Result<u8, Failure> {
    let file = arguments.config.as_deref();
    let environment = Environment::of_process();
    let config = || Config::load(file, &environment);
    match arguments.command {
        Command::Serve(arguments) => serve::serve(config()?, &arguments),
        Command::Demo(arguments) => demo::demo(config()?, &arguments),
        Command::Migrate(arguments) => migrate::migrate(&config()?, &arguments),
        Command::Doctor(arguments) => doctor::doctor(file, &environment, &arguments),
        Command::Outbox(verb) => outbox::outbox(&config()?, verb),
        Command::Dlt(verb) => dlt::dlt(&config()?, verb),
        Command::Actors(verb) => actors::actors(&config()?, verb),
        Command::Topic(verb) => topic::topic(&config()?, verb),
        Command::Bench(arguments) => bench::bench(file, config()?, &arguments),
        Command::Token(verb) => token::token(&config()?, verb),
        Command::Config(verb) => documents::config(file, &environment, &verb),
        Command::Schema(verb) => documents::schema(&verb),
        Command::Openapi => documents::openapi(),
        Command::Completions(arguments) => documents::completions::<Arguments>(&arguments),
    }
}
