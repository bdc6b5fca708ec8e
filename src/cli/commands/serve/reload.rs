//! Reloader: reads the configuration again at SIGHUP, and applies what may change while the service runs.
use std::collections::BTreeMap;
use std::future::pending;
use std::path::PathBuf;

use posthaste::config::masked;
use posthaste::{Environment, Mistakes, Service};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::failure::Failure;

/// The settings that are applied without a restart.
const APPLIED: &str = "rate_limit.";

/// The layers of the configuration, and the settings that are in force.
pub(crate) struct Reloader {
    file: Option<PathBuf>,
    environment: Environment,
    in_force: BTreeMap<String, String>,
    hangup: Signal,
}

impl Reloader {
    /// Listens for SIGHUP from now on; until then it ends the process. The settings of now are those in force.
    pub(crate) fn listen(file: Option<PathBuf>, environment: Environment) -> Result<Self, Failure> {
        let in_force = settings(file.as_ref(), &environment)?;
        Ok(Self { file, environment, in_force, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for the next SIGHUP. Cancel-safe: a signal that arrives between two calls is not lost.
    pub(crate) async fn requested(reloader: &mut Option<Self>) {
        match reloader {
            Some(reloader) => drop(reloader.hangup.recv().await),
            None => pending().await,
        }
    }

    /// Reads all layers again. A configuration with a mistake changes nothing.
    pub(crate) fn reload(&mut self, service: &Service) {
        let read = posthaste::check_config(self.file.as_deref(), &self.environment)
            .into_valid()
            .and_then(|config| Ok((config, settings(self.file.as_ref(), &self.environment)?)));
        let (config, settings) = match read {
            Ok(read) => read,
            Err(mistakes) => {
                tracing::error!(
                    event = "configuration_rejected", error = %mistakes,
                    "the configuration has mistakes: the settings stay as they were"
                );
                return;
            }
        };
        service.apply(&config);
        let changed: Vec<String> = settings
            .iter()
            .filter(|(key, text)| self.in_force.get(*key) != Some(text))
            .map(|(key, _)| key.clone())
            .collect();
        let (applied, restart_needed): (Vec<String>, Vec<String>) =
            changed.into_iter().partition(|key| key.starts_with(APPLIED));
        for key in &applied {
            self.in_force.insert(key.clone(), settings[key].clone());
        }
        tracing::info!(
            event = "configuration_reloaded",
            applied = applied.join(","),
            restart_needed = restart_needed.join(","),
            "the configuration was read again"
        );
    }
}

/// Every setting with its text; the texts of secrets are masked, so that a changed secret is not noticed.
fn settings(file: Option<&PathBuf>, environment: &Environment) -> Result<BTreeMap<String, String>, Mistakes> {
    let rows = masked(file.map(PathBuf::as_path), environment)?;
    Ok(rows.into_iter().map(|(key, text, _)| (key, text)).collect())
}
