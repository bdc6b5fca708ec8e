//! An HTTP client of the service, with tokens for its users.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use kit::wait::scaled;
use serde_json::{Value, json};

/// The secret that signs all tokens of these tests.
pub const SECRET: &str = "a-secret-that-only-the-service-tests-use";

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
        self.try_send("GET", path, token, &[], None).expect("a response")
    }

    pub fn post(&self, path: &str, token: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        self.try_send("POST", path, Some(token), headers, Some(body.to_string())).expect("a response")
    }

    pub fn patch(&self, path: &str, token: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        self.try_send("PATCH", path, Some(token), headers, Some(body.to_string())).expect("a response")
    }

    /// Sends a request; an error when no response arrives.
    pub fn try_send(
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
