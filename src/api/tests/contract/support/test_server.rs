//! A service over fakes, and helpers that send requests to it.
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32};
use std::time::Duration;

use actix_web::App;
use actix_web::http::header::HeaderMap;
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use api::auth::{self, KeySource, Verifier};
use api::{HttpState, Options, StateParts, Surface};
use app::admission::rate_limit::Admission;
use app::admission::write_gate::WriteGate;
use app::consume::topic_reads::TopicReads;
use app::health::{Component, SharedHealth};
use app::operators::dead_letters::DeadLetters;
use app::operators::dead_letters_by_topic::DeadLettersByTopic;
use app::operators::outbox::OutboxOperations;
use app::queries::Queries;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use kit::wait::scaled;
use kit::{Reference, TestClock};
use parking_lot::Mutex;
use serde_json::{Value, json};
use telemetry::Metrics;
use telemetry::traces::Tracer;

use crate::support::fake_dispatch::FakeDispatch;
use crate::support::fake_ports::{EmptyCache, FakeClock, FakeOrderStore, FakeOutbox, FakeRateLimiter, FakeRedrives};
use crate::support::fake_topic_log::FakeTopicLog;
use crate::support::unused_ports::UnusedPorts;

pub const SECRET: &str = "a secret that only these tests use";
/// 2026-01-31T12:00:00.120Z
pub const NOW: i64 = 1_769_860_800_120;

pub struct TestServer {
    pub state: Arc<HttpState>,
    pub dispatch: Arc<FakeDispatch>,
    pub orders: Arc<FakeOrderStore>,
    pub outbox: Arc<FakeOutbox>,
    pub rate_limiter: Arc<FakeRateLimiter>,
    /// The broker with the dead letters.
    pub broker: Reference,
    pub redrives: Arc<FakeRedrives>,
    pub health: SharedHealth,
    pub metrics: Arc<Metrics>,
    pub topic_log: Arc<FakeTopicLog>,
}

pub struct TestConfig {
    pub source: KeySource,
    pub auth: fn(&mut auth::Options),
    pub options: Options,
    pub tokens: u32,
    pub faults_enabled: bool,
    pub broker: bool,
    pub tracer: Tracer,
}

impl Default for TestConfig {
    fn default() -> Self {
        let options = Options {
            listen: "127.0.0.1:0".into(),
            region: "r1".into(),
            instance: "one".into(),
            workers: 1,
            // A slow machine delays a client between its connection and its request.
            header_timeout: scaled(Duration::from_secs(5)),
            ..Options::default()
        };
        Self {
            source: KeySource::Secret(SECRET.into()),
            auth: |_| {},
            options,
            tokens: 1_000_000,
            faults_enabled: true,
            broker: true,
            tracer: Tracer::default(),
        }
    }
}

impl TestServer {
    pub fn new() -> Self {
        Self::with_config(TestConfig::default())
    }

    pub fn with_config(config: TestConfig) -> Self {
        Self::starting_at(NOW, config)
    }

    /// A process that starts at this time, in milliseconds.
    pub fn starting_at(now: i64, config: TestConfig) -> Self {
        let clock = Arc::new(FakeClock(AtomicI64::new(now), AtomicI64::default()));
        let orders = Arc::new(FakeOrderStore::default());
        let outbox = Arc::new(FakeOutbox::default());
        let rate_limiter = Arc::new(FakeRateLimiter { tokens: Mutex::new(config.tokens), requested: Mutex::default() });
        let health = SharedHealth::default();
        health.update(|snapshot| {
            snapshot.started = true;
            snapshot.breaker = "closed";
            snapshot.broker_configured = true;
            let latency = Duration::from_millis(2);
            snapshot.components = vec![Component { name: "db", up: true, gates: true, latency, detail: None }];
        });
        let metrics = Metrics::new();
        let mut dispatch = FakeDispatch::new(Arc::clone(&orders), Arc::clone(&clock));
        dispatch.faults_enabled = config.faults_enabled;
        let dispatch = Arc::new(dispatch);
        let mut auth = auth::Options::new(config.source);
        (config.auth)(&mut auth);
        let broker = Reference::new(TestClock::default());
        let redrives = Arc::new(FakeRedrives {
            ledger: broker.clone(),
            reservations_left: AtomicU32::new(u32::MAX),
            confirmations_left: AtomicU32::new(u32::MAX),
            reads_left: AtomicU32::new(u32::MAX),
        });
        let port = || Arc::new(broker.clone());
        let spawn = Arc::new(|task| drop(tokio::spawn(task)));
        let of_orders = DeadLetters::new("order.events", port(), port(), redrives.clone(), clock.clone(), spawn);
        let by_topic = DeadLettersByTopic::new(of_orders, &["invoices".to_owned()]);
        let dead_letters = config.broker.then(|| Arc::new(by_topic));
        let topic_log = Arc::<FakeTopicLog>::default();
        let topic_reads = TopicReads::new(topic_log.clone(), "order-processing-group");
        let topic_reads = config.broker.then(|| Arc::new(topic_reads));
        let parts = StateParts {
            queries: Arc::new(Queries::new(
                orders.clone(),
                Arc::new(EmptyCache),
                clock.clone(),
                app::policy::breaker::Options::default(),
                1000,
            )),
            operations: Arc::new(OutboxOperations::new(
                Arc::new(UnusedPorts),
                outbox.clone(),
                Arc::new(UnusedPorts),
                clock.clone(),
                health.clone(),
            )),
            dead_letters,
            webhooks: None,
            topic_reads,
            admission: Arc::new(Admission::new(
                rate_limiter.clone(),
                Arc::new(WriteGate::default()),
                clock,
                app::admission::rate_limit::Options::default(),
            )),
            metrics: Arc::clone(&metrics),
            tracer: config.tracer,
            auth: Verifier::new(auth).unwrap(),
            options: config.options,
        };
        let state = HttpState::new(dispatch.clone(), parts);
        Self { state, dispatch, orders, outbox, rate_limiter, broker, redrives, health, metrics, topic_log }
    }

    /// Sends a request and reads the whole response.
    pub async fn send(&self, request: TestRequest) -> TestResponse {
        self.send_to(Surface::Both, request).await
    }

    pub async fn send_to(&self, surface: Surface, request: TestRequest) -> TestResponse {
        let app = init_service(App::new().configure(api::configure(Arc::clone(&self.state), surface))).await;
        let response = call_service(&app, request.to_request()).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = read_body(response).await.to_vec();
        TestResponse { status, headers, body }
    }

    /// Creates an order of `subject` and returns its id.
    pub async fn create_order(&self, subject: &str) -> String {
        let reply = self.send(post("/orders", ORDER).insert_header(user(subject))).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()["id"].as_str().unwrap().to_owned()
    }
}

pub const ORDER: &str = r#"{"items":[{"productName":"keyboard","quantity":2,"price":"12.990"}]}"#;

pub struct TestResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl TestResponse {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Asserts that the response is a complete problem, and returns it.
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/problem+json");
        let body = self.json();
        assert_eq!(body["code"], code);
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], "about:blank");
        assert_eq!(body["detail"], body["message"]);
        assert_eq!(body["requestId"], self.header("x-request-id"));
        assert_eq!(body["timestamp"], "2026-01-31T12:00:00.120Z");
        assert!(body["title"].is_string() && body["instance"].is_string());
        assert_eq!(status == 503, self.headers.contains_key("retry-after") && status >= 500);
        body
    }
}

pub fn get(path: &str) -> TestRequest {
    TestRequest::get().uri(path).peer_addr("10.1.1.1:5".parse().unwrap())
}

pub fn post(path: &str, body: &str) -> TestRequest {
    with_body(TestRequest::post().uri(path), body)
}

pub fn patch(path: &str, body: &str) -> TestRequest {
    with_body(TestRequest::patch().uri(path), body)
}

fn with_body(request: TestRequest, body: &str) -> TestRequest {
    request
        .peer_addr("10.1.1.1:5".parse().unwrap())
        .insert_header(("content-type", "application/json"))
        .insert_header(("content-length", body.len()))
        .set_payload(body.to_owned())
}

pub type HeaderPair = (&'static str, String);

pub fn bearer(token: &str) -> HeaderPair {
    ("authorization", format!("Bearer {token}"))
}

pub fn claims(subject: &str, roles: Value) -> Value {
    json!({"sub": subject, "roles": roles, "exp": NOW / 1000 + 600})
}

pub fn mint(claims: &Value) -> String {
    encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

pub fn user(subject: &str) -> HeaderPair {
    bearer(&mint(&claims(subject, json!(["USER"]))))
}

pub fn admin() -> HeaderPair {
    bearer(&mint(&claims("root", json!(["ADMIN"]))))
}
