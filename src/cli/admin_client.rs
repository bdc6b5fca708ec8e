//! A JSON client for the admin port of a running service.
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Request;

use super::failure::Failure;

/// Largest response body that is read, in bytes: many times the size of a tree of some thousand actors.
const RESPONSE_MAX: u64 = 64 << 20;
/// Longest time for a request and its response: an operator waits at a terminal, and the address may not answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Requests to one service with one bearer token; connections are kept alive.
#[derive(Clone)]
pub(crate) struct AdminClient {
    agent: Agent,
    base: String,
    timeout: Duration,
}

/// A response of any status.
pub(crate) struct Response {
    pub status: u16,
    /// Null where it is empty or not JSON.
    pub body: Value,
    /// Whether it has a body that is not JSON: another program answered.
    pub is_foreign: bool,
}

impl Response {
    /// The body of a 2xx response.
    ///
    /// # Errors
    /// Any other status, with the service's own message; a body that is not JSON.
    pub(crate) fn success(self) -> Result<Value, Failure> {
        if self.is_foreign && (200..300).contains(&self.status) {
            let status = self.status;
            return Err(Failure::new(format!(
                "the response with status {status} is not JSON: is this the admin port of a running service?"
            )));
        }
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let message = self.body["message"].as_str().or(self.body["detail"].as_str()).unwrap_or("no reason given");
        let field_error = |error: &Value| Some(format!("{} {}", error["field"].as_str()?, error["message"].as_str()?));
        let field_errors: Vec<String> =
            self.body["errors"].as_array().into_iter().flatten().filter_map(field_error).collect();
        let message = if field_errors.is_empty() { message.to_owned() } else { field_errors.join("; ") };
        Err(Failure::new(format!("the service answered {}: {message}", self.status)))
    }
}

impl AdminClient {
    /// A client for a base URL such as `http://127.0.0.1:8080`. Connects with the first request.
    pub(crate) fn new(base: impl Into<String>) -> Self {
        Self::with_timeout(base, TIMEOUT)
    }

    /// As [`AdminClient::new`], for requests that take longer than others.
    pub(crate) fn with_timeout(base: impl Into<String>, timeout: Duration) -> Self {
        // No proxy: the environment's proxy is for external addresses, and the admin port is internal.
        let config = Agent::config_builder().http_status_as_error(false).proxy(None).max_redirects(0);
        let agent = config.timeout_global(Some(timeout)).build().new_agent();
        Self { agent, base: base.into().trim_end_matches('/').to_owned(), timeout }
    }

    /// Sends a request from another thread, because this one may run the service that answers it.
    ///
    /// # Errors
    /// No connection, no complete response in time, or a body larger than 64 MiB.
    pub(crate) async fn send(
        &self,
        method: &'static str,
        path: &str,
        token: &str,
        body: Option<String>,
    ) -> Result<Response, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("Authorization", format!("Bearer {token}"));
        let agent = self.agent.clone();
        let exchange = move || -> Result<Response, ureq::Error> {
            let mut response = match body {
                Some(body) => agent.run(request.header("Content-Type", "application/json").body(body)?)?,
                None => agent.run(request.body(())?)?,
            };
            let bytes = response.body_mut().with_config().limit(RESPONSE_MAX).read_to_vec()?;
            let body = serde_json::from_slice(&bytes);
            let is_foreign = body.is_err() && !bytes.is_empty();
            Ok(Response { status: response.status().as_u16(), body: body.unwrap_or(Value::Null), is_foreign })
        };
        let result = tokio::task::spawn_blocking(exchange).await.map_err(Failure::new)?;
        result.map_err(|error| self.failed(method, path, &error))
    }

    /// The status and the text of a GET without a token.
    ///
    /// # Errors
    /// No connection, no complete response in time, or a body larger than 64 MiB.
    pub(crate) async fn text(&self, path: &str) -> Result<(u16, String), Failure> {
        let request = Request::builder().method("GET").uri(format!("{}{path}", self.base));
        let agent = self.agent.clone();
        let exchange = move || -> Result<(u16, String), ureq::Error> {
            let mut response = agent.run(request.body(())?)?;
            let bytes = response.body_mut().with_config().limit(RESPONSE_MAX).read_to_vec()?;
            Ok((response.status().as_u16(), String::from_utf8_lossy(&bytes).into_owned()))
        };
        let result = tokio::task::spawn_blocking(exchange).await.map_err(Failure::new)?;
        result.map_err(|error| self.failed("GET", path, &error))
    }

    fn failed(&self, method: &str, path: &str, error: &ureq::Error) -> Failure {
        let (base, timeout) = (&self.base, self.timeout);
        Failure::new(match error {
            ureq::Error::Timeout(_) => format!(
                "{base} did not answer {method} {path} within {timeout:?}: is it the admin port of a running service?"
            ),
            ureq::Error::Io(_) | ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
                format!("no service answers at {base}: {error}")
            }
            error => format!("{base} gave no usable response to {method} {path}: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_each_member_that_is_not_valid() {
        let errors = serde_json::json!([{"field": "url", "message": "must be https"}, {"field": "topics", "message": "is required"}]);
        let body = serde_json::json!({"message": "a parameter is not valid", "errors": errors});

        let refused = Response { status: 400, body, is_foreign: false }.success().expect_err("refused");

        assert_eq!(refused.message, "the service answered 400: url must be https; topics is required");
    }

    #[test]
    fn a_success_without_json_is_the_response_of_another_program() {
        let response = |is_foreign| Response { status: 200, body: Value::Null, is_foreign };

        let refused = response(true).success().expect_err("not JSON");

        assert!(refused.message.contains("is not JSON"), "{}", refused.message);
        assert_eq!(response(false).success().ok(), Some(Value::Null), "an empty body");
    }

    #[tokio::test]
    async fn a_request_without_an_answer_fails_after_the_timeout() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let base = format!("http://{}", silent.local_addr().expect("bound"));
        let client = AdminClient::with_timeout(&base, Duration::from_millis(50));

        let result = client.send("GET", "/admin/actors", "token", None).await;

        let message = result.err().expect("a timeout").message;
        assert!(message.contains("did not answer GET /admin/actors within 50ms"), "{message}");
    }

    #[tokio::test]
    async fn a_refused_connection_names_the_address() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");

        let result = AdminClient::new(format!("http://{free}/")).send("GET", "/", "token", None).await;

        let message = result.err().expect("no listener").message;
        assert!(message.contains(&format!("no service answers at http://{free}: ")), "{message}");
    }
}
