//! Who asks: tokens and keys.
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use api::auth::{KeyError, Options, Source, Verifier};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::house::*;

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
async fn claims_are_judged_one_by_one() {
    let house = House::planned(Plan {
        auth: |options| {
            options.issuer = Some("us".into());
            options.audience = Some("orders".into());
        },
        ..Plan::default()
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
        let reply = house.ask(get("/orders").insert_header(bearer(&mint(&claims)))).await;
        assert_eq!(reply.status, status, "{claims}");
        match status {
            401 => assert!(reply.header("www-authenticate").starts_with("Bearer ")),
            403 => assert_eq!(reply.header("www-authenticate"), "Bearer error=\"insufficient_scope\""),
            _ => {}
        }
    }
    let bare = house.ask(get("/orders").insert_header(bearer(&mint(&claims("ann", json!(["USER"])))))).await;
    bare.problem(401, "UNAUTHORIZED");
}

#[actix_web::test]
async fn the_header_holds_one_bearer_token() {
    let house = House::new();
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
        let reply = house.ask(get("/orders").insert_header(("authorization", value.clone()))).await;
        assert_eq!(reply.status, status, "{value}");
    }
    let missing = house.ask(get("/orders")).await;
    missing.problem(401, "UNAUTHORIZED");
    assert!(missing.header("www-authenticate").starts_with("Bearer"));
    let two = get("/orders").append_header(("authorization", format!("Bearer {token}")));
    house.ask(two.append_header(("authorization", format!("Bearer {token}")))).await.problem(400, "BAD_REQUEST");
    house.ask(get(&format!("/orders?access_token={token}"))).await.problem(401, "UNAUTHORIZED");
}

#[actix_web::test]
async fn a_remembered_token_still_expires() {
    let house = House::new();
    let token = bearer(&mint(&with(json!({"exp": NOW / 1000 - 50}))));

    assert_eq!(house.ask(get("/orders").insert_header(token.clone())).await.status, 200);
    house.desk.clock.0.fetch_add(20_000, SeqCst);
    assert_eq!(house.ask(get("/orders").insert_header(token)).await.status, 401);
}

fn signed(algorithm: Algorithm, key: &EncodingKey, kid: Option<&str>) -> HeaderPair {
    let mut header = Header::new(algorithm);
    header.kid = kid.map(str::to_owned);
    bearer(&encode(&header, &claims("ann", json!(["USER"])), key).unwrap())
}

#[actix_web::test]
async fn a_public_key_fixes_its_algorithm() {
    let rsa = EncodingKey::from_rsa_pem(&key_file("rsa_private.pem")).unwrap();
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();
    // The oldest trick: the public key's own text as a shared secret.
    let tricks = EncodingKey::from_secret(&key_file("rsa_public.pem"));
    for (file, own, other) in [
        ("rsa_public.pem", (Algorithm::RS256, &rsa), (Algorithm::ES256, &ec)),
        ("ec_public.pem", (Algorithm::ES256, &ec), (Algorithm::RS256, &rsa)),
    ] {
        let source = Source::PublicKeyFile(format!("{KEYS}{file}").into());
        let house = House::planned(Plan { source, ..Plan::default() });
        let ask = async |pair| house.ask(get("/orders").insert_header(pair)).await.status;
        assert_eq!(ask(signed(own.0, own.1, None)).await, 200);
        assert_eq!(ask(signed(other.0, other.1, None)).await, 401);
        assert_eq!(ask(signed(Algorithm::HS256, &tricks, None)).await, 401);
        assert_eq!(ask(signed(Algorithm::RS512, &rsa, None)).await, 401);
    }
}

/// Serves one body for ever, and counts how often.
fn key_server(body: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/jwks", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).unwrap();
            count.fetch_add(1, SeqCst);
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
        }
    });
    (url, asked)
}

#[actix_web::test]
async fn a_key_set_is_fetched_by_kid_and_not_often() {
    let set = json!({"keys": [
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0", "alg": "HS256"},
        {"kty": "EC", "crv": "P-256", "kid": "ec", "alg": "ES256", "use": "sig",
         "x": "z0udeCQ84AzVn1mP8KOe4wUbOd3V_9IhK3IS1ORCwf4", "y": "QDXKjRSfOJyT2-1-EjUDtctjyKDQq83KvuMlKHsm3aE"},
    ]});
    let (url, asked) = key_server(set.to_string());
    let house = House::planned(Plan { source: Source::JwksUrl(url), ..Plan::default() });
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();
    let ask = async |pair| house.ask(get("/orders").insert_header(pair)).await.status;

    assert_eq!(ask(signed(Algorithm::ES256, &ec, Some("ec"))).await, 200);
    assert_eq!(ask(signed(Algorithm::ES256, &ec, Some("ec"))).await, 200);
    assert_eq!(ask(signed(Algorithm::ES256, &ec, None)).await, 401);
    assert_eq!(ask(signed(Algorithm::ES256, &ec, Some("other"))).await, 401);
    assert_eq!(ask(signed(Algorithm::ES256, &ec, Some("another"))).await, 401);
    assert_eq!(ask(signed(Algorithm::HS256, &EncodingKey::from_secret(b"secret"), Some("secret"))).await, 401);
    assert_eq!(asked.load(SeqCst), 1, "unknown ids do not reach the issuer within the floor");
}

#[actix_web::test]
async fn without_any_keys_nobody_knows() {
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/jwks", dead.local_addr().unwrap());
    drop(dead);
    let house = House::planned(Plan { source: Source::JwksUrl(url), ..Plan::default() });
    let ec = EncodingKey::from_ec_pem(&key_file("ec_private.pem")).unwrap();

    let reply = house.ask(get("/orders").insert_header(signed(Algorithm::ES256, &ec, Some("ec")))).await;
    reply.problem(503, "INFRASTRUCTURE_ERROR");
}

#[test]
fn keys_that_cannot_be_used_are_named_at_the_start() {
    let open = |source| Verifier::new(Options::new(source)).err();
    assert!(matches!(open(Source::Secret("".into())), Some(KeyError::EmptySecret)));
    assert!(matches!(open(Source::PublicKeyFile("/no/such/file".into())), Some(KeyError::File { .. })));
    let no_key = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into();
    assert!(matches!(open(Source::PublicKeyFile(no_key)), Some(KeyError::NoPublicKey(_))));
    assert!(matches!(open(Source::JwksUrl("http://issuer.example/".into())), Some(KeyError::JwksUrl(_))));
}
