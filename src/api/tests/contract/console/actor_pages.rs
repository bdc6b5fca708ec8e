//! What actors do: the load of each kind.
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::console::access::Browser;
use crate::support::test_server::*;

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
}
