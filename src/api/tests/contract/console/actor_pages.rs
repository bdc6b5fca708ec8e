//! What actors do and what happened to them: the load of each kind, and the page of one actor.
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use app::dispatch::LiveEvent;

use crate::console::access::{Browser, page};
use crate::support::test_server::*;

const WORKER: &str = "/relay/partition-worker-7";

fn life_of(child: &str, seq: u64, event: &str) -> LiveEvent {
    let data = serde_json::json!({"child": child, "actor": "PartitionWorker", "generation": seq}).to_string();
    LiveEvent { seq, event: event.to_owned(), data, age: Duration::from_secs(1) }
}

#[actix_web::test]
async fn an_actor_has_a_page_with_its_state_and_its_last_fifty_events() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let mut events = vec![life_of("/relay/partition-worker-70", 100, "child_started")];
    events.extend((101..=160).map(|seq| life_of(WORKER, seq, "child_restarted")));
    *server.dispatch.lifecycle.lock() = events;
    let tree = browser.get("/console/actors").await.text();
    let href = format!("/console/actors{WORKER}");
    assert!(tree.contains(&format!("href=\"{href}\"")), "{tree}");

    let text = page(&browser.get(&href).await, 200);

    for expected in [
        "running</span> for 2 min, generation 2.",
        "PartitionWorker",
        "partitions, one_for_one",
        "0 of 5 restarts in 30 s",
        "Kill (panic)",
        "is back as generation 160",
        "is back as generation 111",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(!text.contains("is back as generation 110") && !text.contains("partition-worker-70"), "{text}");
    assert!(text.find("generation 160") < text.find("generation 111"), "newest first");
}

#[actix_web::test]
async fn an_actor_shows_the_work_that_it_has_in_progress() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let path = format!("/console/actors{WORKER}");
    assert!(browser.get(&path).await.text().contains("<th scope=\"row\">In progress</th><td>–</td>"));

    *server.dispatch.in_progress.lock() = Some("batch 9 of partition 7: row 6 of key <k>".to_owned());

    for path in [&*path, "/console/actors"] {
        let text = page(&browser.get(path).await, 200);
        assert!(text.contains("batch 9 of partition 7: row 6 of key &lt;k&gt;"), "{text}");
    }
    let document = server.send(get("/admin/actors").insert_header(admin())).await.json();
    assert!(document["actors"][0].get("inProgress").is_none(), "the released shape: {document}");
}

#[actix_web::test]
async fn a_worker_shows_the_events_of_its_partitions_lease() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let of_partition = |seq: u64, event: &str, partition: &str| {
        let data = serde_json::json!({"partition": partition, "epoch": "4", "reason": "unowned"}).to_string();
        LiveEvent { seq, event: event.to_owned(), data, age: Duration::from_secs(1) }
    };
    let other = [of_partition(101, "lease_acquired", "70"), of_partition(102, "message_dead_lettered", "7")];
    server.dispatch.lifecycle.lock().extend(other);
    server.dispatch.lifecycle.lock().push(of_partition(103, "lease_acquired", "7"));

    let text = page(&browser.get(&format!("/console/actors{WORKER}")).await, 200);

    assert!(text.contains("Partition 7 was acquired under epoch 4"), "{text}");
    assert!(!text.contains("Partition 70") && !text.contains("dead letters:"), "{text}");
}

#[actix_web::test]
async fn an_actor_that_was_removed_keeps_its_events() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let path = "/relay/partition-worker-9";
    page(&browser.get(&format!("/console/actors{path}")).await, 404);

    server.dispatch.lifecycle.lock().push(life_of(path, 9, "child_terminated"));
    let text = page(&browser.get(&format!("/console/actors{path}")).await, 200);

    assert!(text.contains("not in the tree") && text.contains("ended and is not restarted"), "{text}");
    assert!(!text.contains("Kill (panic)"), "{text}");
}

#[actix_web::test]
async fn actors_show_what_each_kind_handles_a_second_and_its_p95() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let times = server.metrics.actor_message_duration_seconds.with(["PartitionWorker"]);
    let idle = browser.get("/console/actors").await.text();
    assert!(idle.contains("data-label=\"Handled per second\">–<"), "no samples yet: {idle}");

    server.state.sample_depth();
    server.dispatch.clock.0.fetch_add(2_000, SeqCst);
    (0..30).for_each(|_| times.record(Duration::from_millis(4)));
    server.state.sample_depth();

    let text = browser.get("/console/actors").await.text();
    assert!(text.contains("id=\"load-PartitionWorker\""), "{text}");
    assert!(text.contains("data-label=\"Handled per second\">15.0<"), "{text}");
    assert!(text.contains("data-label=\"p95 of a message\">4.9 ms<"), "within its bucket: {text}");
    let one = browser.get(&format!("/console/actors{WORKER}")).await.text();
    assert!(one.contains("15.0 per second, p95 4.9 ms"), "{one}");
}
