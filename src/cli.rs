//! The command line: noun, then verb. Data goes to stdout, messages to stderr.
mod actors;
mod bench;
mod client;
mod consent;
mod demo;
mod dlt;
mod doctor;
mod migrate;
mod outbox;
mod serve;
mod show;
mod token;
mod topic;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use posthaste::{Config, Environment};

/// A start or a command that failed.
pub(crate) const FAILED: u8 = 1;
/// The configuration is wrong.
pub(crate) const CONFIGURATION: u8 = 78;

/// An order service that never loses an event.
#[derive(Parser)]
#[command(name = "posthaste", version, about, max_term_width = 120)]
struct Arguments {
    /// Configuration file, laid over the defaults; the environment (POSTHASTE__SECTION__KEY) is laid over both.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service. Without configuration: embedded, in ./data.
    Serve(serve::Arguments),
    /// Start embedded, place orders, show every hop, stay up: the first minute.
    Demo(demo::Arguments),
    /// Bring the store's schema up to date, or say how it stands. The embedded store does so by itself.
    Migrate(migrate::Arguments),
    /// Find what is wrong: dependencies, configuration, partitions, waiting rows.
    Doctor(doctor::Arguments),
    /// Look into the outbox, explain, retry, park.
    #[command(subcommand)]
    Outbox(outbox::Verb),
    /// Look into the dead letters, send them back.
    #[command(subcommand)]
    Dlt(dlt::Verb),
    /// See the actors of a running service, kill one.
    #[command(subcommand)]
    Actors(actors::Verb),
    /// Look into the broker's topics, also beside a running service.
    #[command(subcommand)]
    Topic(topic::Verb),
    /// Measure: create, relay, end to end.
    Bench(bench::Arguments),
    /// Tokens for trying things.
    #[command(subcommand)]
    Token(token::Verb),
    /// The configuration as it is read.
    #[command(subcommand)]
    Config(show::ConfigVerb),
    /// The schemas of the events, for a registry and for consumers.
    #[command(subcommand)]
    Schema(show::SchemaVerb),
    /// Print the OpenAPI document.
    Openapi,
    /// Print a completion script for a shell, or the man pages.
    Completions(show::CompletionArguments),
}

/// What a command that failed says, and its exit code.
pub(crate) struct Failure {
    pub code: u8,
    pub message: String,
}

impl Failure {
    pub(crate) fn new(message: impl std::fmt::Display) -> Self {
        Self { code: FAILED, message: message.to_string() }
    }

    /// Of a question about one thing: what is not there is named.
    pub(crate) fn about(error: app::error::QueryError, what: impl std::fmt::Display) -> Self {
        match error {
            app::error::QueryError::NotFound => Self::new(format!("{what} was not found")),
            other => Self::new(other),
        }
    }
}

impl From<posthaste::Mistakes> for Failure {
    fn from(mistakes: posthaste::Mistakes) -> Self {
        let message = format!("the configuration has {} mistake(s):\n{mistakes}", mistakes.0.len());
        Self { code: CONFIGURATION, message }
    }
}

impl From<posthaste::StartError> for Failure {
    fn from(error: posthaste::StartError) -> Self {
        Self { code: error.exit_code(), message: error.to_string() }
    }
}

impl From<app::error::QueryError> for Failure {
    fn from(error: app::error::QueryError) -> Self {
        Self::new(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error)
    }
}

pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    match carry_out(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("posthaste: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn carry_out(arguments: Arguments) -> Result<u8, Failure> {
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
        Command::Config(verb) => show::config(file, &environment, &verb),
        Command::Schema(verb) => show::schema(&verb),
        Command::Openapi => show::openapi(),
        Command::Completions(arguments) => show::completions::<Arguments>(&arguments),
    }
}

/// Runs one asynchronous command to its end, on an actix system of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    actix_rt::System::new().block_on(work)
}

/// Prints a line of data; a reader that has gone away ends the command quietly.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let written = writeln!(std::io::stdout().lock(), "{text}");
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(Failure::new),
    }
}
