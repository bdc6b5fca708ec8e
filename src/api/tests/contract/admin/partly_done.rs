//! Operator actions that fail after a part of them was done: the response never says that nothing was changed.
use std::sync::atomic::Ordering::SeqCst;

use ports::outbox::RowStatus;
use serde_json::json;

use crate::console::access::Browser;
use crate::dead_letters::dead_letter_records;
use crate::support::test_server::*;

/// Sends an operator's command whose response must be a 500 that contains this text.
async fn assert_partly_done(server: &TestServer, path: &str, body: &str, done: &str) {
    let problem = server.send(post(path, body).insert_header(admin())).await.problem(500, "UNEXPECTED_ERROR");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains(done) && !detail.contains("secret-host"), "{detail}");
}

#[actix_web::test]
async fn a_changed_row_that_cannot_be_read_was_still_changed() {
    let server = TestServer::new();
    server.outbox.reads_left.store(0, SeqCst);

    assert_partly_done(&server, "/admin/outbox/2/retry", "", "row 2 was made due").await;
    assert_partly_done(&server, "/admin/outbox/4/park", "", "row 4 was parked").await;
    let unread = server.send(get("/admin/outbox/2").insert_header(admin())).await;
    unread.problem(503, "INFRASTRUCTURE_ERROR");
}

#[actix_web::test]
async fn a_paced_redrive_of_rows_names_the_rows_of_earlier_steps() {
    let server = TestServer::new();
    server.outbox.rows.lock().iter_mut().for_each(|row| row.status = RowStatus::Parked);
    let paced = json!({"rate": 10, "dryRun": false}).to_string();

    server.outbox.reads_left.store(2, SeqCst);
    assert_partly_done(&server, "/admin/outbox/redrive", &paced, "rows made due: 2").await;
    server.outbox.reads_left.store(0, SeqCst);
    let first = server.send(post("/admin/outbox/redrive", &paced).insert_header(admin())).await;
    first.problem(503, "INFRASTRUCTURE_ERROR");
}

#[actix_web::test]
async fn rows_that_were_changed_before_a_failure_are_announced() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let fields = [("action", "retry"), ("row", "2"), ("row", "4"), ("reason", "again")];

    server.outbox.reads_left.store(1, SeqCst);
    let reply = browser.send("/console/outbox/bulk", &fields).await;

    assert_eq!(reply.status, 500);
    assert!(reply.text().contains("retry of rows 2"), "{}", reply.text());
    let announced = server.dispatch.announced.lock();
    assert!(announced.last().is_some_and(|(_, fields)| fields.contains(&("on", "rows 2".to_owned()))), "{announced:?}");
    assert_eq!(server.outbox.audits.lock().len(), 1);
}

#[actix_web::test]
async fn a_replay_that_cannot_be_confirmed_keeps_its_reservation() {
    let server = TestServer::new();
    let partition = dead_letter_records(&server, 2).await;
    let (one, commit) = (format!("/admin/dlt/{partition}/0/redrive"), r#"{"dryRun":false}"#);

    server.redrives.confirmations_left.store(0, SeqCst);
    assert_partly_done(&server, &one, commit, "dead letters sent back: 1 without a record of it").await;
    let again = server.send(post(&one, commit).insert_header(admin())).await;
    again.problem(409, "CONFLICT");

    server.redrives.confirmations_left.store(u32::MAX, SeqCst);
    server.redrives.reads_left.store(1, SeqCst);
    let other = format!("/admin/dlt/{partition}/1/redrive");
    assert_partly_done(&server, &other, commit, "dead letters sent back: 1").await;
}

#[actix_web::test]
async fn a_redrive_names_the_dead_letters_of_earlier_pages() {
    let server = TestServer::new();
    dead_letter_records(&server, 501).await;

    server.redrives.reservations_left.store(1, SeqCst);
    assert_partly_done(&server, "/admin/dlt/redrive", r#"{"dryRun":false}"#, "dead letters sent back: 500").await;
    let unchanged = server.send(post("/admin/dlt/redrive", r#"{"dryRun":false}"#).insert_header(admin())).await;
    unchanged.problem(503, "INFRASTRUCTURE_ERROR");
}

#[actix_web::test]
async fn a_paced_redrive_names_the_dead_letters_of_earlier_steps() {
    let server = TestServer::new();
    dead_letter_records(&server, 3).await;
    let paced = json!({"rate": 10, "dryRun": false}).to_string();

    server.redrives.confirmations_left.store(2, SeqCst);

    let both = "dead letters sent back: 2; dead letters sent back: 1 without a record of it";
    assert_partly_done(&server, "/admin/dlt/redrive", &paced, both).await;
}
