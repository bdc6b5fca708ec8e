//! Who asks: JWT bearer tokens, verified with the algorithm of our key and never with the token's word for it.
mod cache;
mod claims;
mod jwks;
mod keys;

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use domain::{Subject, Timestamp};
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};

use crate::error::Problem;
use cache::Remembered;
use claims::Claims;
use keys::{Found, Keys};
pub use keys::{KeyError, Source};

/// What tokens are checked against.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the key comes from.
    pub source: Source,
    /// `iss` must be this, when set.
    pub issuer: Option<String>,
    /// `aud` must be or hold this, when set.
    pub audience: Option<String>,
    /// How far clocks may disagree about `exp` and `nbf`.
    pub leeway: Duration,
}

impl Options {
    /// Tokens signed with this key, any issuer and audience, a minute of leeway.
    pub fn new(source: Source) -> Self {
        Self { source, issuer: None, audience: None, leeway: Duration::from_secs(60) }
    }
}

/// A verified caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Identity {
    pub(crate) subject: Subject,
    pub(crate) user: bool,
    pub(crate) admin: bool,
    pub(crate) tier: Arc<str>,
    /// Seconds since the epoch, as the token has them.
    expires: f64,
    not_before: Option<f64>,
}

/// Checks tokens.
pub struct Verifier {
    keys: Keys,
    issuer: Option<String>,
    audience: Option<String>,
    leeway_seconds: f64,
    remembered: Remembered,
}

/// Why a token does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// For whatever reason: the client learns no more than this text.
    Invalid(&'static str),
    /// The keys cannot be fetched, so nobody knows.
    KeysAway,
}

const MISSING: &str = "Bearer realm=\"posthaste\"";
const INVALID: &str = "Bearer realm=\"posthaste\", error=\"invalid_token\"";

impl Verifier {
    /// A verifier over this key source. Fetches nothing yet.
    ///
    /// # Errors
    /// The key cannot be read, or the JWKS URL is neither https nor http on loopback.
    pub fn new(options: Options) -> Result<Self, KeyError> {
        Ok(Self {
            keys: Keys::open(options.source)?,
            issuer: options.issuer,
            audience: options.audience,
            leeway_seconds: options.leeway.as_secs_f64(),
            remembered: Remembered::default(),
        })
    }

    /// The caller named by the `Authorization` header. `Ok(None)`: there is no such header.
    pub(crate) async fn caller(&self, headers: &HeaderMap, now: Timestamp) -> Result<Option<Arc<Identity>>, Problem> {
        let mut values = headers.get_all(AUTHORIZATION);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Problem::bad_request("there must be one Authorization header"));
        }
        let Some(token) = value.to_str().ok().and_then(bearer) else {
            return Err(Problem::unauthorized("a bearer token is needed", MISSING));
        };
        self.holder(token, now).await.map(Some)
    }

    /// The caller named by a token.
    pub(crate) async fn holder(&self, token: &str, now: Timestamp) -> Result<Arc<Identity>, Problem> {
        match self.verify(token, now).await {
            Ok(identity) => Ok(identity),
            Err(Denied::Invalid(why)) => Err(Problem::unauthorized(why, INVALID)),
            Err(Denied::KeysAway) => Err(Problem::away("the JWKS cannot be fetched")),
        }
    }

    /// No header at all, where there must be one.
    pub(crate) fn missing() -> Problem {
        Problem::unauthorized("a bearer token is needed", MISSING)
    }

    /// Whether a token that held when it was shown still does, by its times.
    pub(crate) fn still_holds(&self, identity: &Identity, now: Timestamp) -> bool {
        self.in_time(identity, now).is_ok()
    }

    async fn verify(&self, token: &str, now: Timestamp) -> Result<Arc<Identity>, Denied> {
        let generation = self.keys.generation();
        let name = cache::name(token);
        let identity = match self.remembered.get(&name, generation) {
            Some(identity) => identity,
            None => {
                let identity = Arc::new(self.identify(token).await?);
                self.in_time(&identity, now)?;
                self.remembered.put(name, generation, Arc::clone(&identity));
                return Ok(identity);
            }
        };
        self.in_time(&identity, now)?;
        Ok(identity)
    }

    fn in_time(&self, identity: &Identity, now: Timestamp) -> Result<(), Denied> {
        let now = now.millis() as f64 / 1000.0;
        if now >= identity.expires + self.leeway_seconds {
            return Err(Denied::Invalid("the token has expired"));
        }
        if identity.not_before.is_some_and(|start| now + self.leeway_seconds < start) {
            return Err(Denied::Invalid("the token is not valid yet"));
        }
        Ok(())
    }

    async fn identify(&self, token: &str) -> Result<Identity, Denied> {
        let refused = Denied::Invalid("the token is not valid");
        let header = decode_header(token).map_err(|_| refused)?;
        // RFC 7515, 4.1.11: whoever does not know a critical extension must refuse the token; we know none.
        if header.crit.is_some() {
            return Err(refused);
        }
        let key = match self.keys.find(header.kid.as_deref(), header.alg).await {
            Found::Key(key) => key,
            Found::Unknown => return Err(refused),
            Found::Away => return Err(Denied::KeysAway),
        };
        let claims = check_signature(token, &key.decoding, key.algorithm).ok_or(refused)?;
        claims.identity(self.issuer.as_deref(), self.audience.as_deref()).ok_or(refused)
    }
}

/// Only the signature: every claim is checked by us, each time the token is shown.
fn check_signature(token: &str, key: &DecodingKey, algorithm: jsonwebtoken::Algorithm) -> Option<Claims> {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    decode::<Claims>(token, key, &validation).ok().map(|data| data.claims)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
