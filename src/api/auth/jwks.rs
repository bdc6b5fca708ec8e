//! A key set behind a URL: fetched when a key is missing or the set is old, never more often than the floor allows.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use parking_lot::RwLock;
use serde_json::Value;

use super::keys::{Found, Key, KeyError};

/// Shortest time between two fetches: a flood of unknown key ids reaches the issuer no faster.
const FETCH_FLOOR: Duration = Duration::from_secs(30);
/// The floor while there are no keys at all: until then every request is refused, and it must not take long to recover.
const FIRST_FETCH_FLOOR: Duration = Duration::from_secs(5);
/// From this age on a set is fetched anew beside the requests that still use it, so that a withdrawn key goes.
const FRESH_FOR: Duration = Duration::from_secs(300);
/// How long a fetch may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest key set.
const SET_BYTES_MAX: u64 = 1024 * 1024;

type Set = HashMap<String, Arc<Key>>;

#[derive(Default)]
struct Known {
    keys: Option<Arc<Set>>,
    fetched_at: Option<Instant>,
    tried_at: Option<Instant>,
}

pub(super) struct Jwks(Arc<Shared>);

struct Shared {
    url: String,
    agent: ureq::Agent,
    known: RwLock<Known>,
    /// One fetch at a time; whoever waits here looks again before fetching.
    fetching: tokio::sync::Mutex<()>,
    generation: AtomicU64,
}

impl Jwks {
    pub(super) fn at(url: String) -> Result<Self, KeyError> {
        let loopback = judge(&url).ok_or_else(|| KeyError::JwksUrl(url.clone()))?;
        let mut config = ureq::Agent::config_builder()
            .timeout_global(Some(FETCH_TIMEOUT))
            // A redirect could lead to where keys travel in the clear.
            .max_redirects(0)
            .max_redirects_will_error(true);
        if loopback {
            config = config.proxy(None);
        }
        let agent = config.build().new_agent();
        Ok(Self(Arc::new(Shared {
            url,
            agent,
            known: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
            generation: AtomicU64::default(),
        })))
    }

    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Relaxed)
    }

    pub(super) async fn find(&self, kid: &str) -> Found {
        let shared = &self.0;
        if let Some(key) = shared.look(kid) {
            if shared.is_old() {
                let shared = Arc::clone(shared);
                // Nobody waits for it: the requests at hand still have their keys.
                tokio::spawn(async move { shared.refresh(None).await });
            }
            return Found::Key(key);
        }
        shared.refresh(Some(kid)).await;
        match shared.look(kid) {
            Some(key) => Found::Key(key),
            None if shared.known.read().keys.is_none() => Found::Away,
            None => Found::Unknown,
        }
    }
}

impl Shared {
    fn look(&self, kid: &str) -> Option<Arc<Key>> {
        self.known.read().keys.as_ref()?.get(kid).cloned()
    }

    fn is_old(&self) -> bool {
        let known = self.known.read();
        known.fetched_at.is_some_and(|at| at.elapsed() >= FRESH_FOR) && known.may_fetch()
    }

    /// Fetches the set if the floor allows it and, by now, nobody else brought what is missing.
    async fn refresh(self: &Arc<Self>, missing: Option<&str>) {
        let _one_at_a_time = self.fetching.lock().await;
        if missing.is_some_and(|kid| self.look(kid).is_some()) || !self.known.read().may_fetch() {
            return;
        }
        self.known.write().tried_at = Some(Instant::now());
        let shared = Arc::clone(self);
        match tokio::task::spawn_blocking(move || shared.fetch()).await {
            Ok(Ok(keys)) => {
                let mut known = self.known.write();
                known.keys = Some(Arc::new(keys));
                known.fetched_at = Some(Instant::now());
                self.generation.fetch_add(1, Relaxed);
            }
            Ok(Err(error)) => tracing::warn!(event = "jwks_fetch_failed", error, "jwks_fetch_failed"),
            Err(error) => tracing::warn!(event = "jwks_fetch_failed", %error, "jwks_fetch_failed"),
        }
    }

    fn fetch(&self) -> Result<Set, String> {
        let mut answer = self.agent.get(&self.url).call().map_err(|error| error.to_string())?;
        let body = answer.body_mut().with_config().limit(SET_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| error.to_string())?;
        keys(&body).ok_or_else(|| "the answer is no JSON Web Key Set".to_owned())
    }
}

impl Known {
    fn may_fetch(&self) -> bool {
        let floor = if self.keys.is_some() { FETCH_FLOOR } else { FIRST_FETCH_FLOOR };
        self.tried_at.is_none_or(|at| at.elapsed() >= floor)
    }
}

/// Whether the URL's host is loopback; `None` when the URL is not to be used.
fn judge(url: &str) -> Option<bool> {
    let url: ureq::http::Uri = url.parse().ok()?;
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    let loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match url.scheme_str()? {
        "https" => Some(loopback),
        "http" if loopback => Some(true),
        _ => None,
    }
}

/// The usable keys of a set: one we cannot use does not spoil the others.
fn keys(body: &[u8]) -> Option<Set> {
    let set: Value = serde_json::from_slice(body).ok()?;
    let jwks = set.get("keys")?.as_array()?;
    let usable = jwks.iter().filter_map(|jwk| key(serde_json::from_value(jwk.clone()).ok()?));
    Some(usable.collect())
}

fn key(jwk: Jwk) -> Option<(String, Arc<Key>)> {
    if jwk.common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
        return None;
    }
    // Never `oct`: a set that anybody can read is no place for a secret.
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(parameters) if parameters.curve == EllipticCurve::P256 => Algorithm::ES256,
        _ => return None,
    };
    let binding = match algorithm {
        Algorithm::RS256 => KeyAlgorithm::RS256,
        _ => KeyAlgorithm::ES256,
    };
    if jwk.common.key_algorithm.is_some_and(|named| named != binding) {
        return None;
    }
    let decoding = DecodingKey::from_jwk(&jwk).ok()?;
    Some((jwk.common.key_id?, Arc::new(Key { decoding, algorithm })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_travel_by_https_or_stay_in_the_house() {
        let cases = [
            ("https://issuer.example/jwks", Some(false)),
            ("http://localhost:8080/jwks", Some(true)),
            ("http://127.0.0.2/jwks", Some(true)),
            ("http://[::1]:1/jwks", Some(true)),
            ("https://127.0.0.1/jwks", Some(true)),
            ("http://issuer.example/jwks", None),
            ("http://127.0.0.1.example/jwks", None),
            ("http://localhost@issuer.example/", None),
            ("ftp://localhost/jwks", None),
            ("/jwks", None),
            ("", None),
        ];
        for (url, expected) in cases {
            assert_eq!(judge(url), expected, "{url}");
        }
    }

    #[test]
    fn oct_keys_foreign_algorithms_and_keys_without_a_name_are_skipped() {
        let x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
        let y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
        let ec = |more: &str| format!("{{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"{x}\",\"y\":\"{y}\"{more}}}");
        let body = format!(
            "{{\"keys\":[{},{},{},{},{{\"kty\":\"oct\",\"kid\":\"d\",\"k\":\"c2VjcmV0\"}},{{\"kty\":\"??\"}},7]}}",
            ec(",\"kid\":\"a\",\"alg\":\"ES256\",\"use\":\"sig\""),
            ec(",\"kid\":\"b\",\"alg\":\"RS256\""),
            ec(",\"kid\":\"c\",\"use\":\"enc\""),
            ec(""),
        );

        let keys = keys(body.as_bytes()).unwrap();

        assert_eq!(keys.keys().collect::<Vec<_>>(), ["a"]);
        assert!(super::keys(b"[]").is_none());
    }
}
