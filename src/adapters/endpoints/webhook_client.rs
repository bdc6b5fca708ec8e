//! HttpWebhookClient: posts events to the URLs of webhooks. It connects to permitted addresses only, uses no proxy and follows no redirect.
use std::time::Duration;

use async_trait::async_trait;
use outbox::{FailureType, FaultClass};
use ports::endpoint::{EndpointError, EventRequest, WebhookClient};
use ureq::Agent;
use ureq::http::Uri;
use ureq::unversioned::transport::DefaultConnector;

use crate::address_policy::{AddressPolicy, PermittedResolver};
use crate::http_endpoint::{RESPONSE_BYTES_MAX, client_config, is_endpoint_url, post};
use crate::root_certificates::RootCertificates;

/// Limits and certificates of the calls to the endpoints of webhooks.
#[derive(Clone, Debug)]
pub struct WebhookClientOptions {
    /// Limit of one call, from the resolution of the name to the end of the response.
    pub timeout: Duration,
    /// Most bytes of a response's body that are read.
    pub response_bytes_max: u64,
    /// Most idle connections that are kept for all endpoints.
    pub idle_connections_max: usize,
    /// The addresses that may be called. If private ones may, `http` URLs may be used as well.
    pub addresses: AddressPolicy,
    /// The root certificates that are trusted; `None` means the public ones.
    pub roots: Option<RootCertificates>,
}

impl Default for WebhookClientOptions {
    /// 10 s, 64 KiB, 64 connections, public addresses.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            response_bytes_max: RESPONSE_BYTES_MAX,
            idle_connections_max: 64,
            addresses: AddressPolicy::PublicOnly,
            roots: None,
        }
    }
}

/// Calls the endpoints of all webhooks of a process.
pub struct HttpWebhookClient {
    agent: Agent,
    addresses: AddressPolicy,
    response_bytes_max: u64,
}

impl HttpWebhookClient {
    /// A client; connects with its first event.
    pub fn new(options: WebhookClientOptions) -> Self {
        let WebhookClientOptions { timeout, response_bytes_max, idle_connections_max, addresses, roots } = options;
        // A proxy would connect to addresses that the policy has not checked.
        let config = client_config(timeout, idle_connections_max, roots).proxy(None).build();
        let agent = Agent::with_parts(config, DefaultConnector::default(), PermittedResolver::new(addresses));
        Self { agent, addresses, response_bytes_max }
    }

    fn parse(&self, url: &str) -> Result<Uri, String> {
        let form = match self.addresses {
            AddressPolicy::PublicOnly => "an https URL",
            AddressPolicy::Any => "an http or https URL",
        };
        let uri: Option<Uri> = url.parse().ok().filter(|uri| is_endpoint_url(uri, &["https", "http"]));
        match uri {
            Some(uri) if self.addresses == AddressPolicy::Any || is_endpoint_url(&uri, &["https"]) => Ok(uri),
            Some(_) => Err(format!("must be {form}; webhooks.private_addresses permits http")),
            None => Err(format!("must be {form} such as https://host/path, without user name and password")),
        }
    }
}

#[async_trait]
impl WebhookClient for HttpWebhookClient {
    fn check_url(&self, url: &str) -> Result<(), String> {
        let uri = self.parse(url)?;
        self.addresses.check_literal(&uri)
    }

    async fn post(&self, url: &str, event: EventRequest) -> Result<u16, EndpointError> {
        let refused = |reason: String| EndpointError {
            fault: FaultClass::Transient,
            failure_type: FailureType::Validation,
            reason: format!("the URL {reason}"),
        };
        let uri = self.parse(url).map_err(refused)?;
        post(&self.agent, &uri, event, self.response_bytes_max).await
    }
}
