//! Builds the chain of handlers of each event type.
pub(super) mod certificates;
mod configured_endpoints;
pub(super) mod topics;
pub(super) mod webhooks;

use std::sync::Arc;

use app::consume::chain::HandlerChain;
use app::consume::event_handler::{EventHandler, RecordOnly};
use app::consume::handlers::Handlers;
use app::consume::post_handler::PostToEndpoint;
use domain::EventType;
use secrecy::SecretString;

use self::configured_endpoints::ConfiguredEndpoints;
use super::start_error::StartError;
use crate::config::{Config, ConsumerSettings, FallbackKind, PrimaryKind};

/// The chain of each event type as the configuration describes it.
///
/// # Errors
/// The file of root certificates is unusable, or a URL; a configuration that was loaded has no such URL.
pub(super) fn open(config: &Config) -> Result<Handlers, StartError> {
    let endpoints = ConfiguredEndpoints::from_config(config)?;
    EventType::ALL.into_iter().try_fold(Handlers::default(), |handlers, event_type| {
        Ok(handlers.with(event_type, chain(&config.consumer, event_type.as_str(), &endpoints)?))
    })
}

/// Checks the file of root certificates. The URLs of a configuration that was loaded are legal.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    ConfiguredEndpoints::from_config(config).map(drop)
}

fn chain(
    settings: &ConsumerSettings,
    event_type: &str,
    endpoints: &ConfiguredEndpoints,
) -> Result<HandlerChain, StartError> {
    let post = |url: &SecretString| -> Result<Arc<dyn EventHandler>, StartError> {
        Ok(Arc::new(PostToEndpoint::new(Arc::new(endpoints.at(url, event_type)?))))
    };
    let primary: Arc<dyn EventHandler> = match settings.handler[event_type] {
        PrimaryKind::Record => Arc::new(RecordOnly),
        PrimaryKind::Post => post(&settings.url[event_type])?,
    };
    let chain =
        HandlerChain::new(primary).attempts(settings.attempts_max[event_type]).poison(settings.poison[event_type]);
    Ok(match settings.fallback[event_type] {
        FallbackKind::None => chain,
        FallbackKind::Record => chain.fallback(Arc::new(RecordOnly)),
        FallbackKind::Post => chain.fallback(post(&settings.fallback_url[event_type])?),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn file_of_roots_that_cannot_be_used_stops_the_start() {
        let start = |file: &Path| {
            let mut config = Config::defaults();
            config.consumer.post.ca_file = Some(file.to_owned());
            open(&config).map(drop).expect_err("refused").to_string()
        };
        let empty = tempfile::NamedTempFile::new().expect("a temporary file");

        assert!(start(Path::new("/no/such/file")).contains("consumer.post.ca_file: /no/such/file cannot be read"));
        assert!(start(empty.path()).contains("has no certificate"));
    }

    #[test]
    fn default_time_limit_equals_that_of_the_adapter() {
        let options = endpoints::Options::new("http://localhost".parse().expect("a URL"));

        assert_eq!(Config::defaults().consumer.post.timeout, options.timeout);
    }
}
