//! From a partition of the grid to its rows, which are searched among a bounded number of rows.
use ports::partitions::PartitionNo;

use crate::console::access::{Browser, page};
use crate::support::test_server::*;

/// Adds a PENDING row with this id.
fn add_row(server: &TestServer, id: i64, partition: u32) {
    let mut rows = server.outbox.rows.lock();
    let mut row = rows[2].clone();
    (row.id, row.partition) = (id, PartitionNo(partition));
    rows.push(row);
}

#[actix_web::test]
async fn a_partition_of_the_grid_leads_to_its_rows() {
    let server = TestServer::new();
    add_row(&server, 5, 9);
    let browser = Browser::log_in(&server).await;
    let all = browser.get("/console/outbox").await.text();
    assert!(all.contains("href=\"/console/outbox?status=PENDING&amp;partition=0\""), "the grid: {all}");
    assert!(all.contains("href=\"/console/outbox?status=PENDING&amp;partition=9\">9<"), "the table: {all}");

    let text = page(&browser.get("/console/outbox?status=PENDING&partition=9").await, 200);

    assert!(text.contains("/console/outbox/5\"") && !text.contains("/console/outbox/3\""), "{text}");
    assert!(text.contains("name=\"partition\" value=\"9\""), "{text}");
    assert!(text.contains("/console/outbox?status=FAILED&amp;partition=9"), "other statuses of the partition: {text}");
    assert!(!text.contains("data-refresh"), "the search is not repeated: {text}");
    assert!(!text.contains("rows that match…"), "the actions would change other partitions: {text}");
    let none = browser.get("/console/outbox?status=PENDING&partition=8").await.text();
    assert!(none.contains("No rows match") && !none.contains("Next page"), "{none}");
    let refused = page(&browser.get("/console/outbox?partition=x").await, 400);
    assert!(refused.contains("must be the number of a partition") && refused.contains("value=\"x\""), "{refused}");
}

#[actix_web::test]
async fn a_search_for_a_partition_is_bounded_and_continues_on_the_next_page() {
    let server = TestServer::new();
    (5..2_400).for_each(|id| add_row(&server, id, 7));
    add_row(&server, 2_400, 9);
    let browser = Browser::log_in(&server).await;

    let first = browser.get("/console/outbox?status=PENDING&partition=9").await.text();
    assert!(first.contains("No rows match") && first.contains("2\u{202f}000 rows are searched"), "{first}");
    let next = first.split("rel=\"next\" href=\"").nth(1).expect("there is a next page").split('"').next().unwrap();
    assert!(browser.get(&next.replace("&amp;", "&")).await.text().contains("/console/outbox/2400\""));

    let full = browser.get("/console/outbox?status=PENDING&partition=7").await.text();
    assert_eq!(full.matches("<tr id=\"row-").count(), 50);
    let next = "href=\"/console/outbox?status=PENDING&amp;partition=7&amp;after=53\"";
    assert!(full.contains(next), "behind the fiftieth row: {full}");
}
