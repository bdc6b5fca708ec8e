//! The rows of one partition of the outbox: from the grid, over HTTP, and in the actions on all rows that match.
use ports::outbox::RowStatus;
use ports::partitions::PartitionNo;

use crate::console::access::{Browser, page};
use crate::support::test_server::*;

/// A server that also has a PENDING and a FAILED row, 5 and 6, in partition 9.
fn server_with_two_partitions() -> TestServer {
    let server = TestServer::new();
    let mut rows = server.outbox.rows.lock();
    for (like, id) in [(2, 5), (3, 6)] {
        let mut row = rows[like].clone();
        (row.id, row.partition) = (id, PartitionNo(9));
        rows.push(row);
    }
    drop(rows);
    server
}

#[actix_web::test]
async fn a_partition_of_the_grid_leads_to_its_rows() {
    let server = server_with_two_partitions();
    let browser = Browser::log_in(&server).await;
    let all = browser.get("/console/outbox").await.text();
    assert!(all.contains("href=\"/console/outbox?status=PENDING&amp;partition=0\""), "the grid: {all}");
    assert!(all.contains("href=\"/console/outbox?status=PENDING&amp;partition=9\">9<"), "the table: {all}");

    let text = page(&browser.get("/console/outbox?status=PENDING&partition=9").await, 200);

    assert!(text.contains("/console/outbox/5\"") && !text.contains("/console/outbox/3\""), "{text}");
    for expected in [
        "name=\"partition\" value=\"9\"",
        "/console/outbox?status=FAILED&amp;partition=9",
        "/console/outbox/redrive?partition=9",
        "/console/outbox/matching?action=park&amp;status=PENDING&amp;partition=9",
        "/admin/outbox?status=PENDING&amp;partition=9",
        "posthaste outbox list --status PENDING --partition 9",
        "data-refresh",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(browser.get("/console/outbox?status=PENDING&partition=8").await.text().contains("No rows match"));
    let refused = page(&browser.get("/console/outbox?partition=x").await, 400);
    assert!(refused.contains("must be the number of a partition") && refused.contains("value=\"x\""), "{refused}");
}

#[actix_web::test]
async fn lists_that_no_index_serves_are_not_read_every_two_seconds() {
    let server = server_with_two_partitions();
    let browser = Browser::log_in(&server).await;

    for (query, refreshes) in [("?partition=9", false), ("?status=SENT&partition=9", false), ("?status=SENT", true)] {
        let text = browser.get(&format!("/console/outbox{query}")).await.text();
        assert_eq!(text.contains("data-refresh"), refreshes, "{query}");
        assert_eq!(text.contains("The page is not updated by itself"), !refreshes, "{query}");
    }
}

#[actix_web::test]
async fn rows_of_a_partition_are_listed_over_http() {
    let server = server_with_two_partitions();
    let list = async |query: &str| server.send(get(&format!("/admin/outbox{query}")).insert_header(admin())).await;
    let ids = async |query: &str| {
        let rows = list(query).await.json()["rows"].as_array().cloned().unwrap_or_default();
        rows.iter().filter_map(|row| row["id"].as_i64()).collect::<Vec<_>>()
    };

    assert_eq!(ids("?partition=9").await, [5, 6]);
    assert_eq!(ids("?partition=9&status=FAILED").await, [6]);
    assert_eq!(ids("?partition=").await, [1, 2, 3, 4, 5, 6]);
    assert_eq!(ids("?partition=2147483647").await, [0_i64; 0]);
    for invalid in ["x", "-1", "%2B1", "1.0", "2147483648"] {
        let refused = list(&format!("?partition={invalid}")).await.problem(400, "BAD_REQUEST");
        assert_eq!(refused["errors"][0]["field"], "partition", "{invalid}");
    }
}

#[actix_web::test]
async fn actions_on_all_matching_rows_keep_to_the_partition() {
    let server = server_with_two_partitions();
    let browser = Browser::log_in(&server).await;

    let path = "/console/outbox/matching?action=retry&status=FAILED&partition=9";
    let counted = page(&browser.get(path).await, 200);
    assert!(counted.contains("<strong>1</strong> FAILED row matches"), "{counted}");
    assert!(counted.contains("<input type=\"hidden\" name=\"partition\" value=\"9\""), "the form's: {counted}");
    assert!(counted.contains("posthaste outbox list --status FAILED --partition 9"), "{counted}");
    let redrive = page(&browser.get("/console/outbox/redrive?partition=9").await, 200);
    assert!(redrive.contains("posthaste outbox redrive --dry-run --partition 9"), "{redrive}");

    let fields =
        [("action", "retry"), ("status", "FAILED"), ("partition", "9"), ("matched", "1"), ("reason", "one broker")];
    browser.act("/console/outbox/matching", &fields).await;
    let status = |id| server.outbox.rows.lock().iter().find(|row| row.id == id).expect("it exists").status;
    assert_eq!((status(4), status(6)), (RowStatus::Failed, RowStatus::Pending));
}
