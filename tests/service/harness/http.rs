//! An HTTP client of the service, with tokens for its users.
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use kit::wait::{pause, scaled};
use serde_json::{Value, json};

/// The secret that signs all tokens of these tests.
pub const SECRET: &str = "a-secret-that-only-the-service-tests-use";

/// The detail of a 503 for a dependency that did not respond within a limit of the service.
const DEPENDENCY_UNAVAILABLE: &str = "a dependency is not available; nothing was changed";
/// Longest time for which a request is repeated that nothing has changed.
const REPEAT_MAX: Duration = Duration::from_secs(20);
/// Time between two attempts of a request.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// A client of one instance.
#[derive(Clone)]
pub struct Http {
    base: String,
    agent: ureq::Agent,
}

/// A response whose body was read as text.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub text: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether a limit of the service was exceeded before the request changed anything: a dependency did not respond in time, or (408) this
    /// machine delayed the client for longer than `http.header_timeout`.
    fn is_delayed(&self) -> bool {
        self.status == 408 || (self.status == 503 && self.text.contains(DEPENDENCY_UNAVAILABLE))
    }
}

impl Http {
    pub fn new(address: &str) -> Self {
        Self::with_timeout(address, scaled(Duration::from_secs(15)))
    }

    /// A client with this request timeout.
    pub fn with_timeout(address: &str, timeout: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .max_idle_connections_per_host(64)
            .build();
        Self { base: format!("http://{address}"), agent: config.into() }
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    /// A valid token for a subject with one role.
    pub fn token(&self, sub: &str, role: &str) -> String {
        self.token_of_tier(sub, role, "default")
    }

    /// A valid token for a subject of a tier.
    pub fn token_of_tier(&self, sub: &str, role: &str, tier: &str) -> String {
        let exp = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() + 3_600;
        let claims = json!({"sub": sub, "roles": [role], "tier": tier, "exp": exp});
        encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).expect("the token is signed")
    }

    pub fn user(&self) -> String {
        self.token("ann", "USER")
    }

    pub fn admin(&self) -> String {
        self.token("root", "ADMIN")
    }

    pub fn get(&self, path: &str, token: Option<&str>) -> Response {
        self.send("GET", path, token, &[], None)
    }

    pub fn post(&self, path: &str, token: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        self.send("POST", path, Some(token), headers, Some(body.to_string()))
    }

    pub fn patch(&self, path: &str, token: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        self.send("PATCH", path, Some(token), headers, Some(body.to_string()))
    }

    /// Sends a request, and again, as clients do, while the response says that a dependency was too slow and that nothing was changed; after
    /// the limit returns the last response. [`Http::send_once`] does not repeat.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Response {
        let started = Instant::now();
        loop {
            let response = self.send_once(method, path, token, headers, body.clone()).expect("a response");
            if !response.is_delayed() || started.elapsed() >= scaled(REPEAT_MAX) {
                return response;
            }
            pause(REPEAT_PAUSE);
        }
    }

    /// Sends a request once; an error when no response arrives.
    pub fn send_once(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Response, ureq::Error> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header("Content-Type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.unwrap_or_default()).expect("a legal request");
        let mut response = self.agent.run(request)?;
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        let text = response.body_mut().with_config().limit(256 << 20).read_to_string()?;
        Ok(Response { status: response.status().as_u16(), headers, text })
    }
}

/// Body of a request that creates an order of tea.
pub fn tea_order(quantity: u32) -> Value {
    json!({"items": [{"productName": "Tea", "quantity": quantity, "price": "2.50"}]})
}
