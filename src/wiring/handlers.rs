//! Builds the chain of handlers of each event type.
use std::sync::Arc;

use app::consume::chain::HandlerChain;
use app::consume::event_handler::{EventHandler, RecordOnly};
use app::consume::handlers::Handlers;
use app::consume::post_handler::PostToEndpoint;
use domain::EventType;
use endpoints::HttpEndpoint;
use secrecy::SecretString;

use super::start_error::StartError;
use crate::config::{Config, ConsumerSettings, FallbackKind, PrimaryKind, endpoint_url};

/// The chain of each event type as the configuration describes it.
///
/// # Errors
/// A URL is unusable; a configuration that was loaded has none.
pub(super) fn open(config: &Config) -> Result<Handlers, StartError> {
    EventType::ALL.into_iter().try_fold(Handlers::default(), |handlers, kind| {
        Ok(handlers.with(kind, chain(&config.consumer, kind.as_str())?))
    })
}

fn chain(settings: &ConsumerSettings, kind: &str) -> Result<HandlerChain, StartError> {
    let post = |url: &SecretString| -> Result<Arc<dyn EventHandler>, StartError> {
        let url = endpoint_url(url).map_err(|form| StartError::Config(format!("the URL of {kind} must be {form}")))?;
        let options = endpoints::Options { timeout: settings.post.timeout, ..endpoints::Options::new(url) };
        Ok(Arc::new(PostToEndpoint::new(Arc::new(HttpEndpoint::new(options)))))
    };
    let primary: Arc<dyn EventHandler> = match settings.handler[kind] {
        PrimaryKind::Record => Arc::new(RecordOnly),
        PrimaryKind::Post => post(&settings.url[kind])?,
    };
    let chain = HandlerChain::of(primary).attempts(settings.attempts_max[kind]).poison(settings.poison[kind]);
    Ok(match settings.fallback[kind] {
        FallbackKind::None => chain,
        FallbackKind::Record => chain.fallback(Arc::new(RecordOnly)),
        FallbackKind::Post => chain.fallback(post(&settings.fallback_url[kind])?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_time_limit_equals_that_of_the_adapter() {
        let options = endpoints::Options::new("http://localhost".parse().expect("a URL"));

        assert_eq!(Config::defaults().consumer.post.timeout, options.timeout);
    }
}
