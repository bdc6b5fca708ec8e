//! Reads the configuration: layers, then rules for single values, then types, then agreement between values.
use std::fmt::Display;
use std::path::Path;

use super::layers::{self, ConfigErrors, Environment, Settings};
use super::sections::Config;
use super::{cross_key_rules, rules};

/// A configuration and its errors. Each value that cannot be used is replaced by its default.
pub struct ConfigDraft {
    pub config: Config,
    pub errors: ConfigErrors,
}

impl ConfigDraft {
    /// Adds an error, unless a known one already begins with this prefix.
    pub fn add_error(&mut self, key_prefix: &str, error: impl Display) {
        let ConfigErrors(known) = &mut self.errors;
        if !known.iter().any(|known| known.starts_with(key_prefix)) {
            known.push(error.to_string());
        }
    }

    /// The configuration, if it has no error.
    ///
    /// # Errors
    /// The errors that it has, and those added.
    pub fn into_valid(self) -> Result<Config, ConfigErrors> {
        if self.errors.0.is_empty() { Ok(self.config) } else { Err(self.errors) }
    }
}

impl Config {
    /// Reads all layers and checks every value.
    ///
    /// # Errors
    /// All errors, each with its key, its value unless that is secret, the layer that set it, and the accepted values.
    pub fn load(file: Option<&Path>, environment: &Environment) -> Result<Config, ConfigErrors> {
        Self::draft(file, environment).into_valid()
    }

    /// As [`Config::load`], for a caller that has further checks.
    pub fn draft(file: Option<&Path>, environment: &Environment) -> ConfigDraft {
        parse(layers::load(file, environment))
    }

    /// The configuration without a file and without environment variables.
    pub fn defaults() -> Config {
        Config::load(None, &Environment::default()).expect("config/default.toml is tested")
    }

    /// The id of this instance: `instance.id`, or host name and listening port.
    pub fn instance_id(&self, port: u16) -> String {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.instance.id.clone().unwrap_or_else(|| format!("{}:{port}", host()))
    }

    /// The topic of order events, prefix included.
    pub fn topic(&self) -> String {
        format!("{}order.events", self.broker.topic_prefix)
    }
}

/// Deserialising stops at the first value that does not fit. Each such value is reported and replaced by its default until everything
/// fits, so that one run finds all errors.
pub(super) fn parse(mut settings: Settings) -> ConfigDraft {
    rules::check(&mut settings);
    let config: Config = loop {
        match serde_path_to_error::deserialize(settings.tree()) {
            Ok(config) => break config,
            Err(mismatch) => {
                settings.refuse(&mismatch.path().to_string(), &accepted(&mismatch.inner().to_string()));
            }
        }
    };
    settings.errors.extend(cross_key_rules::errors(&config));
    ConfigDraft { config, errors: ConfigErrors(settings.errors) }
}

/// The accepted values, from serde's "unknown variant `x`, expected one of `a`, `b`" or from a message that is nothing else.
fn accepted(message: &str) -> String {
    message.rsplit_once("expected ").map_or(message, |(_, accepted)| accepted).replace('`', "")
}
