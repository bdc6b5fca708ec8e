//! Endpoints at the URLs of the configuration, with the time limit and the root certificates of `[consumer.post]`.
use std::time::Duration;

use endpoints::{HttpEndpoint, RootCertificates};
use secrecy::SecretString;

use super::super::start_error::StartError;
use super::certificates::root_certificates;
use crate::config::{Config, endpoint_url};

/// The parts that the endpoints share.
pub(super) struct ConfiguredEndpoints {
    timeout: Duration,
    roots: Option<RootCertificates>,
}

impl ConfiguredEndpoints {
    /// # Errors
    /// The file of root certificates is unusable.
    pub(super) fn from_config(config: &Config) -> Result<Self, StartError> {
        let file = config.consumer.post.ca_file.as_deref();
        let roots = file.map(|file| root_certificates("consumer.post.ca_file", file)).transpose()?;
        Ok(Self { timeout: config.consumer.post.timeout, roots })
    }

    /// The endpoint at a URL. `source` is the event type or topic whose events it receives; the error names it.
    ///
    /// # Errors
    /// The URL is not legal; a configuration that was loaded has no such URL.
    pub(super) fn at(&self, url: &SecretString, source: &str) -> Result<HttpEndpoint, StartError> {
        let url =
            endpoint_url(url).map_err(|form| StartError::Config(format!("the URL of {source} must be {form}")))?;
        let (timeout, roots) = (self.timeout, self.roots.clone());
        Ok(HttpEndpoint::new(endpoints::Options { timeout, roots, ..endpoints::Options::new(url) }))
    }
}
