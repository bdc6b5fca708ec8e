//! HttpEndpoint: one URL that receives events by POST. It follows no redirect, and reads at most a limited part of a response.
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox::{FailureType, FaultClass};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use ports::endpoint::{EndpointError, EventEndpoint, EventRequest};
use ureq::config::ConfigBuilder;
use ureq::http::uri::Authority;
use ureq::http::{HeaderName, HeaderValue, Request, Uri};
use ureq::tls::TlsConfig;
use ureq::typestate::AgentScope;
use ureq::{Agent, Body};

use crate::outcome;
use crate::root_certificates::RootCertificates;

/// URL, limits and certificates of the calls to an endpoint.
#[derive(Clone, Debug)]
pub struct Options {
    /// Absolute URL with the scheme `http` or `https`.
    pub url: Uri,
    /// Limit of one call, from the resolution of the name to the end of the response.
    pub timeout: Duration,
    /// Most bytes of a response's body that are read. The content is ignored: a body that was read to its end lets the connection be
    /// used again.
    pub response_bytes_max: u64,
    /// Most idle connections that are kept for the next events.
    pub idle_connections_max: usize,
    /// The root certificates that are trusted; `None` means the public ones.
    pub roots: Option<RootCertificates>,
}

impl Options {
    /// The defaults for a URL: 5 s, 64 KiB, and 16 connections, as many as the consumer sends events at once.
    pub fn new(url: Uri) -> Self {
        Self {
            url,
            timeout: Duration::from_secs(5),
            response_bytes_max: RESPONSE_BYTES_MAX,
            idle_connections_max: 16,
            roots: None,
        }
    }
}

/// Most bytes of a response's body that are read by default.
pub(crate) const RESPONSE_BYTES_MAX: u64 = 64 * 1024;
/// How long an idle connection is kept: less than servers usually keep theirs, so that few events are sent on a connection that is being closed.
const IDLE_MAX: Duration = Duration::from_secs(3);
/// Most bytes of a response's header.
const RESPONSE_HEADER_BYTES_MAX: usize = 16 * 1024;

/// An endpoint of another system.
pub struct HttpEndpoint {
    agent: Agent,
    url: Uri,
    response_bytes_max: u64,
}

impl HttpEndpoint {
    /// An endpoint; connects with its first event.
    pub fn new(options: Options) -> Self {
        let Options { url, timeout, response_bytes_max, idle_connections_max, roots } = options;
        let mut config = client_config(timeout, idle_connections_max, roots);
        if is_loopback(&url) {
            config = config.proxy(None);
        }
        Self { agent: config.build().new_agent(), url, response_bytes_max }
    }

    fn host(&self) -> &str {
        host(&self.url)
    }
}

#[async_trait]
impl EventEndpoint for HttpEndpoint {
    async fn send(&self, event: EventRequest) -> Result<(), EndpointError> {
        let status = post(&self.agent, &self.url, event, self.response_bytes_max).await?;
        outcome::check_status(self.host(), status)
    }
}

/// The configuration of every client: it follows no redirect, and limits the header of a response.
pub(crate) fn client_config(
    timeout: Duration,
    idle_connections_max: usize,
    roots: Option<RootCertificates>,
) -> ConfigBuilder<AgentScope> {
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        // A redirect could lead to any host; the operator configures the final URL.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_response_header_size(RESPONSE_HEADER_BYTES_MAX)
        .max_idle_connections(idle_connections_max)
        .max_idle_connections_per_host(idle_connections_max)
        .max_idle_age(IDLE_MAX)
        .user_agent(concat!("posthaste/", env!("CARGO_PKG_VERSION")));
    match roots {
        Some(roots) => config.tls_config(TlsConfig::builder().root_certs(roots.into_roots()).build()),
        None => config,
    }
}

/// Sends an event and returns the status of the response, whatever it is.
///
/// # Errors
/// No response arrived in time, or the request cannot be written.
pub(crate) async fn post(agent: &Agent, url: &Uri, event: EventRequest, limit: u64) -> Result<u16, EndpointError> {
    let call_error = |error: &ureq::Error| outcome::transport_error(host(url), error);
    let request = request(url, event).map_err(|error| call_error(&error.into()))?;
    let agent = agent.clone();
    match tokio::task::spawn_blocking(move || exchange(&agent, request, limit)).await {
        Ok(result) => result.map_err(|error| call_error(&error)),
        Err(error) => Err(EndpointError {
            fault: FaultClass::Transient,
            failure_type: FailureType::System,
            reason: format!("the call of {} ended early: {error}", host(url)),
        }),
    }
}

/// The host for messages. The URL's path and query may be secret.
pub(crate) fn host(url: &Uri) -> &str {
    url.host().unwrap_or_default()
}

/// Whether a URL is absolute, has one of these schemes and a host, and no user name or password.
pub fn is_endpoint_url(url: &Uri, schemes: &[&str]) -> bool {
    let has_plain_host = |authority: &Authority| !authority.as_str().contains('@') && !authority.host().is_empty();
    url.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)) && url.authority().is_some_and(has_plain_host)
}

/// Sends the request and returns the status. Only the status decides: an error of the body changes nothing.
fn exchange(agent: &Agent, request: Request<Vec<u8>>, limit: u64) -> Result<u16, ureq::Error> {
    let mut response = agent.run(request)?;
    // A longer or broken body only costs the connection.
    let _ = read_body(response.body_mut(), limit);
    Ok(response.status().as_u16())
}

/// The body of a response, if it is not longer than the limit.
pub(crate) fn read_body(body: &mut Body, limit: u64) -> Result<Vec<u8>, ureq::Error> {
    body.with_config().limit(limit).read_to_vec()
}

fn request(url: &Uri, event: EventRequest) -> Result<Request<Vec<u8>>, ureq::http::Error> {
    let mut request = Request::post(url.clone());
    if let Some(headers) = request.headers_mut() {
        for (name, value) in event.attributes.iter().filter_map(http_header) {
            // Of several values of a name, the first is the one that the service reads too.
            headers.entry(name).or_insert(value);
        }
    }
    request.body(Vec::from(&*Arc::clone(&event.body)))
}

/// The ASCII characters that CloudEvents' HTTP binding encodes in the value of an attribute; characters that are not ASCII are encoded, too.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// A header of the record as CloudEvents' HTTP binding writes it: `ce_id` becomes `ce-id`, and the values of attributes are percent-encoded.
/// Headers of other purposes, and values that HTTP does not permit, are left out.
fn http_header((name, value): (&str, &[u8])) -> Option<(HeaderName, HeaderValue)> {
    let is_attribute = name.starts_with("ce_");
    let is_forwarded = is_attribute
        || ["content-type", "traceparent", "tracestate"].contains(&name)
        || (name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-")) && !is_proxy_header(name))
        || name.starts_with("webhook-");
    let name = is_forwarded.then(|| HeaderName::from_bytes(name.replace('_', "-").as_bytes()).ok())??;
    let encoded = is_attribute.then(|| percent_encode(value, ENCODED).to_string());
    Some((name, HeaderValue::from_bytes(encoded.as_deref().map_or(value, str::as_bytes)).ok()?))
}

/// Prefixes of the headers with which proxies describe a request, and with which they or a framework change it.
const PROXY_HEADER_PREFIXES: [&str; 5] = ["x-forwarded", "x-real-ip", "x-original-", "x-rewrite-", "x-http-method"];

/// Whether an endpoint may trust a header of this name as one of its own proxy. The writer of an event must not set it.
fn is_proxy_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    PROXY_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the host of a URL is this machine, which is called without a proxy.
pub(crate) fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
