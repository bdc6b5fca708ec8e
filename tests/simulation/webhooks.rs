//! Deliveries to a webhook with the default delays and breaker: an outage of its endpoint, of its consumer and of the delivery log.
mod earlier_failures;
mod events_without_keys;
mod fixture;
mod restarts;

use std::sync::Arc;
use std::time::Duration;

use kit::faults::{Call, InjectedFault};
use ports::clock::Clock;
use ports::endpoint::webhooks::{Webhook, WebhookStore};
use tokio::time::Instant;

use crate::support::environment::Environment;
use crate::support::external_events::{publish, publish_of_key};
use crate::support::log_capture::LogCapture;
use crate::support::process::{Process, TIMEOUT};
use crate::support::scripted_endpoint::{ScriptedEndpoint, unreachable};
use fixture::{start, start_in, webhook};

const HOUR: Duration = Duration::from_secs(3_600);

async fn dead_letters(process: &Process) -> usize {
    process.records("webhooks-dlt").await.len()
}

#[tokio::test(start_paused = true)]
async fn outage_of_the_endpoint_makes_no_event_a_dead_letter() {
    let endpoint = ScriptedEndpoint::new(|_| unreachable());
    let (_environment, process) = start(&endpoint, true).await;
    publish(&process, "a", None).await;
    process.advance(HOUR * 5 / 2).await;
    assert!(endpoint.received().len() > 5, "it is tried again and again: {:?}", endpoint.received());
    assert_eq!(dead_letters(&process).await, 0);

    endpoint.set(|_| Ok(200));

    process.wait_until("the event is delivered", 2 * HOUR, async || !endpoint.accepted().is_empty()).await;
    process.advance(HOUR + TIMEOUT).await;
    assert_eq!(endpoint.accepted(), ["a"]);
}

/// The endpoint refuses everything for twelve minutes, and its key has an event every ten: the fourth attempt at the first one succeeds after 71
/// minutes.
#[tokio::test(start_paused = true)]
async fn key_with_steady_events_is_delivered_without_delay_again_after_its_retries() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(500));
    let (_environment, process) = start(&endpoint, true).await;
    let every = Duration::from_secs(600);
    for number in 0..9 {
        if number == 2 {
            endpoint.set(|_| Ok(200));
        }
        publish_of_key(&process, "k", &number.to_string(), None).await;
        process.advance(every).await;
    }

    for number in 9..15 {
        publish_of_key(&process, "k", &number.to_string(), None).await;
        process.wait_until("it is delivered", TIMEOUT, async || endpoint.accepted().len() == number + 1).await;
        process.advance(every).await;
    }
    assert_eq!(endpoint.accepted(), (0..15).map(|number| number.to_string()).collect::<Vec<_>>());
    let last = process.records("webhooks-retry-3").await.len();
    assert!(last <= 9, "the later events pass the retry topics no more: {last}");
}

#[tokio::test(start_paused = true)]
async fn event_that_alone_is_never_answered_is_a_dead_letter() {
    let endpoint = ScriptedEndpoint::new(|body| if body == "poison" { unreachable() } else { Ok(200) });
    let (_environment, process) = start(&endpoint, false).await;
    publish(&process, "poison", None).await;

    // The fifth attempt comes after 71 minutes.
    for number in 0..220 {
        publish(&process, &number.to_string(), None).await;
        process.advance(Duration::from_secs(20)).await;
    }

    assert_eq!(dead_letters(&process).await, 1);
    assert_eq!(endpoint.received().iter().filter(|body| *body == "poison").count(), 5);
    assert_eq!(endpoint.accepted().len(), 220, "it delays no other event");
}

/// Publishes an event, and another one in each of the three hours of its first six attempts.
async fn deliver_with_rare_others(process: &Process, body: &str) {
    publish(process, body, None).await;
    for number in 0..3 {
        process.advance(HOUR * 5 / 6).await;
        publish(process, &number.to_string(), None).await;
        process.advance(HOUR / 6).await;
    }
}

#[tokio::test(start_paused = true)]
async fn event_that_a_rarely_used_endpoint_never_answers_is_a_dead_letter() {
    let endpoint = ScriptedEndpoint::new(|body| if body == "poison" { unreachable() } else { Ok(200) });
    let (_environment, process) = start(&endpoint, false).await;

    deliver_with_rare_others(&process, "poison").await;

    assert_eq!(dead_letters(&process).await, 1);
    assert_eq!(endpoint.accepted().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_asks_for_fewer_requests_makes_no_event_a_dead_letter() {
    for status in [429, 503] {
        let endpoint = ScriptedEndpoint::new(move |body| if body == "a" { Ok(status) } else { Ok(200) });
        let (_environment, process) = start(&endpoint, false).await;

        deliver_with_rare_others(&process, "a").await;

        let attempts = endpoint.received().iter().filter(|body| *body == "a").count();
        assert!(attempts > 5, "{status}: {attempts} attempts");
        assert_eq!(dead_letters(&process).await, 0, "{status}");
        endpoint.set(|_| Ok(200));
        process.wait_until("it is delivered", 2 * HOUR, async || endpoint.accepted().contains(&"a".to_owned())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn consumer_that_dies_while_it_probes_the_endpoint_probes_it_again() {
    let endpoint = ScriptedEndpoint::new(|_| unreachable());
    let (_environment, process) = start(&endpoint, false).await;
    for body in ["a", "b", "c", "d", "e"] {
        publish(&process, body, None).await;
    }
    let is_down = async || process.statistics("webhook_endpoints_down") == [1.0];
    process.wait_until("the breaker opens", TIMEOUT, is_down).await;
    let before = endpoint.received().len();

    endpoint.set(|_| panic!("a bug"));
    process.wait_until("a probe dies", TIMEOUT * 2, async || endpoint.received().len() > before).await;
    endpoint.set(|_| Ok(200));

    process.wait_until("all are delivered", HOUR, async || endpoint.accepted().len() >= 5).await;
    assert_eq!(process.statistics("webhook_endpoints_down"), [0.0]);
}

#[tokio::test(start_paused = true)]
async fn wall_clock_that_was_ahead_neither_shortens_a_retry_nor_dates_a_signature() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(500));
    let mut environment = Environment::new();
    environment.options.webhooks.retry_delays = [60; 4].map(Duration::from_secs);
    let (environment, process) = start_in(environment, &endpoint, true).await;
    publish(&process, "a", None).await;
    let waits = async || process.records("webhooks-retry-0").await.len() == 1;
    process.wait_until("its first attempt has failed", TIMEOUT, waits).await;
    let failed_at = Instant::now();
    drop(process);

    environment.clock.jump_ahead_once(2 * HOUR);
    let process = environment.start().await;
    process.wait_until("it is tried again", 4 * TIMEOUT, async || endpoint.received().len() >= 2).await;

    assert!(failed_at.elapsed() > Duration::from_secs(59), "after {:?}", failed_at.elapsed());
    let since_signature = environment.clock.wall().millis() / 1_000 - endpoint.signed_at()[1];
    assert!((0..=10).contains(&since_signature), "{since_signature} s");
}

#[tokio::test(start_paused = true)]
async fn failing_delivery_log_repeats_no_delivery() {
    let logs = LogCapture::start();
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let (environment, process) = start(&endpoint, false).await;
    environment.script.always(Call::RecordDeliveries, InjectedFault::Unreachable);
    for body in ["a", "b", "c"] {
        publish(&process, body, None).await;
        process.advance(Duration::from_secs(20)).await;
    }

    assert_eq!(endpoint.received(), ["a", "b", "c"]);
    assert_eq!(
        logs.fields("webhook_deliveries_not_recorded", ["webhook"]).len(),
        1,
        "the change is logged, not each poll"
    );
    environment.script.clear();
    publish(&process, "d", None).await;
    process.wait_until("it is delivered", TIMEOUT, async || endpoint.accepted().len() == 4).await;
    process.advance(Duration::from_secs(1)).await;
    let id = process.store.webhooks().await.expect("the store works")[0].id;
    let recorded = process.store.deliveries(id).await.expect("the store works");
    assert_eq!(recorded.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["d"]);
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_the_posts_under_way_and_begins_no_other() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let mut environment = Environment::new();
    environment.options.webhooks.parallel = 1;
    let (environment, process) = start_in(environment, &endpoint, true).await;
    endpoint.set_delay(Duration::from_secs(9));
    for body in ["a", "b", "c"] {
        publish(&process, body, None).await;
    }
    process.wait_until("a POST is under way", TIMEOUT, async || !endpoint.received().is_empty()).await;

    process.stop().await;

    let delivered = endpoint.received();
    assert_eq!((delivered.len(), endpoint.accepted()), (1, delivered.clone()));
    let process = environment.start().await;
    process.wait_until("all are delivered", TIMEOUT, async || endpoint.accepted().len() >= 3).await;
    process.advance(TIMEOUT).await;
    let mut accepted = endpoint.accepted();
    accepted.sort();
    assert_eq!(accepted, ["a", "b", "c"], "none is delivered twice");
}

/// The alert of a stopped actor compares both numbers.
#[tokio::test(start_paused = true)]
async fn consumer_of_a_deleted_webhook_is_neither_registered_nor_up() {
    let endpoint = ScriptedEndpoint::new(|_| unreachable());
    let (_environment, process) = start(&endpoint, true).await;
    let actors = async |expected: [i64; 2]| {
        let metrics = &process.metrics;
        let numbers =
            || [&metrics.actor_registered, &metrics.actor_up].map(|actors| actors.with(["ConsumerActor"]).get());
        process.wait_until("the numbers of consumers", TIMEOUT, async || numbers() == expected).await;
    };
    let consumers = process.bus().snapshot().iter().filter(|row| row.kind == "ConsumerActor").count() as i64;
    actors([consumers + 1; 2]).await;
    let is_of_webhook = |path: &String| path.starts_with("/webhooks/") && !path.ends_with("/webhook-manager");
    let path = process.bus().snapshot().into_iter().map(|row| row.path).find(is_of_webhook);
    process.bus().pause(&path.expect("the webhook has a consumer"), "test").expect("it runs");
    actors([consumers + 1, consumers]).await;

    let webhook = process.store.webhooks().await.expect("the store works").remove(0);
    process.store.delete_webhook(webhook.id).await.expect("the store works");

    actors([consumers; 2]).await;
}

/// Starts with a slow endpoint and three events of one key in one poll, of which the first POST is under way.
async fn start_with_slow_posts(endpoint: &Arc<ScriptedEndpoint>) -> (Environment, Process) {
    endpoint.set_delay(Duration::from_secs(15));
    let mut environment = Environment::new();
    // Longer than the relay needs: the first poll finds all events.
    environment.options.webhooks.refresh = Duration::from_secs(10);
    let (environment, process) = start_in(environment, endpoint, true).await;
    for body in ["a", "b", "c"] {
        publish_of_key(&process, "k", body, None).await;
    }
    process.wait_until("the first POST is under way", TIMEOUT, async || !endpoint.received().is_empty()).await;
    (environment, process)
}

#[tokio::test(start_paused = true)]
async fn deliveries_that_had_not_begun_before_a_change_go_to_the_new_url() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let (_environment, process) = start_with_slow_posts(&endpoint).await;

    let moved = Webhook { version: 2, url: "https://moved.example.org".into(), ..webhook(1, true) };
    assert!(process.store.save_webhook(&moved).await.expect("the store works"));

    process.wait_until("all are delivered", 4 * TIMEOUT, async || endpoint.accepted().len() == 3).await;
    assert_eq!(endpoint.received(), ["a", "b", "c"]);
    assert_eq!(endpoint.urls(), ["https://example.org", &moved.url, &moved.url]);
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_is_gone_undoes_no_change_of_the_order() {
    let endpoint = ScriptedEndpoint::new(|body| if body == "a" { Ok(200) } else { Ok(410) });
    let (_environment, process) = start_with_slow_posts(&endpoint).await;

    let unordered = Webhook { version: 2, ..webhook(1, false) };
    assert!(process.store.save_webhook(&unordered).await.expect("the store works"));

    let stored = async || process.store.webhooks().await.expect("the store works").remove(0);
    process.wait_until("the webhook is disabled", 4 * TIMEOUT, async || !stored().await.active).await;
    let disabled = stored().await;
    assert_eq!((disabled.version, disabled.ordered, endpoint.received().len()), (3, false, 2));
}

#[tokio::test(start_paused = true)]
async fn inactive_webhook_receives_no_delivery_that_had_not_begun() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let (_environment, process) = start_with_slow_posts(&endpoint).await;

    let inactive = Webhook { version: 2, active: false, ..webhook(1, true) };
    assert!(process.store.save_webhook(&inactive).await.expect("the store works"));
    process.advance(4 * TIMEOUT).await;

    assert_eq!(endpoint.received(), ["a"]);
    let active = Webhook { version: 3, ..webhook(1, true) };
    assert!(process.store.save_webhook(&active).await.expect("the store works"));
    process.wait_until("the rest is delivered", 4 * TIMEOUT, async || endpoint.accepted().len() == 3).await;
    assert_eq!(endpoint.accepted(), ["a", "b", "c"], "what was accepted before is not sent again");
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_is_gone_receives_no_accepted_event_again() {
    let mut statuses = [200, 500, 200, 410].into_iter();
    let endpoint = ScriptedEndpoint::new(move |_| Ok(statuses.next().expect("no POST begins after a 410")));
    let mut environment = Environment::new();
    // Longer than the relay needs: the first poll finds all events.
    environment.options.webhooks.refresh = Duration::from_secs(10);
    environment.options.webhooks.parallel = 4;
    let (_environment, process) = start_in(environment, &endpoint, true).await;
    let bodies = ["a", "b", "c", "d", "e", "f"];
    for body in bodies {
        publish(&process, body, None).await;
    }
    let stored = async || process.store.webhooks().await.expect("the store works").remove(0);
    process.wait_until("the webhook is disabled", 4 * TIMEOUT, async || !stored().await.active).await;
    process.advance(TIMEOUT).await;
    assert_eq!((endpoint.received().len(), endpoint.accepted().len()), (4, 2));

    endpoint.set(|_| Ok(200));
    let active = Webhook { version: 3, ..webhook(1, true) };
    assert!(process.store.save_webhook(&active).await.expect("the store works"));

    process.wait_until("the rest is delivered", HOUR, async || endpoint.accepted().len() >= bodies.len()).await;
    process.advance(HOUR).await;
    let mut accepted = endpoint.accepted();
    accepted.sort();
    assert_eq!(accepted, bodies, "what was accepted before is not sent again");
    let retried = process.records("webhooks-retry-0").await.len();
    assert_eq!(retried, 1, "nor is what was forwarded to a retry topic forwarded again");
}

#[tokio::test(start_paused = true)]
async fn slow_endpoint_of_a_deleted_webhook_delays_no_other_webhook() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let (_environment, process) = start(&endpoint, true).await;
    endpoint.set_delay(Duration::from_secs(25));
    publish(&process, "a", None).await;
    process.wait_until("the POST is under way", TIMEOUT, async || !endpoint.received().is_empty()).await;
    endpoint.set_delay(Duration::ZERO);

    process.store.delete_webhook(webhook(1, true).id).await.expect("the store works");
    process.advance(Duration::from_secs(3)).await;
    assert!(process.store.save_webhook(&webhook(2, true)).await.expect("the store works"));

    let is_delivered = async || endpoint.accepted() == ["a"];
    process.wait_until("the other webhook has it", Duration::from_secs(10), is_delivered).await;
}

#[tokio::test(start_paused = true)]
async fn offsets_of_an_inactive_webhook_are_kept() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let (environment, process) = start(&endpoint, true).await;
    let inactive = Webhook { active: false, ..webhook(2, true) };
    assert!(process.store.save_webhook(&inactive).await.expect("the store works"));
    drop(process);
    let kept = || environment.kept_offsets.lock().clone();
    assert_eq!(kept(), Vec::<String>::new());

    let process = environment.start().await;
    process.wait_until("they are kept from the start on", TIMEOUT, async || kept() == [inactive.group()]).await;
    process.advance(HOUR + TIMEOUT).await;

    assert_eq!(kept(), [inactive.group(), inactive.group()]);
}
