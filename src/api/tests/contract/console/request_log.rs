//! The level at which requests of the console are logged.
use std::cell::Cell;
use std::sync::Once;

use actix_web::test::TestRequest;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::console::access::{Browser, form};
use crate::support::test_server::*;

thread_local! {
    /// The level of the last request's line. A test and its requests share one thread.
    static LAST_LEVEL: Cell<Option<Level>> = const { Cell::new(None) };
}

/// Records the level of each request's line. Global, because the tests of other threads decide which lines are enabled.
struct RequestLevels;

impl Subscriber for RequestLevels {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        if event.metadata().fields().field("duration_ms").is_some() {
            LAST_LEVEL.set(Some(*event.metadata().level()));
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[actix_web::test]
async fn only_refreshes_of_a_session_are_left_out_of_the_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(RequestLevels).unwrap());
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let level_of = async |request: TestRequest| {
        server.send(request.insert_header(("x-refresh", "1"))).await;
        LAST_LEVEL.take().expect("every request has a line")
    };
    let cookie = ("cookie", browser.cookie.as_str());

    assert_eq!(level_of(get("/console").insert_header(cookie)).await, Level::DEBUG);
    assert_eq!(level_of(get("/livez")).await, Level::DEBUG);
    assert_eq!(level_of(form("/console/login", &[("token", "guess")])).await, Level::INFO);
    assert_eq!(level_of(get("/console/login")).await, Level::INFO);
    assert_eq!(level_of(get("/console")).await, Level::INFO, "without a session");
    assert_eq!(level_of(form("/console/logout", &[]).insert_header(cookie)).await, Level::INFO);
}
