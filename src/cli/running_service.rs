//! The running service to which a command sends requests: its address, and a token for its admin port.
use std::time::Duration;

use api::auth::KeySource;
use posthaste::Config;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::admin_client::AdminClient;
use super::commands::token::{CallerClaims, DEVELOPMENT_SECRET, mint};
use super::failure::Failure;

/// Lifetime of a token that a command mints for one request.
const TOKEN_TTL: Duration = Duration::from_secs(60);

const UNAUTHORIZED: u16 = 401;

/// The options of every command that sends requests to a running service.
#[derive(clap::Args)]
pub(crate) struct ServiceArguments {
    /// The service's admin port, such as http://127.0.0.1:8080; by default the configured one.
    #[arg(long)]
    url: Option<String>,
    /// A token with the role ADMIN; by default one is minted with the configured secret.
    #[arg(long, env = "POSTHASTE_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

impl ServiceArguments {
    /// Whether the operator has named an address.
    pub(crate) fn names_url(&self) -> bool {
        self.url.is_some()
    }

    /// Whether the operator has given a token.
    pub(crate) fn names_token(&self) -> bool {
        self.token.is_some()
    }
}

/// A running service and the credentials of an administrator.
pub(crate) struct RunningService<'a> {
    client: AdminClient,
    config: &'a Config,
    token: Option<&'a str>,
    /// The URL that messages name.
    pub(crate) url: String,
}

impl<'a> RunningService<'a> {
    /// The service that the arguments name. Connects with the first request.
    ///
    /// # Errors
    /// The URL has another scheme than http and https.
    pub(crate) fn new(config: &'a Config, arguments: &'a ServiceArguments) -> Result<Self, Failure> {
        let url = match &arguments.url {
            None => format!("http://{}", config.http.admin_listen.unwrap_or(config.http.listen)),
            Some(url) if url.starts_with("http://") || url.starts_with("https://") => url.clone(),
            Some(_) => return Err(Failure::new("--url must begin with http:// or https://")),
        };
        Ok(Self { client: AdminClient::new(&url), config, token: arguments.token.as_deref(), url })
    }

    /// Waits this long for each response.
    #[must_use]
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        Self { client: AdminClient::with_timeout(&self.url, timeout), ..self }
    }

    /// The JSON of a successful response.
    ///
    /// # Errors
    /// No token can be minted, no service answers, or it answers with an error.
    pub(crate) async fn json(&self, method: &'static str, path: &str) -> Result<Value, Failure> {
        self.request(method, path, None).await
    }

    /// The JSON of a successful response to a request with a body; null for a response without one.
    ///
    /// # Errors
    /// No token can be minted, no service answers, or it answers with an error.
    pub(crate) async fn send(&self, method: &'static str, path: &str, body: Option<Value>) -> Result<Value, Failure> {
        self.request(method, path, body.map(|body| body.to_string())).await
    }

    async fn request(&self, method: &'static str, path: &str, body: Option<String>) -> Result<Value, Failure> {
        let response = self.client.send(method, path, &self.token()?, body).await?;
        let needs_hint = response.status == UNAUTHORIZED && self.signs_with_development_secret();
        response.success().map_err(|failure| if needs_hint { with_hint(failure) } else { failure })
    }

    /// Whether tokens are signed with the public secret because no key is configured.
    fn signs_with_development_secret(&self) -> bool {
        self.token.is_none() && self.config.auth.source().is_none()
    }

    /// The status and the text of a response that needs no token.
    ///
    /// # Errors
    /// No service answers at the address within the timeout.
    pub(crate) async fn text(&self, path: &str) -> Result<(u16, String), Failure> {
        self.client.text(path).await
    }

    fn token(&self) -> Result<String, Failure> {
        if let Some(token) = self.token {
            return Ok(token.to_owned());
        }
        match self.config.auth.source() {
            Some(KeySource::Secret(secret)) => admin_token(self.config, secret.expose_secret()),
            None => admin_token(self.config, DEVELOPMENT_SECRET),
            Some(KeySource::PublicKeyFile(_) | KeySource::JwksUrl(_)) => {
                Err(Failure::new("give a token with the role ADMIN with --token"))
            }
        }
    }
}

/// Without a key the command signs with the development secret, which only `serve --dev` and `demo` accept.
fn with_hint(failure: Failure) -> Failure {
    let Failure { code, message, is_printed } = failure;
    let hint = "no key is configured: give --config and the environment of the service, or --token";
    Failure { code, message: format!("{message}; {hint}"), is_printed }
}

/// A token of an operator, valid for one request.
fn admin_token(config: &Config, secret: &str) -> Result<String, Failure> {
    let roles = vec!["ADMIN".to_owned()];
    mint(config, secret, &CallerClaims { sub: "operator".to_owned(), roles, tier: None, ttl: TOKEN_TTL })
}
