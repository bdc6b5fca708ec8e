//! A JSON Web Key Set at a URL: fetched when a key is missing or the set is stale, at most once per fetch interval.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use jsonwebtoken::Algorithm;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::auth::key_set::{KeySet, RefusedKey};
use crate::auth::masked_url::masked_url;
use crate::auth::signing_key::{KeyError, KeyLookup, SigningKey};

/// Shortest time between two fetches, so that unknown key ids cannot flood the issuer.
const FETCH_INTERVAL_MIN: Duration = Duration::from_secs(30);
/// The same before the first success: all requests are refused until then, so the recovery must be quick.
const FIRST_FETCH_INTERVAL_MIN: Duration = Duration::from_secs(5);
/// An older set is fetched again in the background, so that a withdrawn key becomes invalid.
const STALE_AFTER: Duration = Duration::from_secs(300);
/// Limit of one fetch, connection included.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest accepted key set.
const SET_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Default)]
struct CachedKeySet {
    keys: Option<KeySet>,
    fetched_at: Option<Instant>,
    attempted_at: Option<Instant>,
}

pub(crate) struct Jwks(Arc<JwksCache>);

struct JwksCache {
    url: String,
    agent: ureq::Agent,
    cached: RwLock<CachedKeySet>,
    /// Serialises fetches; a waiting task checks the cached set again before it fetches.
    fetching: tokio::sync::Mutex<()>,
    generation: AtomicU64,
}

impl Jwks {
    pub(crate) fn at(url: String) -> Result<Self, KeyError> {
        let loopback = loopback_host(&url).ok_or_else(|| KeyError::JwksUrl(masked_url(&url)))?;
        let mut config = ureq::Agent::config_builder()
            .timeout_global(Some(FETCH_TIMEOUT))
            // A redirect could lead to an unencrypted URL.
            .max_redirects(0)
            .max_redirects_will_error(true);
        if loopback {
            config = config.proxy(None);
        }
        let agent = config.build().new_agent();
        Ok(Self(Arc::new(JwksCache {
            url,
            agent,
            cached: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
            generation: AtomicU64::default(),
        })))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Relaxed)
    }

    /// Fetches the set once. A failed fetch does not count for the fetch interval: the first request tries again.
    pub(crate) async fn prefetch(&self) {
        self.0.refresh(None).await;
        let mut cached = self.0.cached.write();
        if cached.keys.is_none() {
            cached.attempted_at = None;
        }
    }

    /// Starts a fetch when the set is stale. It is not awaited: the cached keys remain valid for the request that notices it.
    pub(crate) fn refresh_if_stale(&self) {
        if self.0.is_stale() {
            let shared = Arc::clone(&self.0);
            tokio::spawn(async move { shared.refresh(None).await });
        }
    }

    pub(crate) async fn find(&self, key_id: &str, algorithm: Algorithm) -> KeyLookup {
        let shared = &self.0;
        if let Some(key) = shared.lookup(key_id, algorithm) {
            self.refresh_if_stale();
            return KeyLookup::Key(key);
        }
        let refresh = {
            let (shared, key_id) = (Arc::clone(shared), key_id.to_owned());
            async move { shared.refresh(Some((&key_id, algorithm))).await }
        };
        // In a task of its own: a client that disconnects must not take the fetched set with it, because the next fetch is not permitted soon.
        // A panic of the task was logged; the set is then as it was.
        let _ = tokio::spawn(refresh).await;
        match shared.lookup(key_id, algorithm) {
            Some(key) => KeyLookup::Key(key),
            None if shared.cached.read().keys.is_none() => KeyLookup::Unavailable,
            None => KeyLookup::Unknown,
        }
    }
}

impl JwksCache {
    fn lookup(&self, key_id: &str, algorithm: Algorithm) -> Option<Arc<SigningKey>> {
        self.cached.read().keys.as_ref()?.find(key_id, algorithm)
    }

    fn is_stale(&self) -> bool {
        let cached = self.cached.read();
        cached.fetched_at.is_some_and(|at| at.elapsed() >= STALE_AFTER) && cached.may_fetch()
    }

    /// Fetches the set unless the fetch interval forbids it or another task has fetched the missing key meanwhile.
    async fn refresh(self: &Arc<Self>, missing: Option<(&str, Algorithm)>) {
        let _guard = self.fetching.lock().await;
        if missing.is_some_and(|(key_id, algorithm)| self.lookup(key_id, algorithm).is_some())
            || !self.cached.read().may_fetch()
        {
            return;
        }
        self.cached.write().attempted_at = Some(Instant::now());
        let shared = Arc::clone(self);
        match tokio::task::spawn_blocking(move || shared.fetch()).await {
            Ok(Ok(keys)) => {
                let mut cached = self.cached.write();
                let known = cached.keys.as_ref().map(|keys| keys.refused.as_slice()).unwrap_or_default();
                log_refused(keys.refused.iter().filter(|refused| !known.contains(refused)));
                cached.keys = Some(keys);
                cached.fetched_at = Some(Instant::now());
                self.generation.fetch_add(1, Relaxed);
            }
            Ok(Err(error)) => tracing::warn!(
                event = "jwks_fetch_failed",
                error,
                "the key set cannot be fetched; the last one stays in use: {error}"
            ),
            Err(error) => {
                tracing::warn!(event = "jwks_fetch_failed", %error, "the key set cannot be fetched; the last one stays in use: {error}")
            }
        }
    }

    fn fetch(&self) -> Result<KeySet, String> {
        let mut response = self.agent.get(&self.url).call().map_err(|error| error.to_string())?;
        // ureq reports only errors of the client and of the server: a redirect arrives here, with a body that is no key set.
        let status = response.status();
        if status != ureq::http::StatusCode::OK {
            return Err(format!("the response has the status {status}, and redirects are not followed"));
        }
        let body = response.body_mut().with_config().limit(SET_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| error.to_string())?;
        KeySet::parse(&body).ok_or_else(|| "the response is not a JSON Web Key Set".to_owned())
    }
}

/// Logs each refused key once, not at every fetch.
fn log_refused<'a>(keys: impl Iterator<Item = &'a RefusedKey>) {
    for RefusedKey { key_id, reason } in keys {
        tracing::warn!(event = "jwks_key_refused", key_id, reason, "a key of the key set is not used");
    }
}

impl CachedKeySet {
    fn may_fetch(&self) -> bool {
        let interval = if self.keys.is_some() { FETCH_INTERVAL_MIN } else { FIRST_FETCH_INTERVAL_MIN };
        self.attempted_at.is_none_or(|at| at.elapsed() >= interval)
    }
}

/// Whether the URL's host is loopback; `None` for a URL that must not be used.
fn loopback_host(url: &str) -> Option<bool> {
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that answers one request once it is permitted to: its URL, the arrival of the request, and the permission.
    fn slow_server(status: &'static str) -> (String, tokio::sync::oneshot::Receiver<()>, std::sync::mpsc::Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/jwks", listener.local_addr().expect("bound"));
        let ((arrived, arrival), (permit, permitted)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            assert!(connection.read(&mut [0; 4_096]).expect("a request") > 0);
            arrived.send(()).expect("the test waits");
            permitted.recv().expect("the test permits it");
            let body = format!("{{\"keys\":[{EC_KEY}]}}");
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            connection.write_all((head + &body).as_bytes()).expect("sent");
        });
        (url, arrival, permit)
    }

    const EC_KEY: &str = "{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"a\",\"alg\":\"ES256\",\"use\":\"sig\",\
        \"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}";

    /// Attempts with a server of its own: a pause of the machine may last longer than the limit of a fetch.
    const SERVERS_MAX: usize = 10;

    #[tokio::test]
    async fn keys_stay_although_the_request_that_needed_them_was_dropped() {
        for _ in 0..SERVERS_MAX {
            if keys_stay().await {
                return;
            }
        }
        panic!("the fetched keys were lost");
    }

    /// Whether the keys are there after a request was dropped and the fetch has ended.
    async fn keys_stay() -> bool {
        let (url, arrived, permit) = slow_server("200 OK");
        let jwks = Jwks::at(url).expect("a legal URL");
        tokio::select! {
            _ = jwks.find("a", Algorithm::ES256) => return false,
            arrived = arrived => arrived.expect("it arrived"),
        }
        permit.send(()).expect("the server waits");

        let deadline = Instant::now() + 2 * FETCH_TIMEOUT;
        while jwks.0.lookup("a", Algorithm::ES256).is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::task::yield_now().await;
        }
        true
    }

    #[tokio::test]
    async fn an_unknown_key_id_causes_no_second_fetch_right_after_the_start() {
        let mut servers = 0;
        let jwks = loop {
            let (url, _arrived, permit) = slow_server("200 OK");
            let jwks = Jwks::at(url).expect("a legal URL");
            permit.send(()).expect("the server waits");
            jwks.prefetch().await;
            servers += 1;
            if servers == SERVERS_MAX || jwks.0.lookup("a", Algorithm::ES256).is_some() {
                break jwks;
            }
        };
        let attempted_at = jwks.0.cached.read().attempted_at;
        assert!(attempted_at.is_some() && jwks.0.lookup("a", Algorithm::ES256).is_some(), "the set was fetched");

        assert!(matches!(jwks.find("unknown", Algorithm::ES256).await, KeyLookup::Unknown));

        assert_eq!(jwks.0.cached.read().attempted_at, attempted_at);
    }

    #[test]
    fn a_redirect_is_no_key_set_and_the_error_names_its_status() {
        let errors: Vec<String> = (0..SERVERS_MAX)
            .map(|_| {
                let (url, _arrived, permit) = slow_server("302 Found\r\nLocation: /login");
                permit.send(()).expect("the server waits");
                Jwks::at(url).expect("a legal URL").0.fetch().map(drop).expect_err("it is not the key set")
            })
            .collect();
        assert!(errors.iter().any(|error| error.contains("302 Found")), "{errors:?}");
    }

    #[test]
    fn key_sets_are_fetched_by_https_or_from_loopback() {
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
            assert_eq!(loopback_host(url), expected, "{url}");
        }
    }
}
