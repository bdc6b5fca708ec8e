//! CollectorEndpoint: the URL at which an OpenTelemetry collector receives spans. It follows no redirect.
use std::time::Duration;

use ureq::http::{HeaderMap, Request, Uri};
use ureq::{Agent, Error};

use crate::http_endpoint::{RESPONSE_BYTES_MAX, client_config, host, is_loopback, read_body};
use crate::outcome;
use crate::root_certificates::RootCertificates;

/// URL, headers and certificates of the calls to a collector.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// Absolute URL that receives requests of OTLP over HTTP, such as `http://127.0.0.1:4318/v1/traces`.
    pub url: Uri,
    /// Headers of each request, which may be secret.
    pub headers: HeaderMap,
    /// The root certificates that are trusted; `None` means the public ones.
    pub roots: Option<RootCertificates>,
}

/// A collector of spans. One thread calls it.
pub struct CollectorEndpoint {
    agent: Agent,
    url: Uri,
    headers: HeaderMap,
}

impl CollectorEndpoint {
    /// A collector; connects with the first request.
    pub fn new(options: CollectorOptions) -> Self {
        let CollectorOptions { url, headers, roots } = options;
        // Each call has a time limit of its own, which replaces this one.
        let mut config = client_config(Duration::from_secs(5), 1, roots);
        if is_loopback(&url) {
            config = config.proxy(None);
        }
        Self { agent: config.build().new_agent(), url, headers }
    }

    /// Posts a request in JSON, and returns the status and the body of the response. Blocks for at most this time.
    ///
    /// # Errors
    /// No response arrived in time. The text names the host only: path and headers may be secret.
    pub fn post(&self, json: &[u8], timeout: Duration) -> Result<(u16, Vec<u8>), String> {
        self.exchange(json, timeout).map_err(|error| outcome::transport_error(host(&self.url), &error).reason)
    }

    fn exchange(&self, json: &[u8], timeout: Duration) -> Result<(u16, Vec<u8>), Error> {
        let mut request = Request::post(self.url.clone());
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
            headers.insert("content-type", ureq::http::HeaderValue::from_static("application/json"));
        }
        let request = self.agent.configure_request(request.body(json)?).timeout_global(Some(timeout)).build();
        let mut response = self.agent.run(request)?;
        // Only the status decides whether the spans were accepted; a body that is too long or broken only costs the connection.
        let text = read_body(response.body_mut(), RESPONSE_BYTES_MAX).unwrap_or_default();
        Ok((response.status().as_u16(), text))
    }
}
