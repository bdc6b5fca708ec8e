//! One service over fakes, and the shortest way to ask it something.
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use actix_web::App;
use actix_web::http::header::HeaderMap;
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use api::auth::{self, Source, Verifier};
use api::{Options, Parts, State, Surface};
use app::admission::gate::Gate;
use app::admission::rate_limit::{self, Admission};
use app::health::{Component, HealthBoard};
use app::operators::dead_letters::DeadLetters;
use app::operators::outbox::Operations;
use app::queries::Queries;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use kit::{Reference, TestClock};
use parking_lot::Mutex;
use serde_json::{Value, json};
use telemetry::Metrics;

use crate::desk::Desk;
use crate::fakes::{Bucket, NoCache, Orders, Rows, Silent, Watch};

pub const SECRET: &str = "a secret of the tests";
/// 2026-01-31T12:00:00.120Z
pub const NOW: i64 = 1_769_860_800_120;

pub struct House {
    pub state: Arc<State>,
    pub desk: Arc<Desk>,
    pub orders: Arc<Orders>,
    pub rows: Arc<Rows>,
    pub bucket: Arc<Bucket>,
    /// Where dead letters stand.
    pub log: Reference,
    pub vitals: HealthBoard,
    pub metrics: Arc<Metrics>,
}

pub struct Plan {
    pub source: Source,
    pub auth: fn(&mut auth::Options),
    pub options: Options,
    pub tokens: u32,
    pub faults_enabled: bool,
    pub broker: bool,
}

impl Default for Plan {
    fn default() -> Self {
        let options = Options {
            listen: "127.0.0.1:0".into(),
            region: "r1".into(),
            instance: "one".into(),
            workers: 1,
            ..Options::default()
        };
        Self {
            source: Source::Secret(SECRET.into()),
            auth: |_| {},
            options,
            tokens: 1_000_000,
            faults_enabled: true,
            broker: true,
        }
    }
}

impl House {
    pub fn new() -> Self {
        Self::planned(Plan::default())
    }

    pub fn planned(plan: Plan) -> Self {
        let clock = Arc::new(Watch(AtomicI64::new(NOW)));
        let orders = Arc::new(Orders::default());
        let rows = Arc::new(Rows::default());
        let bucket = Arc::new(Bucket { tokens: Mutex::new(plan.tokens), asked: Mutex::default() });
        let vitals = HealthBoard::default();
        vitals.update(|snapshot| {
            snapshot.started = true;
            snapshot.breaker = "closed";
            snapshot.broker_configured = true;
            let latency = Duration::from_millis(2);
            snapshot.components = vec![Component { name: "db", up: true, gates: true, latency, detail: None }];
        });
        let metrics = Metrics::new();
        let mut desk = Desk::new(Arc::clone(&orders), Arc::clone(&clock));
        desk.faults_enabled = plan.faults_enabled;
        let desk = Arc::new(desk);
        let mut auth = auth::Options::new(plan.source);
        (plan.auth)(&mut auth);
        let log = Reference::new(TestClock::default());
        let port = || Arc::new(log.clone());
        let letters = || DeadLetters::new("order.events", port(), port(), port(), clock.clone());
        let dead_letters = plan.broker.then(|| Arc::new(letters()));
        let state = State::new(Parts {
            dispatch: desk.clone(),
            queries: Arc::new(Queries::new(orders.clone(), Arc::new(NoCache), clock.clone(), 1000)),
            operations: Arc::new(Operations::new(
                Arc::new(Silent),
                rows.clone(),
                Arc::new(Silent),
                clock.clone(),
                vitals.clone(),
            )),
            dead_letters,
            admission: Arc::new(Admission::new(
                bucket.clone(),
                Arc::new(Gate::default()),
                clock,
                rate_limit::Options::default(),
            )),
            metrics: Arc::clone(&metrics),
            auth: Verifier::new(auth).unwrap(),
            options: plan.options,
        });
        Self { state, desk, orders, rows, bucket, log, vitals, metrics }
    }

    /// Asks and reads the whole answer.
    pub async fn ask(&self, question: TestRequest) -> Reply {
        self.ask_at(Surface::Both, question).await
    }

    pub async fn ask_at(&self, surface: Surface, question: TestRequest) -> Reply {
        let app = init_service(App::new().configure(api::configure(Arc::clone(&self.state), surface))).await;
        let answer = call_service(&app, question.to_request()).await;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = read_body(answer).await.to_vec();
        Reply { status, headers, body }
    }

    /// Places an order of `subject` and returns its id.
    pub async fn place(&self, subject: &str) -> String {
        let reply = self.ask(post("/orders", ORDER).insert_header(user(subject))).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()["id"].as_str().unwrap().to_owned()
    }
}

pub const ORDER: &str = r#"{"items":[{"productName":"keyboard","quantity":2,"price":"12.990"}]}"#;

pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Holds the answer to be a problem with the whole envelope.
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
