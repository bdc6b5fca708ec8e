//! The settings of the consumer: which handlers the events of each type have.
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use app::consume::chain::PoisonMessageAction;
use domain::EventType;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use ureq::http::Uri;

/// The handler of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrimaryKind {
    Record,
    Post,
}

/// The handler of events that the first one did not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FallbackKind {
    None,
    Record,
    Post,
}

/// Maps have an entry for each event type: `config/default.toml` names them all.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerSettings {
    pub count: u32,
    /// One for each retry topic.
    pub retry_delays: [Duration; outbox::topics::RETRY_DELAYS.len()],
    pub handler: HashMap<String, PrimaryKind>,
    pub url: HashMap<String, SecretString>,
    pub attempts_max: HashMap<String, u32>,
    pub fallback: HashMap<String, FallbackKind>,
    pub fallback_url: HashMap<String, SecretString>,
    pub poison: HashMap<String, PoisonMessageAction>,
    pub post: PostSettings,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostSettings {
    pub timeout: Duration,
    pub ca_file: Option<PathBuf>,
}

impl ConsumerSettings {
    /// Whether the events of any type are sent to a URL.
    pub fn posts(&self) -> bool {
        let primary = self.handler.values().any(|kind| *kind == PrimaryKind::Post);
        primary || self.fallback.values().any(|kind| *kind == FallbackKind::Post)
    }

    /// Each URL with its key, and the key and whether its handler uses it.
    pub(super) fn urls(&self) -> impl Iterator<Item = (String, &SecretString, String, bool)> {
        EventType::ALL.into_iter().map(EventType::as_str).flat_map(|event_type| {
            let (primary, fallback) =
                (self.handler[event_type] == PrimaryKind::Post, self.fallback[event_type] == FallbackKind::Post);
            [
                (
                    format!("consumer.url.{event_type}"),
                    &self.url[event_type],
                    format!("consumer.handler.{event_type}"),
                    primary,
                ),
                (
                    format!("consumer.fallback_url.{event_type}"),
                    &self.fallback_url[event_type],
                    format!("consumer.fallback.{event_type}"),
                    fallback,
                ),
            ]
        })
    }
}

/// Parses a URL that receives events.
///
/// # Errors
/// The accepted form, as the end of a sentence with "must be". It never contains the URL, which may be secret.
pub fn endpoint_url(text: &SecretString) -> Result<Uri, &'static str> {
    const FORM: &str = "an http or https URL such as https://host/path, without user name and password";
    let url: Uri = text.expose_secret().parse().map_err(|_| FORM)?;
    let legal = endpoints::is_endpoint_url(&url, &["http", "https"]);
    if legal { Ok(url) } else { Err(FORM) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_urls_are_absolute_and_without_credentials() {
        let legal =
            ["http://localhost:8080", "https://example.org/hook?token=x", "http://[::1]:1/", "HTTPS://EXAMPLE.ORG"];
        let refused = [
            "",
            "example.org/hook",
            "/hook",
            "ftp://example.org",
            "https://",
            "https://u:p@example.org/",
            "http://a b/",
            "x",
        ];

        for url in legal {
            assert!(endpoint_url(&url.into()).is_ok(), "{url}");
        }
        for url in refused {
            assert!(endpoint_url(&url.into()).is_err(), "{url}");
        }
    }
}
