//! Reloader: reads the configuration again at SIGHUP, and applies what may change while the service runs.
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::PathBuf;

use posthaste::config::masked_settings;
use posthaste::{ConfigErrors, Environment, Service};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::failure::Failure;

/// Prefix of the keys that are applied without a restart.
const RELOADABLE_PREFIX: &str = "rate_limit.";

/// Re-reads the configuration at SIGHUP, and keeps the effective settings.
pub(crate) struct Reloader {
    file: Option<PathBuf>,
    environment: Environment,
    effective: BTreeMap<String, String>,
    hangup: Signal,
}

impl Reloader {
    /// Installs the handler of SIGHUP, whose default action ends the process. The settings at this time are the effective ones.
    pub(crate) fn listen(file: Option<PathBuf>, environment: Environment) -> Result<Self, Failure> {
        let effective = settings(file.as_ref(), &environment)?;
        Ok(Self { file, environment, effective, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for the next SIGHUP. Cancel-safe: a signal that arrives between two calls is not lost.
    pub(crate) async fn requested(reloader: &mut Option<Self>) {
        match reloader {
            Some(reloader) => drop(reloader.hangup.recv().await),
            None => pending().await,
        }
    }

    /// Reads all layers again. A configuration with an error changes nothing.
    pub(crate) fn reload(&mut self, service: &Service) {
        let read = posthaste::check_config(self.file.as_deref(), &self.environment)
            .into_valid()
            .and_then(|config| Ok((config, settings(self.file.as_ref(), &self.environment)?)));
        let (config, settings) = match read {
            Ok(read) => read,
            Err(errors) => {
                tracing::error!(
                    event = "configuration_rejected", error = %errors,
                    "the configuration has mistakes: the settings stay as they were"
                );
                return;
            }
        };
        service.apply(&config);
        let (applied, restart_needed): (Vec<String>, Vec<String>) =
            changed(&self.effective, &settings).into_iter().partition(|key| key.starts_with(RELOADABLE_PREFIX));
        self.effective.retain(|key, _| !key.starts_with(RELOADABLE_PREFIX));
        self.effective.extend(settings.into_iter().filter(|(key, _)| key.starts_with(RELOADABLE_PREFIX)));
        tracing::info!(
            event = "configuration_reloaded",
            applied = applied.join(","),
            restart_needed = restart_needed.join(","),
            "the configuration was read again"
        );
    }
}

/// Every setting with its text. Secrets are masked, so a changed secret does not count as changed.
fn settings(file: Option<&PathBuf>, environment: &Environment) -> Result<BTreeMap<String, String>, ConfigErrors> {
    let settings = masked_settings(file.map(PathBuf::as_path), environment)?;
    Ok(settings.into_iter().map(|setting| (setting.key, setting.value)).collect())
}

/// The keys whose texts differ, and those that only one of the two has: a removed section is in the previous settings only.
fn changed(previous: &BTreeMap<String, String>, current: &BTreeMap<String, String>) -> BTreeSet<String> {
    previous.keys().chain(current.keys()).filter(|key| previous.get(*key) != current.get(*key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_removed_section_count_as_changed() {
        let settings =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect();
        let previous = settings(&[("a", "1"), ("b", "1"), ("topics.x.consumers", "2")]);
        let current = settings(&[("a", "1"), ("b", "2"), ("topics.y.consumers", "2")]);

        assert_eq!(
            changed(&previous, &current),
            ["b", "topics.x.consumers", "topics.y.consumers"].map(String::from).into()
        );
    }
}
