//! The settings of the traces, and the forms of the collector's URL and headers.
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Uri};

/// Path at which a collector takes spans over HTTP, below the endpoint.
const TRACES_PATH: &str = "/v1/traces";

/// How spans are sampled and exported.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracingSettings {
    /// Without an endpoint no span is recorded.
    pub endpoint: Option<String>,
    pub headers: SecretString,
    pub sample_ratio: f64,
    pub queue: usize,
    pub timeout: Duration,
    pub ca_file: Option<PathBuf>,
}

/// The URL that takes spans, from the endpoint of the collector.
///
/// # Errors
/// The accepted form, as the end of a sentence with "must be".
pub fn traces_url(endpoint: &str) -> Result<Uri, &'static str> {
    const FORM: &str =
        "an http or https URL such as http://127.0.0.1:4318, without user name, password, query and /v1/traces";
    let base = endpoint.trim_end_matches('/');
    let url: Uri = format!("{base}{TRACES_PATH}").parse().map_err(|_| FORM)?;
    let legal = endpoints::is_endpoint_url(&url, &["http", "https"]) && url.query().is_none();
    if legal && !base.ends_with(TRACES_PATH) { Ok(url) } else { Err(FORM) }
}

/// The headers of each request to the collector, from `name=value` pairs between commas.
///
/// # Errors
/// The accepted form, as the end of a sentence with "must be". It never contains the text, which is secret.
pub fn collector_headers(text: &str) -> Result<HeaderMap, &'static str> {
    const FORM: &str = "a list of headers such as authorization=Bearer token, separated by commas";
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(FORM)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| FORM)?;
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| FORM)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_traces_is_added_to_the_endpoint() {
        let legal = [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://collector.example/otlp/", "https://collector.example/otlp/v1/traces"),
        ];
        let refused = [
            "",
            "collector:4318",
            "grpc://collector:4317",
            "http://",
            "http://u:p@collector",
            "http://collector/v1/traces",
            "http://collector/v1/traces/",
            "http://collector?key=x",
        ];

        for (endpoint, url) in legal {
            assert_eq!(traces_url(endpoint).map(|url| url.to_string()).as_deref(), Ok(url));
        }
        for endpoint in refused {
            assert!(traces_url(endpoint).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn values_of_headers_are_hidden_in_debug_output() {
        let headers = collector_headers("authorization=Basic aGk=, x-tenant = one,").expect("two headers");

        assert_eq!(
            (headers.len(), &headers["authorization"], &headers["x-tenant"]),
            (2, &HeaderValue::from_static("Basic aGk="), &HeaderValue::from_static("one"))
        );
        assert!(!format!("{headers:?}").contains("aGk"), "{headers:?}");
        assert!(collector_headers("").is_ok_and(|headers| headers.is_empty()));
        for refused in ["authorization", "a b=c", "=x", "a=b\nc"] {
            assert!(collector_headers(refused).is_err(), "{refused:?}");
        }
    }
}
