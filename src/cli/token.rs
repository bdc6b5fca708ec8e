//! `token`: tokens for trying things, signed with the configured secret or, with a warning, the development one.
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use jsonwebtoken::{EncodingKey, Header, encode};
use posthaste::Config;
use posthaste::config::AuthKey;
use serde_json::json;

use super::values::a_second_or_more;
use super::{Failure, line};

/// What `--dev` and `demo` sign with. Known to everyone who reads this: good for nothing else.
pub(crate) const DEVELOPMENT_SECRET: &str = "posthaste-development-secret-known-to-everyone";

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Print a token.
    Mint {
        /// Who it is for.
        #[arg(long, default_value = "demo", value_parser = NonEmptyStringValueParser::new())]
        sub: String,
        /// A role; may be given again.
        #[arg(long, default_value = "USER", value_parser = ["USER", "ADMIN"])]
        role: Vec<String>,
        /// Tier for rate limits.
        #[arg(long)]
        tier: Option<String>,
        /// How long it is good, such as 1h; at least a second.
        #[arg(long, default_value = "1h", value_parser = a_second_or_more)]
        ttl: std::time::Duration,
    },
}

pub(crate) fn token(config: &Config, verb: Verb) -> Result<u8, Failure> {
    let Verb::Mint { sub, role, tier, ttl } = verb;
    let secret = match &config.auth_key {
        Some(AuthKey::Secret(secret)) => secret.clone(),
        Some(AuthKey::PublicKeyFile(_) | AuthKey::JwksUrl(_)) => {
            return Err(Failure::new(
                "tokens are verified with a public key here: whoever holds the private one mints them",
            ));
        }
        None => {
            eprintln!("posthaste: warning: no auth.hs256_secret is set; signing with the development secret");
            DEVELOPMENT_SECRET.to_owned()
        }
    };
    let claims = Claims { sub, roles: role, tier, ttl };
    line(&mint(config, &secret, &claims)?)?;
    Ok(0)
}

/// What a token says.
pub(crate) struct Claims {
    pub sub: String,
    pub roles: Vec<String>,
    pub tier: Option<String>,
    pub ttl: std::time::Duration,
}

/// A token that this configuration accepts.
pub(crate) fn mint(config: &Config, secret: &str, claims: &Claims) -> Result<String, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(Failure::new)?;
    let mut body =
        json!({"sub": claims.sub, "roles": claims.roles, "exp": (now + claims.ttl).as_secs(), "iat": now.as_secs()});
    let optional = [("tier", &claims.tier), ("iss", &config.auth_issuer), ("aud", &config.auth_audience)];
    for (name, value) in optional {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    encode(&Header::default(), &body, &EncodingKey::from_secret(secret.as_bytes())).map_err(Failure::new)
}
