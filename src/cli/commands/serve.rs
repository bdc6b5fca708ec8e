//! `serve`: runs the service until a signal. The first signal drains it, the second exits at once with 130.
use posthaste::{Config, Service, StartError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telemetry::logging::{self, Format};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::failure::Failure;
use super::super::runtime::block_on;
use super::token::DEVELOPMENT_SECRET;

/// Exit code after a second signal.
const SECOND_SIGNAL: i32 = 130;
/// Exit code after the supervision tree gave up.
const ROOT_GAVE_UP: u8 = 70;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Accept tokens of the development secret if no key is configured. Never use it in production.
    #[arg(long)]
    pub dev: bool,
    /// Bring the store's schema up to date first.
    #[arg(long)]
    pub migrate: bool,
}

pub(crate) fn serve(mut config: Config, arguments: &Arguments) -> Result<u8, Failure> {
    let format = config.log.format.unwrap_or_else(Format::of_stdout);
    let _log = logging::init(format, &config.log.level, &config.region.id).map_err(Failure::new)?;
    raise_open_files();
    config.store.migrate |= arguments.migrate;
    if arguments.dev && config.auth.source().is_none() {
        tracing::warn!(
            event = "development_secret",
            "tokens of the development secret are accepted: never do this in production"
        );
        config.auth.set_secret(DEVELOPMENT_SECRET);
    }
    block_on(async move {
        let mut signals = Signals::listen()?;
        let service = tokio::select! {
            // Dropping an unfinished start is safe: it has not acknowledged any order yet.
            started = posthaste::start(config) => started.inspect_err(log_start_failure)?,
            () = signals.next() => return Ok(0),
        };
        run(service, signals).await
    })
}

/// Logs the reason for the exit, which also goes to stderr.
fn log_start_failure(error: &StartError) {
    tracing::error!(event = "start_failed", error = %error, exit_code = error.exit_code(), "the service could not start");
}

/// Raises the limit of open files to the maximum: each connection needs one, and many shells grant 1,024.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(event = "open_files_not_raised", error = %error, "the limit of open files could not be raised");
    }
}

/// Waits for a signal or for the supervision tree to give up, then drains the service.
pub(crate) async fn run(service: Service, mut signals: Signals) -> Result<u8, Failure> {
    let code = tokio::select! {
        // Both branches only wait; dropping either loses nothing.
        () = signals.next() => 0,
        reason = service.gave_up() => {
            tracing::error!(event = "root_gave_up", reason, "the supervision tree gave up; draining");
            ROOT_GAVE_UP
        }
    };
    actix_rt::spawn(async move {
        signals.next().await;
        std::process::exit(SECOND_SIGNAL);
    });
    service.stop().await;
    Ok(code)
}

/// The signals that stop the service: SIGTERM and SIGINT.
pub(crate) struct Signals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
