//! Verifies JWT bearer tokens. The algorithm is the key's; the one in the token's header must match it.
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use domain::Timestamp;
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};

use crate::auth::claims::BearerClaims;
use crate::auth::identity::Identity;
use crate::auth::key_source::{KeySource, VerificationKeys};
use crate::auth::signing_key::{KeyError, KeyLookup};
use crate::auth::token_cache::{TokenCache, token_hash};
use crate::error::Problem;

/// The requirements that tokens are verified against.
#[derive(Clone, Debug)]
pub struct Options {
    /// The source of the keys.
    pub source: KeySource,
    /// If set, the claim `iss` must be equal to it.
    pub issuer: Option<String>,
    /// If set, the claim `aud` must be equal to it or contain it.
    pub audience: Option<String>,
    /// Allowed clock difference when `exp` and `nbf` are checked.
    pub leeway: Duration,
}

impl Options {
    /// Accepts every issuer and audience, with one minute of leeway.
    pub fn new(source: KeySource) -> Self {
        Self { source, issuer: None, audience: None, leeway: Duration::from_secs(60) }
    }
}

/// Verifies tokens against one key source.
pub struct Verifier {
    keys: VerificationKeys,
    source_fingerprint: [u8; 32],
    issuer: Option<String>,
    audience: Option<String>,
    leeway_seconds: f64,
    token_cache: TokenCache,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenError {
    /// The text is the whole reason that the response contains.
    Invalid(&'static str),
    /// The keys cannot be fetched, so the token cannot be verified.
    KeysUnavailable,
}

const CHALLENGE_MISSING: &str = "Bearer realm=\"posthaste\"";
const CHALLENGE_INVALID: &str = "Bearer realm=\"posthaste\", error=\"invalid_token\"";

impl Verifier {
    /// A verifier for this key source. It fetches no keys yet.
    ///
    /// # Errors
    /// The key cannot be read, or the JWKS URL is neither https nor http on loopback.
    pub fn new(options: Options) -> Result<Self, KeyError> {
        let (keys, source_fingerprint) = VerificationKeys::open(&options.source)?;
        Ok(Self {
            keys,
            source_fingerprint,
            issuer: options.issuer,
            audience: options.audience,
            leeway_seconds: options.leeway.as_secs_f64(),
            token_cache: TokenCache::default(),
        })
    }

    /// A hash of the source of the keys, which differs after its secret or its file was replaced.
    pub(crate) fn source_fingerprint(&self) -> &[u8; 32] {
        &self.source_fingerprint
    }

    /// Fetches the key set of a JWKS URL once, so that keys it must not contain are reported at the start. A failure is only logged.
    pub(crate) async fn prefetch_keys(&self) {
        self.keys.prefetch().await;
    }

    /// The caller named by the `Authorization` header; `Ok(None)` without that header.
    ///
    /// # Errors
    /// 400 for two headers, 401 for a token that is not valid, 503 when the keys are unavailable.
    pub(crate) async fn authenticate_headers(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Option<Arc<Identity>>, Problem> {
        let mut values = headers.get_all(AUTHORIZATION);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Problem::bad_request("there must be one Authorization header"));
        }
        let Some(token) = value.to_str().ok().and_then(bearer_token) else {
            return Err(Self::missing_token());
        };
        self.authenticate(token, now).await.map(Some)
    }

    /// The caller named by a token.
    ///
    /// # Errors
    /// 401 for a token that is not valid, 503 when the keys are unavailable.
    pub(crate) async fn authenticate(&self, token: &str, now: Timestamp) -> Result<Arc<Identity>, Problem> {
        match self.verify(token, now).await {
            Ok(identity) => Ok(identity),
            Err(TokenError::Invalid(reason)) => Err(Problem::unauthorized(reason, CHALLENGE_INVALID)),
            Err(TokenError::KeysUnavailable) => Err(Problem::dependency_unavailable("the JWKS cannot be fetched")),
        }
    }

    pub(crate) fn missing_token() -> Problem {
        Problem::unauthorized("a bearer token is required", CHALLENGE_MISSING)
    }

    /// Whether a token that was verified before is still within its validity period.
    pub(crate) fn is_within_validity(&self, identity: &Identity, now: Timestamp) -> bool {
        self.check_validity(identity, now).is_ok()
    }

    async fn verify(&self, token: &str, now: Timestamp) -> Result<Arc<Identity>, TokenError> {
        let generation = self.keys.generation();
        let hash = token_hash(token);
        if let Some(identity) = self.token_cache.get(&hash, generation) {
            self.keys.refresh_if_stale();
            self.check_validity(&identity, now)?;
            return Ok(identity);
        }
        let identity = Arc::new(self.identify(token).await?);
        self.check_validity(&identity, now)?;
        self.token_cache.put(hash, generation, Arc::clone(&identity));
        Ok(identity)
    }

    fn check_validity(&self, identity: &Identity, now: Timestamp) -> Result<(), TokenError> {
        let now = now.millis() as f64 / 1000.0;
        if now >= identity.expires + self.leeway_seconds {
            return Err(TokenError::Invalid("the token has expired"));
        }
        if identity.not_before.is_some_and(|start| now + self.leeway_seconds < start) {
            return Err(TokenError::Invalid("the token is not valid yet"));
        }
        Ok(())
    }

    async fn identify(&self, token: &str) -> Result<Identity, TokenError> {
        let invalid = TokenError::Invalid("the token is not valid");
        let header = decode_header(token).map_err(|_| invalid)?;
        // RFC 7515, 4.1.11: a token with an unsupported critical extension must be refused; none is supported here.
        if header.crit.is_some() {
            return Err(invalid);
        }
        let key = match self.keys.find(header.kid.as_deref(), header.alg).await {
            KeyLookup::Key(key) => key,
            KeyLookup::Unknown => return Err(invalid),
            KeyLookup::Unavailable => return Err(TokenError::KeysUnavailable),
        };
        let claims = check_signature(token, &key.decoding, key.algorithm).ok_or(invalid)?;
        claims.identity(self.issuer.as_deref(), self.audience.as_deref()).ok_or(invalid)
    }
}

/// Checks only the signature; [`BearerClaims::identity`] and [`Verifier::check_validity`] check the claims.
fn check_signature(token: &str, key: &DecodingKey, algorithm: jsonwebtoken::Algorithm) -> Option<BearerClaims> {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    decode::<BearerClaims>(token, key, &validation).ok().map(|data| data.claims)
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
