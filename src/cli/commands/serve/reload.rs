//! Reloader: reads the configuration again at SIGHUP, and applies what may change while the service runs.
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::PathBuf;

use posthaste::config::masked;
use posthaste::{ConfigErrors, Environment, Service};
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
        let (applied, restart_needed): (Vec<String>, Vec<String>) =
            changed(&self.in_force, &settings).into_iter().partition(|key| key.starts_with(APPLIED));
        self.in_force.retain(|key, _| !key.starts_with(APPLIED));
        self.in_force.extend(settings.into_iter().filter(|(key, _)| key.starts_with(APPLIED)));
        tracing::info!(
            event = "configuration_reloaded",
            applied = applied.join(","),
            restart_needed = restart_needed.join(","),
            "the configuration was read again"
        );
    }
}

/// Every setting with its text; the texts of secrets are masked, so that a changed secret is not noticed.
fn settings(file: Option<&PathBuf>, environment: &Environment) -> Result<BTreeMap<String, String>, ConfigErrors> {
    let rows = masked(file.map(PathBuf::as_path), environment)?;
    Ok(rows.into_iter().map(|(key, text, _)| (key, text)).collect())
}

/// The keys whose texts differ, in either direction: the keys of a removed section are in the former settings only.
fn changed(former: &BTreeMap<String, String>, present: &BTreeMap<String, String>) -> BTreeSet<String> {
    former.keys().chain(present.keys()).filter(|key| former.get(*key) != present.get(*key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_removed_section_count_as_changed() {
        let settings =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect();
        let former = settings(&[("a", "1"), ("b", "1"), ("topics.x.consumers", "2")]);
        let present = settings(&[("a", "1"), ("b", "2"), ("topics.y.consumers", "2")]);

        assert_eq!(
            changed(&former, &present),
            ["b", "topics.x.consumers", "topics.y.consumers"].map(String::from).into()
        );
    }
}
