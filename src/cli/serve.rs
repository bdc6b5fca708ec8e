//! `serve`: the service until a signal. First signal drains, the second ends at once with 130.
use posthaste::config::AuthKey;
use posthaste::{Config, Service, StartError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telemetry::logging::{self, Format};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::token::DEVELOPMENT_SECRET;
use super::{Failure, block_on};

/// Exit code when a second signal ends the process at once.
const SECOND_SIGNAL: i32 = 130;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Accept tokens of the development secret where no key is configured. Never in production.
    #[arg(long)]
    pub dev: bool,
    /// Bring the store's schema up to date first.
    #[arg(long)]
    pub migrate: bool,
}

pub(crate) fn serve(mut config: Config, arguments: &Arguments) -> Result<u8, Failure> {
    let format = config.log_format.unwrap_or_else(Format::of_stdout);
    let _log = logging::init(format, &config.log_level).map_err(Failure::new)?;
    raise_open_files();
    config.store_migrate |= arguments.migrate;
    if arguments.dev {
        allow_development(&mut config);
    }
    block_on(async move {
        let mut signals = Signals::listen()?;
        let service = tokio::select! {
            // Dropping a start half way is safe: nothing was promised to anyone yet.
            started = posthaste::start(config) => started.inspect_err(told)?,
            () = signals.next() => return Ok(0),
        };
        run(service, signals).await
    })
}

/// Whoever collects the log finds there, too, why the process ended.
fn told(error: &StartError) {
    tracing::error!(event = "start_failed", error = %error, exit_code = error.exit_code(), "the service could not start");
}

/// As many open files as this process may have: a connection is one, and many shells grant 1,024.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(event = "open_files_not_raised", error = %error, "the limit of open files stays as it was");
    }
}

/// Uses the development secret where no key is configured.
pub(crate) fn allow_development(config: &mut Config) {
    if config.auth_key.is_none() {
        tracing::warn!(
            event = "development_secret",
            "tokens of the development secret are accepted: never do this in production"
        );
        config.auth_key = Some(AuthKey::Secret(DEVELOPMENT_SECRET.to_owned()));
    }
}

/// Waits for a signal or the root's surrender, then drains.
pub(crate) async fn run(service: Service, mut signals: Signals) -> Result<u8, Failure> {
    let code = tokio::select! {
        // Both branches only wait; neither loses anything when the other wins.
        () = signals.next() => 0,
        reason = service.gave_up() => {
            tracing::error!(event = "root_gave_up", reason, "the supervision tree gave up; draining");
            70
        }
    };
    // A second signal ends the process at once, whatever still drains.
    actix_rt::spawn(async move {
        signals.next().await;
        std::process::exit(SECOND_SIGNAL);
    });
    service.stop().await;
    Ok(code)
}

/// SIGTERM and SIGINT.
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
