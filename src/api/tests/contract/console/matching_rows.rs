//! Actions on all rows that match a filter: counted first, then changed with a reason.
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use ports::outbox::RowStatus;

use crate::console::access::{Browser, page};
use crate::support::test_server::*;

/// Adds `count` FAILED rows with ids from 5 on.
fn add_failed_rows(server: &TestServer, count: i64) {
    let mut rows = server.outbox.rows.lock();
    let failed = rows[3].clone();
    rows.extend((0..count).map(|index| {
        let mut row = failed.clone();
        row.id = 5 + index;
        row
    }));
}

fn reasons(server: &TestServer) -> Vec<String> {
    server.outbox.audits.lock().iter().map(|audit| format!("{}: {}", audit.operator, audit.reason)).collect()
}

fn status(server: &TestServer, id: i64) -> RowStatus {
    server.outbox.rows.lock().iter().find(|row| row.id == id).expect("it exists").status
}

#[actix_web::test]
async fn all_failed_rows_of_a_filter_are_counted_and_then_retried() {
    let server = TestServer::new();
    add_failed_rows(&server, 12);
    let browser = Browser::log_in(&server).await;
    let list = browser.get("/console/outbox?status=FAILED&type=ORDER_CREATED").await.text();
    let path = "/console/outbox/matching?action=retry&amp;status=FAILED&amp;type=ORDER_CREATED";
    assert!(list.contains(path) && !list.contains("action=park&amp;status=PENDING"), "{list}");

    let counted = page(&browser.get(&path.replace("&amp;", "&")).await, 200);
    assert!(counted.contains("<strong>13</strong> FAILED rows match. Nothing was changed."), "{counted}");
    assert!(counted.contains("href=\"/console/outbox/4\"") && counted.contains("and 3 more"), "{counted}");
    assert!(counted.contains("name=\"matched\" value=\"13\"") && counted.contains("Retry 13 rows"), "{counted}");
    assert!(counted.contains("posthaste outbox list --status FAILED --type ORDER_CREATED"), "{counted}");
    assert!(reasons(&server).is_empty(), "counting changes nothing");

    // The form changes no more rows than it names, as when others have failed since the count.
    let fields = [("action", "retry"), ("status", "FAILED"), ("matched", "12"), ("reason", "the broker is back")];
    let done = browser.act("/console/outbox/matching", &fields).await;
    assert!(done.contains("retry: 12 rows were changed."), "{done}");
    assert_eq!(reasons(&server), ["root: the broker is back"].repeat(12));
    assert_eq!((status(&server, 15), status(&server, 16)), (RowStatus::Pending, RowStatus::Failed));
    assert_eq!(status(&server, 2), RowStatus::Parked, "other rows are left");
    let announced = server.dispatch.announced.lock();
    let on = ("on", "12 rows of outbox?status=FAILED".to_owned());
    assert!(announced.last().is_some_and(|(_, fields)| fields.contains(&on)), "{announced:?}");
}

#[actix_web::test]
async fn an_action_on_all_rows_needs_a_fitting_status_a_count_and_a_reason() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    for query in ["action=retry", "action=retry&status=PENDING", "action=park&status=PARKED", "status=FAILED"] {
        page(&browser.get(&format!("/console/outbox/matching?{query}")).await, 400);
    }
    let whole = [("action", "park"), ("status", "PENDING"), ("matched", "1"), ("reason", "x")];
    for missing in 0..whole.len() {
        let fields: Vec<_> = whole.into_iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, f)| f).collect();
        page(&browser.send("/console/outbox/matching", &fields).await, 400);
    }
    assert!(reasons(&server).is_empty());

    let counted = browser.get("/console/outbox/matching?action=park&status=PENDING").await.text();
    assert!(counted.contains("<strong>1</strong> PENDING row matches") && counted.contains("are blocked"), "{counted}");
    assert!(browser.act("/console/outbox/matching", &whole).await.contains("park: 1 row was changed."));
    assert_eq!(status(&server, 3), RowStatus::Parked);
    let none = browser.get("/console/outbox/matching?action=park&status=PENDING").await.text();
    assert!(none.contains("<strong>0</strong> PENDING rows match") && !none.contains("name=\"matched\""), "{none}");
}

#[actix_web::test]
async fn one_action_changes_a_thousand_rows_at_most() {
    let server = TestServer::new();
    add_failed_rows(&server, 1_200);
    let browser = Browser::log_in(&server).await;

    let counted = browser.get("/console/outbox/matching?action=park&status=FAILED").await.text();
    assert!(counted.contains("More than <strong>1000</strong> FAILED rows match"), "{counted}");
    assert!(counted.contains("name=\"matched\" value=\"1000\""), "{counted}");
    let fields = [("action", "park"), ("status", "FAILED"), ("matched", "10000"), ("reason", "x")];
    browser.act("/console/outbox/matching", &fields).await;

    assert_eq!(reasons(&server).len(), 1_000);
    let rest = browser.get("/console/outbox/matching?action=park&status=FAILED").await.text();
    assert!(rest.contains("<strong>201</strong> FAILED rows match."), "{rest}");
}

#[actix_web::test]
async fn an_action_on_all_rows_ends_before_the_request_does() {
    let server = TestServer::new();
    add_failed_rows(&server, 20);
    let browser = Browser::log_in(&server).await;
    let fields = [("action", "retry"), ("status", "FAILED"), ("matched", "21"), ("reason", "x")];
    tokio::time::pause();
    let limit = TestConfig::default().options.request_timeout;
    *server.outbox.action_time.lock() = limit / 10;

    let done = browser.act("/console/outbox/matching", &fields).await;

    assert!(done.contains("8 rows were changed. The time was up: count again for the others."), "{done}");
    *server.outbox.action_time.lock() = Duration::ZERO;
    assert_eq!(reasons(&server).len(), 8);
}

#[actix_web::test]
async fn rows_that_an_action_changed_before_the_store_failed_are_reported() {
    let server = TestServer::new();
    add_failed_rows(&server, 5);
    let browser = Browser::log_in(&server).await;
    let fields = [("action", "retry"), ("status", "FAILED"), ("matched", "6"), ("reason", "again")];

    // The list, and the state of two rows.
    server.outbox.reads_left.store(3, SeqCst);
    let reply = browser.send("/console/outbox/matching", &fields).await;

    assert_eq!(reply.status, 500);
    assert!(reply.text().contains("retry of 2 rows of outbox?status=FAILED"), "{}", reply.text());
    assert_eq!(reasons(&server).len(), 2);
}
