//! `token`: mints tokens with the configured secret or, with a warning, the development secret.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::auth::KeySource;
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use jsonwebtoken::{EncodingKey, Header, encode};
use posthaste::Config;
use secrecy::ExposeSecret;
use serde_json::json;

use super::super::failure::Failure;
use super::super::output::{print_line, print_message};
use super::super::value_parsers::at_least_one_second;

/// `serve --dev` and `demo` sign with this. It is public, so it protects nothing.
pub(crate) const DEVELOPMENT_SECRET: &str = "posthaste-development-secret-known-to-everyone";

/// Whether tokens are verified with the public secret.
pub(crate) fn accepts_development_secret(config: &Config) -> bool {
    matches!(config.auth.source(), Some(KeySource::Secret(secret)) if secret.expose_secret() == DEVELOPMENT_SECRET)
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Print a signed token for the service.
    Mint {
        /// The subject: the caller that the token identifies.
        #[arg(long, default_value = "demo", value_parser = NonEmptyStringValueParser::new())]
        sub: String,
        /// A role; may be given several times.
        #[arg(long, default_value = "USER", value_parser = ["USER", "ADMIN", "CONSUMER", "PUBLISHER"])]
        role: Vec<String>,
        /// The tier whose rate limit applies.
        #[arg(long)]
        tier: Option<String>,
        /// Time until the token expires, such as 1h; at least a second.
        #[arg(long, default_value = "1h", value_parser = at_least_one_second)]
        ttl: Duration,
    },
}

pub(crate) fn token(config: &Config, command: TokenCommand) -> Result<u8, Failure> {
    let TokenCommand::Mint { sub, role, tier, ttl } = command;
    let claims = CallerClaims { sub, roles: role, tier, ttl };
    let token = match config.auth.source() {
        Some(KeySource::Secret(secret)) => mint(config, secret.expose_secret(), &claims)?,
        Some(KeySource::PublicKeyFile(_) | KeySource::JwksUrl(_)) => {
            return Err(Failure::new(
                "this service verifies tokens with a public key: mint them where the private key is kept",
            ));
        }
        None => {
            print_message(format_args!(
                "posthaste: warning: no auth.hs256_secret is set; signing with the development secret"
            ));
            mint(config, DEVELOPMENT_SECRET, &claims)?
        }
    };
    print_line(&token)?;
    Ok(0)
}

/// The claims that identify a caller. Issuer and audience come from the configuration.
pub(crate) struct CallerClaims {
    pub sub: String,
    pub roles: Vec<String>,
    pub tier: Option<String>,
    pub ttl: Duration,
}

/// A token that a service with this configuration and this secret accepts.
pub(crate) fn mint(config: &Config, secret: &str, claims: &CallerClaims) -> Result<String, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(Failure::new)?;
    let mut body =
        json!({"sub": claims.sub, "roles": claims.roles, "exp": (now + claims.ttl).as_secs(), "iat": now.as_secs()});
    let optional = [("tier", &claims.tier), ("iss", &config.auth.issuer), ("aud", &config.auth.audience)];
    for (name, value) in optional {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    encode(&Header::default(), &body, &EncodingKey::from_secret(secret.as_bytes())).map_err(Failure::new)
}
