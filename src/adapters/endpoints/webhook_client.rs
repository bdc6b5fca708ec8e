//! HttpWebhookClient: posts events to the URLs of webhooks. It connects to permitted addresses only, uses no proxy and follows no redirect.
use std::time::Duration;

use async_trait::async_trait;
use outbox::{FailureType, Fault};
use ports::endpoint::{EndpointError, EventRequest, WebhookClient};
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::TlsConfig;
use ureq::unversioned::transport::DefaultConnector;

use crate::address_policy::{AddressPolicy, PermittedResolver};
use crate::http_endpoint::{client_config, exchange, request};
use crate::outcome;
use crate::root_certificates::RootCertificates;

/// How the endpoints of webhooks are called.
#[derive(Clone, Debug)]
pub struct WebhookClientOptions {
    /// Limit of one call, from the resolution of the name to the end of the response.
    pub timeout: Duration,
    /// Most bytes of a response's body that are read.
    pub response_bytes_max: u64,
    /// Most idle connections that are kept for all endpoints.
    pub idle_connections_max: usize,
    /// The addresses that may be called. Where private ones may, `http` URLs may be used as well.
    pub addresses: AddressPolicy,
    /// The roots that certificates are checked against; `None` means the public ones.
    pub roots: Option<RootCertificates>,
}

impl Default for WebhookClientOptions {
    /// 10 s, 64 KiB, 64 connections, public addresses.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            response_bytes_max: 64 * 1024,
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
        // A proxy would connect to addresses that the policy has not seen.
        let mut config = client_config(timeout, idle_connections_max).proxy(None);
        if let Some(roots) = roots {
            config = config.tls_config(TlsConfig::builder().root_certs(roots.into_roots()).build());
        }
        let agent = Agent::with_parts(config.build(), DefaultConnector::default(), PermittedResolver::new(addresses));
        Self { agent, addresses, response_bytes_max }
    }

    fn parse(&self, url: &str) -> Result<Uri, String> {
        let form = || match self.addresses {
            AddressPolicy::PublicOnly => {
                "must be an https URL such as https://host/path, without user name and password"
            }
            AddressPolicy::Any => {
                "must be an http or https URL such as https://host/path, without user name and password"
            }
        };
        let uri: Uri = url.parse().map_err(|_| form().to_owned())?;
        let schemes: &[&str] = match self.addresses {
            AddressPolicy::PublicOnly => &["https"],
            AddressPolicy::Any => &["https", "http"],
        };
        let legal = uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme))
            && uri
                .authority()
                .is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
        if legal { Ok(uri) } else { Err(form().to_owned()) }
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
            fault: Fault::Transient,
            failure_type: FailureType::Validation,
            reason: format!("the URL {reason}"),
        };
        let uri = self.parse(url).map_err(refused)?;
        let host = uri.host().unwrap_or_default().to_owned();
        let request = request(&uri, event).map_err(|error| outcome::transport(&host, &error.into()))?;
        let (agent, limit) = (self.agent.clone(), self.response_bytes_max);
        match tokio::task::spawn_blocking(move || exchange(&agent, request, limit)).await {
            Ok(result) => result.map_err(|error| outcome::transport(&host, &error)),
            Err(error) => Err(EndpointError {
                fault: Fault::Transient,
                failure_type: FailureType::System,
                reason: format!("the call of {host} ended early: {error}"),
            }),
        }
    }
}
