//! `serve` and `relay`: run the service until a signal. The first signal drains it, the second exits at once with 130. SIGHUP reads the
//! configuration again.
mod parent;
mod reload;

use std::path::Path;
use std::time::Duration;

use posthaste::{Config, ConfigDraft, ConfigErrors, Environment, NO_TOKEN_KEY, Service, StartError};
use rustix::fs::fstat;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telemetry::logging::{self, Format};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::failure::Failure;
use super::super::output::print_message;
use super::super::runtime::block_on;
use super::token::{CallerClaims, DEVELOPMENT_SECRET, accepts_development_secret, mint};
pub(crate) use reload::Reloader;

/// Time after `shutdown.deadline` in which a stop may still end by itself.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Exit code after a signal.
pub(crate) const STOPPED: u8 = 0;
/// Exit code after a second signal.
const SECOND_SIGNAL: i32 = 130;
/// Exit code after the root supervisor escalated, a listener failed, or the instance id was lost.
const ROOT_ESCALATED: u8 = 70;
/// Validity of the token in the log-in link: a session lasts no longer.
const CONSOLE_TOKEN_TTL: Duration = Duration::from_secs(12 * 60 * 60);
/// Error of serve and relay when the development secret is configured without --dev.
const DEVELOPMENT_SECRET_REFUSED: &str = "auth.hs256_secret: this is the development secret, which is public; set a secret of your own, \
     for example\n  POSTHASTE__AUTH__HS256_SECRET=$(openssl rand -hex 32) posthaste serve\n\
     or accept the development secret on purpose: posthaste serve --dev";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Accept tokens signed with the development secret, which is the key if no other is configured. Never use it in production.
    #[arg(long)]
    pub dev: bool,
    /// Bring the store's schema up to date first.
    #[arg(long)]
    pub migrate: bool,
    /// Print no link that logs in to the console: for programs that start the service, such as `bench`.
    #[arg(long, hide = true)]
    pub no_login_link: bool,
    /// Id of the process that started the service: end with it. For programs that start the service, such as `chaos`.
    #[arg(long, hide = true, value_name = "PID")]
    pub end_with_parent: Option<u32>,
}

pub(crate) fn serve(file: Option<&Path>, environment: &Environment, arguments: &Arguments) -> Result<u8, Failure> {
    run_configured(load(file, environment, arguments.dev)?, file, environment, arguments)
}

/// `relay`: as `serve`, with `orders.enabled = false`.
pub(crate) fn relay(file: Option<&Path>, environment: &Environment, arguments: &Arguments) -> Result<u8, Failure> {
    let mut config = load(file, environment, arguments.dev)?;
    config.orders.enabled = false;
    run_configured(config, file, environment, arguments)
}

fn run_configured(
    mut config: Config,
    file: Option<&Path>,
    environment: &Environment,
    arguments: &Arguments,
) -> Result<u8, Failure> {
    arguments.end_with_parent.map_or(Ok(()), parent::end_with_parent)?;
    let format = config.log.format.unwrap_or_else(Format::for_stdout);
    let _log = logging::init(format, &config.log.level, &config.region.id).map_err(Failure::new)?;
    raise_open_file_limit();
    config.store.migrate |= arguments.migrate;
    let console_token = if arguments.no_login_link { None } else { console_token(&config, format)? };
    if accepts_development_secret(&config) {
        tracing::warn!(
            event = "development_secret",
            "tokens signed with the development secret are accepted: never do this in production"
        );
    }
    block_on(async move {
        let signals = Signals::listen()?;
        let reloader = Reloader::listen(file.map(Path::to_path_buf), environment.clone())?;
        let Some((service, signals)) =
            start(config, signals).await.map_err(|error| log_start_failure(error, format))?
        else {
            return Ok(STOPPED);
        };
        if let Some(token) = console_token {
            print_message(format_args!(
                "posthaste: log in to the console: {}/login#token={token}",
                service.console_url()
            ));
        }
        run(service, signals, Some(reloader)).await
    })
}

/// Starts the service; `None` if a signal came before it had started.
pub(crate) async fn start(config: Config, signals: Signals) -> Result<Option<(Service, Signals)>, StartError> {
    let stop_deadline = config.shutdown.deadline;
    let mut signals = Some(signals);
    let stop = async {
        if let Some(signals) = &mut signals {
            signals.next().await;
        }
        // The runtime waits for calls that block, such as the resolution of a name.
        if let Some(signals) = signals.take() {
            spawn_exit_watchdog(stop_deadline + STOP_GRACE, signals, STOPPED);
        }
    };
    let service = posthaste::start_unless_stopped(config, stop).await?;
    Ok(service.zip(signals))
}

/// The token of the link that logs a developer in to the console. `None` unless the service accepts the public development secret, and where
/// stderr is part of a log in JSON.
fn console_token(config: &Config, format: Format) -> Result<Option<String>, Failure> {
    if !accepts_development_secret(config) || (format == Format::Json && shares_output_file()) {
        return Ok(None);
    }
    let claims = CallerClaims {
        sub: "operator".to_owned(),
        roles: vec!["ADMIN".to_owned()],
        tier: None,
        ttl: CONSOLE_TOKEN_TTL,
    };
    mint(config, DEVELOPMENT_SECRET, &claims).map(Some)
}

/// Loads the configuration of a service, which needs a key. All errors are reported together.
fn load(file: Option<&Path>, environment: &Environment, dev: bool) -> Result<Config, ConfigErrors> {
    let mut draft = posthaste::check_config(file, environment);
    let file_was_read = !file.is_some_and(|file| is_read_error(file, &draft.errors));
    choose_key(&mut draft, dev, file_was_read);
    draft.into_valid()
}

/// Whether the file could not be read: the only error that begins with the name of the file.
fn is_read_error(file: &Path, ConfigErrors(errors): &ConfigErrors) -> bool {
    let name = format!("{}: ", file.display());
    errors.iter().any(|error| error.starts_with(&name))
}

/// With `--dev`, the development secret is used where no key is configured; without, it is refused. A file that was not read may have a key.
fn choose_key(draft: &mut ConfigDraft, dev: bool, file_was_read: bool) {
    let auth = &mut draft.config.auth;
    match auth.source() {
        None if dev => auth.set_secret(DEVELOPMENT_SECRET),
        None if file_was_read => draft.add_error("auth.", NO_TOKEN_KEY),
        None => {}
        Some(_) if !dev && accepts_development_secret(&draft.config) => {
            draft.add_error("auth.hs256_secret:", DEVELOPMENT_SECRET_REFUSED)
        }
        Some(_) => {}
    }
}

/// Converts the error of a start. Logs it where stdout and stderr are different files, or where the log is JSON.
fn log_start_failure(error: StartError, format: Format) -> Failure {
    let destination = start_failure_destination(format, shares_output_file());
    if destination != StartFailureDestination::Stderr {
        tracing::error!(event = "start_failed", error = %error, exit_code = error.exit_code(), "the service could not start: {error}");
    }
    Failure { is_printed: destination == StartFailureDestination::Log, ..Failure::from(error) }
}

/// Where the failure of a start is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartFailureDestination {
    Log,
    Stderr,
    Both,
}

/// Where stdout and stderr are one file, such as a terminal, the failure is written to it once, in the format of the log.
fn start_failure_destination(format: Format, is_same_file: bool) -> StartFailureDestination {
    match (is_same_file, format) {
        (false, _) => StartFailureDestination::Both,
        (true, Format::Json) => StartFailureDestination::Log,
        (true, Format::Pretty) => StartFailureDestination::Stderr,
    }
}

/// Whether stdout and stderr are the same file; false where fstat fails.
fn shares_output_file() -> bool {
    let (Ok(out), Ok(err)) = (fstat(std::io::stdout()), fstat(std::io::stderr())) else { return false };
    (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)
}

/// Raises the limit of open files to the maximum: each connection needs one, and many shells grant 1,024.
fn raise_open_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(event = "open_files_not_raised", error = %error, "the limit of open files could not be raised");
    }
}

/// Waits for a signal or for the root supervisor to escalate, then drains the service. Meanwhile the configuration is read again at each
/// SIGHUP, where there is a reloader.
pub(crate) async fn run(service: Service, mut signals: Signals, mut reloader: Option<Reloader>) -> Result<u8, Failure> {
    let code = loop {
        tokio::select! {
            // Every branch only waits; dropping one loses nothing.
            () = signals.next() => break STOPPED,
            () = Reloader::requested(&mut reloader) => {
                if let Some(reloader) = &mut reloader {
                    reloader.reload(&service);
                }
            }
            reason = service.escalated() => {
                tracing::error!(event = "root_gave_up", reason, "the service gave up ({reason}); draining");
                break ROOT_ESCALATED;
            }
        }
    };
    stop(service, signals, code).await
}

/// Drains the service, and returns the code.
pub(crate) async fn stop(service: Service, signals: Signals, code: u8) -> Result<u8, Failure> {
    spawn_exit_watchdog(service.stop_deadline() + STOP_GRACE, signals, code);
    service.stop().await;
    Ok(code)
}

/// Starts a thread that exits the process at a second signal, or after the limit. A thread of its own, because a handler or a library call that
/// does not return may block the others. The exit is like a crash: the next start resolves open batches. `code` is the exit code of a stop in time.
fn spawn_exit_watchdog(limit: Duration, mut signals: Signals, code: u8) {
    let wait = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // Without a runtime (no file descriptor is left) the process ends when its stop has ended.
        let Ok(runtime) = runtime else { return };
        match runtime.block_on(async { tokio::time::timeout(limit, signals.next()).await }) {
            Ok(()) => std::process::exit(SECOND_SIGNAL),
            Err(_) => {
                tracing::error!(event = "stop_timed_out", "a thread does not end; the process ends without it");
                std::process::exit(late_stop_exit_code(code));
            }
        }
    };
    // The thread ends with the process.
    drop(std::thread::Builder::new().name("stop-limit".into()).spawn(wait));
}

/// The exit code of a stop that exceeds its limit; a failure before the stop keeps its own code.
fn late_stop_exit_code(code: u8) -> i32 {
    match code {
        STOPPED => 1,
        failed => failed.into(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_one_error() {
        let missing = Path::new("/no/such.toml");

        let ConfigErrors(errors) = load(Some(missing), &Environment::default(), false).expect_err("no file");
        let ConfigErrors(without_file) = load(None, &Environment::default(), false).expect_err("no key");

        assert!(errors.len() == 1 && errors[0].starts_with("/no/such.toml: "), "{errors:?}");
        assert_eq!(without_file, [NO_TOKEN_KEY]);
    }

    #[test]
    fn late_stop_is_a_failure_and_keeps_the_code_of_an_escalated_root() {
        assert_eq!(late_stop_exit_code(STOPPED), 1);
        assert_eq!(late_stop_exit_code(ROOT_ESCALATED), 70);
    }

    #[test]
    fn a_failed_start_is_written_once_to_each_file() {
        assert_eq!(start_failure_destination(Format::Json, false), StartFailureDestination::Both);
        assert_eq!(start_failure_destination(Format::Pretty, false), StartFailureDestination::Both);
        assert_eq!(start_failure_destination(Format::Json, true), StartFailureDestination::Log);
        assert_eq!(start_failure_destination(Format::Pretty, true), StartFailureDestination::Stderr);
    }
}
