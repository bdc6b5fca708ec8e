//! Authentication: tokens and keys.
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use api::auth::{KeyError, KeySource, Options, Verifier};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use kit::wait::scaled;
use serde_json::{Value, json};

use crate::support::fake_dispatch::FakeDispatch;
use crate::support::test_server::*;

const KEYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/keys/");

fn key_file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{KEYS}{name}")).unwrap()
}

fn with(change: Value) -> Value {
    let mut claims = claims("ann", json!(["USER"]));
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims("ann", json!(["USER"]));
    claims.as_object_mut().unwrap().remove(name);
    claims
}

#[actix_web::test]
async fn token_with_a_missing_or_malformed_claim_is_refused() {
    let server = TestServer::with_config(TestConfig {
        auth: |options| {
            options.issuer = Some("us".into());
            options.audience = Some("orders".into());
        },
        ..TestConfig::default()
    });
    let now = NOW / 1000;
    let ours = |mut claims: Value| {
        for (name, value) in [("iss", "us"), ("aud", "orders")] {
            if claims.get(name).is_none() {
                claims[name] = value.into();
            }
        }
        claims
    };
    let cases = [
        (with(json!({})), 200),
        (with(json!({"roles": "USER"})), 200),
        (with(json!({"roles": ["ADMIN"]})), 200),
        (with(json!({"roles": ["x", "USER"]})), 200),
        (with(json!({"roles": []})), 403),
        (with(json!({"roles": ["user", "ROLE_USER"]})), 403),
        (with(json!({"roles": "USER ADMIN"})), 403),
        (without("roles"), 403),
        (with(json!({"roles": null})), 401),
        (with(json!({"roles": 1})), 401),
        (with(json!({"roles": {"USER": true}})), 401),
        (with(json!({"roles": ["USER", 1]})), 401),
        (with(json!({"sub": ""})), 401),
        (with(json!({"sub": 7})), 401),
        (with(json!({"sub": "a".repeat(1_024)})), 200),
        (with(json!({"sub": "a".repeat(1_025)})), 401),
        (with(json!({"sub": "a\u{0}b"})), 401),
        (without("sub"), 401),
        (without("exp"), 401),
        (with(json!({"exp": "soon"})), 401),
        (with(json!({"exp": now - 59})), 200),
        (with(json!({"exp": now - 61})), 401),
        (with(json!({"exp": 1e300})), 200),
        (with(json!({"nbf": now + 59})), 200),
        (with(json!({"nbf": now + 61})), 401),
        (with(json!({"nbf": "x"})), 401),
        (with(json!({"nbf": null})), 401),
        (with(json!({"iss": "them"})), 401),
        (with(json!({"iss": ["us"]})), 401),
        (with(json!({"aud": ["other", "orders"]})), 200),
        (with(json!({"aud": ["other"]})), 401),
        (with(json!({"aud": "other"})), 401),
        (with(json!({"tier": "gold"})), 200),
        (with(json!({"tier": 1})), 401),
    ];
    for (claims, status) in cases {
        let claims = ours(claims);
        let reply = server.send(get("/orders").insert_header(bearer(&mint(&claims)))).await;
        assert_eq!(reply.status, status, "{claims}");
        match status {
            401 => assert!(reply.header("www-authenticate").starts_with("Bearer ")),
            403 => assert_eq!(reply.header("www-authenticate"), "Bearer error=\"insufficient_scope\""),
            _ => {}
        }
    }
    let bare = server.send(get("/orders").insert_header(bearer(&mint(&claims("ann", json!(["USER"])))))).await;
    bare.problem(401, "UNAUTHORIZED");
}

#[actix_web::test]
async fn the_authorization_header_contains_one_bearer_token() {
    let server = TestServer::new();
    let token = mint(&claims("ann", json!(["USER"])));
    let [head, body, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    let cases = [
        (format!("Bearer {token}"), 200),
        (format!("bearer  {token}"), 200),
        (String::new(), 401),
        ("Bearer".into(), 401),
        ("Bearer ".into(), 401),
        (token.clone(), 401),
        (format!("Basic {token}"), 401),
        (format!("Bearer {head}.{body}."), 401),
        (format!("Bearer {head}.{body}"), 401),
        (format!("Bearer {none}.{body}."), 401),
        (format!("Bearer {none}.{body}.{signature}"), 401),
        (format!("Bearer {head}.{body}.{}", signature.chars().rev().collect::<String>()), 401),
        ("Bearer a.b.c".into(), 401),
    ];
    for (value, status) in cases {
        let reply = server.send(get("/orders").insert_header(("authorization", value.clone()))).await;
        assert_eq!(reply.status, status, "{value}");
    }
    let missing = server.send(get("/orders")).await;
    missing.problem(401, "UNAUTHORIZED");
    assert!(missing.header("www-authenticate").starts_with("Bearer"));
    let two = get("/orders").append_header(("authorization", format!("Bearer {token}")));
    server.send(two.append_header(("authorization", format!("Bearer {token}")))).await.problem(400, "BAD_REQUEST");
    server.send(get(&format!("/orders?access_token={token}"))).await.problem(401, "UNAUTHORIZED");
}

#[actix_web::test]
async fn a_cached_token_still_expires() {
    let server = TestServer::new();
    let token = bearer(&mint(&with(json!({"exp": NOW / 1000 - 50}))));

    assert_eq!(server.send(get("/orders").insert_header(token.clone())).await.status, 200);
    server.dispatch.clock.0.fetch_add(20_000, SeqCst);
    assert_eq!(server.send(get("/orders").insert_header(token)).await.status, 401);
}

fn signed(algorithm: Algorithm, key: &EncodingKey, key_id: Option<&str>) -> HeaderPair {
    let mut header = Header::new(algorithm);
    header.kid = key_id.map(str::to_owned);
    bearer(&encode(&header, &claims("ann", json!(["USER"])), key).unwrap())
}

#[actix_web::test]
async fn a_public_key_accepts_only_its_algorithm() {
    let rsa = EncodingKey::from_rsa_pem(&key_file("rsa_private.pem")).unwrap();
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();
    // Key confusion: the public key's PEM text used as a shared secret.
    let confused = EncodingKey::from_secret(&key_file("rsa_public.pem"));
    for (file, own, other) in [
        ("rsa_public.pem", (Algorithm::RS256, &rsa), (Algorithm::ES256, &ec)),
        ("ec_public.pem", (Algorithm::ES256, &ec), (Algorithm::RS256, &rsa)),
    ] {
        let source = KeySource::PublicKeyFile(format!("{KEYS}{file}").into());
        let server = TestServer::with_config(TestConfig { source, ..TestConfig::default() });
        let send = async |pair| server.send(get("/orders").insert_header(pair)).await.status;
        assert_eq!(send(signed(own.0, own.1, None)).await, 200);
        assert_eq!(send(signed(other.0, other.1, None)).await, 401);
        assert_eq!(send(signed(Algorithm::HS256, &confused, None)).await, 401);
        assert_eq!(send(signed(Algorithm::RS512, &rsa, None)).await, 401);
    }
}

async fn advance(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// Serves each body once and then the last one always, and counts the requests.
fn key_server(bodies: Vec<String>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/jwks", listener.local_addr().unwrap());
    let fetches = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fetches);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).unwrap();
            let body = &bodies[count.fetch_add(1, SeqCst).min(bodies.len() - 1)];
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
        }
    });
    (url, fetches)
}

/// The public part of `ec_private.pem`.
fn ec_key() -> Value {
    json!({"kty": "EC", "crv": "P-256", "kid": "ec", "alg": "ES256", "use": "sig",
        "x": "z0udeCQ84AzVn1mP8KOe4wUbOd3V_9IhK3IS1ORCwf4", "y": "QDXKjRSfOJyT2-1-EjUDtctjyKDQq83KvuMlKHsm3aE"})
}

/// Attempts with an issuer of its own: a pause of the machine may last longer than the limit of a fetch, which is measured in real time.
const ISSUERS_MAX: usize = 10;

/// A server that has accepted this token with the first of these key sets, and the number of fetches.
async fn accepting_server(bodies: &[Value], token: &HeaderPair) -> (TestServer, Arc<AtomicUsize>) {
    for _ in 0..ISSUERS_MAX {
        let (url, fetches) = key_server(bodies.iter().map(Value::to_string).collect());
        let server = TestServer::with_config(TestConfig { source: KeySource::JwksUrl(url), ..TestConfig::default() });
        if server.send(get("/orders").insert_header(token.clone())).await.status == 200 {
            return (server, fetches);
        }
    }
    panic!("no issuer's keys were accepted");
}

#[actix_web::test]
async fn a_key_set_is_fetched_for_an_unknown_key_id_but_not_often() {
    let set = json!({"keys": [{"kty": "oct", "kid": "secret", "k": "c2VjcmV0", "alg": "HS256"}, ec_key()]});
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();
    let (server, fetches) = accepting_server(&[set], &signed(Algorithm::ES256, &ec, Some("ec"))).await;
    let send = async |pair| server.send(get("/orders").insert_header(pair)).await.status;

    assert_eq!(send(signed(Algorithm::ES256, &ec, Some("ec"))).await, 200);
    assert_eq!(send(signed(Algorithm::ES256, &ec, None)).await, 401);
    assert_eq!(send(signed(Algorithm::ES256, &ec, Some("other"))).await, 401);
    assert_eq!(send(signed(Algorithm::ES256, &ec, Some("another"))).await, 401);
    assert_eq!(send(signed(Algorithm::HS256, &EncodingKey::from_secret(b"secret"), Some("secret"))).await, 401);
    assert_eq!(fetches.load(SeqCst), 1, "unknown ids do not reach the issuer within the fetch interval");
}

#[actix_web::test]
async fn a_withdrawn_key_becomes_invalid_for_cached_tokens() {
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();
    let token = signed(Algorithm::ES256, &ec, Some("ec"));
    let sets = [json!({"keys": [ec_key()]}), json!({"keys": []})];
    let (server, fetches) = accepting_server(&sets, &token).await;
    let send = async || server.send(get("/orders").insert_header(token.clone())).await.status;
    assert_eq!(send().await, 200);

    // The real time of the test comes in addition: it is fresh for 300 s.
    advance(200).await;
    assert_eq!((send().await, fetches.load(SeqCst)), (200, 1), "the set is fresh");
    advance(101).await;
    let until = Instant::now() + scaled(Duration::from_secs(10));
    while send().await == 200 {
        assert!(Instant::now() < until, "the cached token is still accepted after {} fetches", fetches.load(SeqCst));
        tokio::task::yield_now().await;
    }

    assert_eq!(send().await, 401);
    assert!(fetches.load(SeqCst) >= 2, "again when a fetch took too long");
}

#[actix_web::test]
async fn without_keys_the_response_is_503() {
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/jwks", dead.local_addr().unwrap());
    drop(dead);
    let server = TestServer::with_config(TestConfig { source: KeySource::JwksUrl(url), ..TestConfig::default() });
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();

    let reply = server.send(get("/orders").insert_header(signed(Algorithm::ES256, &ec, Some("ec")))).await;
    reply.problem(503, "INFRASTRUCTURE_ERROR");
}

/// An issuer that answers one request once it is permitted to: its URL, the arrival of the request, and the permission.
fn slow_issuer() -> (String, tokio::sync::oneshot::Receiver<()>, std::sync::mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/jwks", listener.local_addr().unwrap());
    let ((arrived, arrival), (permit, permitted)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        arrived.send(()).unwrap();
        // The test may end without a permission.
        if permitted.recv().is_ok() {
            let body = json!({"keys": [ec_key()]}).to_string();
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
        }
    });
    (url, arrival, permit)
}

/// Lets a request run for at most this long, in real time.
async fn yield_for(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        tokio::task::yield_now().await;
    }
}

#[actix_web::test]
async fn a_hanging_issuer_delays_no_response_beyond_the_request_timeout() {
    let (url, arrival, _permit) = slow_issuer();
    let mut config = TestConfig { source: KeySource::JwksUrl(url), ..TestConfig::default() };
    config.options.request_timeout = Duration::from_secs(60);
    let server = TestServer::with_config(config);
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();
    let request = server.send(get("/orders").insert_header(signed(Algorithm::ES256, &ec, Some("ec"))));
    let time_passes = async {
        arrival.await.unwrap();
        advance(61).await;
        // Less than the limit of a fetch, which is measured in real time.
        yield_for(Duration::from_secs(2)).await;
    };

    tokio::select! {
        reply = request => drop(reply.problem(503, "INFRASTRUCTURE_ERROR")),
        () = time_passes => panic!("the response waits for the issuer"),
    }
}

#[actix_web::test]
async fn the_time_that_the_issuer_takes_is_taken_off_the_handlers_time() {
    assert_late_response(500, |dispatch| *dispatch.hangs.lock() = true).await;
}

#[actix_web::test]
async fn the_time_that_the_issuer_takes_is_taken_off_the_commands_time() {
    assert_late_response(503, |dispatch| *dispatch.is_paused.lock() = true).await;
}

/// Asserts the status of a command that gets no result from the actors after the issuer has taken 59 of the 60 seconds.
async fn assert_late_response(status: u16, set_up: impl Fn(&FakeDispatch)) {
    for _ in 0..ISSUERS_MAX {
        if let Some(late) = late_response(&set_up).await {
            return assert_eq!(late.status, status, "{}", late.text());
        }
    }
    panic!("no command has reached the actors");
}

/// The response to such a command; `None` when the issuer's answer took too much real time and the command was not sent.
async fn late_response(set_up: impl Fn(&FakeDispatch)) -> Option<TestResponse> {
    let (url, arrival, permit) = slow_issuer();
    let mut config = TestConfig { source: KeySource::JwksUrl(url), ..TestConfig::default() };
    config.options.request_timeout = Duration::from_secs(60);
    let server = TestServer::with_config(config);
    set_up(&server.dispatch);
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();
    let request = server.send(post("/orders", ORDER).insert_header(signed(Algorithm::ES256, &ec, Some("ec"))));
    let time_passes = async {
        arrival.await.unwrap();
        advance(59).await;
        permit.send(()).unwrap();
        while server.dispatch.received.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        advance(2).await;
        yield_for(scaled(Duration::from_secs(5))).await;
    };

    tokio::select! {
        reply = request => (server.dispatch.received.load(SeqCst) > 0).then_some(reply),
        () = time_passes => panic!("the handler has 60 s of its own"),
    }
}

#[test]
fn unusable_keys_are_reported_at_startup() {
    let open = |source| Verifier::new(Options::new(source)).err();
    for short in ["", "x", &"x".repeat(31)] {
        assert!(matches!(open(KeySource::Secret(short.into())), Some(KeyError::ShortSecret)), "{short}");
    }
    assert!(open(KeySource::Secret("x".repeat(32).into())).is_none());
    let pem = |name: &str| open(KeySource::PublicKeyFile(format!("{KEYS}{name}").into()));
    assert!(matches!(pem("rsa_2047_public.pem"), Some(KeyError::ShortRsaKey { bits: 2_047, .. })));
    assert!(matches!(pem("rsa_1024_public.pem"), Some(KeyError::ShortRsaKey { bits: 1_024, .. })));
    assert!(matches!(pem("rsa_private.pem"), Some(KeyError::NoPublicKey(_))), "a private key verifies nothing");
    assert!(pem("ec_public.pem").is_none());
    for other_curve in ["ec_p384_public.pem", "ec_p521_public.pem", "ec_secp256k1_public.pem"] {
        assert!(matches!(pem(other_curve), Some(KeyError::NoPublicKey(_))), "{other_curve}");
    }
    assert!(matches!(open(KeySource::PublicKeyFile("/no/such/file".into())), Some(KeyError::File { .. })));
    let no_key = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into();
    assert!(matches!(open(KeySource::PublicKeyFile(no_key)), Some(KeyError::NoPublicKey(_))));
    assert!(matches!(open(KeySource::JwksUrl("http://issuer.example/".into())), Some(KeyError::JwksUrl(_))));
}
