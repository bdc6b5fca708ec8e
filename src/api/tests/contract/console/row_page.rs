//! The page of one row: the path of its states with their branches, and its history.
use std::time::Duration;

use app::dispatch::LiveEvent;
use serde_json::json;

use crate::console::access::Browser;
use crate::support::test_server::*;

/// The part of a row's page between its heading and the record.
async fn history(browser: &Browser<'_>, id: i64) -> String {
    let text = browser.get(&format!("/console/outbox/{id}")).await.text();
    let part = text.split("<h2>Path</h2>").nth(1).and_then(|rest| rest.split("<h2>Record</h2>").next());
    part.expect("the page has a path").to_owned()
}

#[actix_web::test]
async fn a_row_shows_its_path_and_the_branch_that_it_took() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;

    let sent = history(&browser, 1).await;
    assert!(sent.contains("claimed by one with token 5") && sent.contains("order.events, partition 3"), "{sent}");
    assert!(sent.contains("aria-current=\"step\"><span class=\"state good\"><span aria-hidden=\"true\">●"), "{sent}");
    let parked = history(&browser, 2).await;
    assert!(parked.contains("NETWORK: refused") && parked.contains("after attempt 2: refused"), "{parked}");
    assert!(parked.contains("Attempt 2 by one with token 5 failed: refused"), "{parked}");
    let blocked = history(&browser, 3).await;
    assert!(blocked.contains("; waits behind <a href=\"/console/outbox/2\">row 2</a>, which is PARKED"), "{blocked}");
    assert!(blocked.contains("not reached"), "{blocked}");
}

#[actix_web::test]
async fn the_history_says_what_became_of_the_batch_of_the_last_claim() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let resolved = |partition: &str, token: &str| {
        let data = json!({"partition": partition, "epoch": "4", "token": token, "verdict": "ClaimerDied"}).to_string();
        let mut events = server.dispatch.lifecycle.lock();
        let seq = 100 + events.len() as u64;
        events.push(LiveEvent { seq, event: "batch_resolved".into(), data, age: Duration::ZERO });
    };
    resolved("7", "4");
    resolved("8", "5");
    assert!(!history(&browser, 4).await.contains("left open"), "batches of other claims");

    resolved("7", "5");
    let text = history(&browser, 4).await;
    assert!(text.contains("Batch 5 of partition 7, which an earlier claim left open: its claimer died"), "{text}");
}
