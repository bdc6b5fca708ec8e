//! Restarts of the webhooks' consumers and of their manager.
use std::time::Duration;

use ports::endpoint::webhooks::{Webhook, WebhookStore};
use supervision::ActorState;

use crate::support::external_events::publish;
use crate::support::log_capture::LogCapture;
use crate::support::process::{Process, TIMEOUT};
use crate::support::scripted_endpoint::ScriptedEndpoint;
use crate::webhooks::fixture::{start, webhook};

/// Makes the consumer of a webhook panic so often that its supervisor restarts with all consumers.
async fn exceed_restart_intensity(process: &Process, path: &str) {
    let mut panicked = 0;
    for _ in 0..21 {
        let generation = || {
            let rows = process.bus().snapshot().into_iter();
            rows.filter(|row| row.path == path && row.state == ActorState::Running).map(|row| row.generation).next()
        };
        process.wait_until("it runs again", TIMEOUT, async || generation() > Some(panicked)).await;
        panicked = generation().expect("it runs");
        process.bus().panic(path, "test").expect("it runs");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_endpoint_does_not_keep_other_webhooks_down_after_an_escalation() {
    let logs = LogCapture::start();
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let (_environment, process) = start(&endpoint, true).await;
    endpoint.set_delay(Duration::from_secs(60));
    publish(&process, "a", None).await;
    process.wait_until("a POST is under way", TIMEOUT, async || !endpoint.received().is_empty()).await;
    endpoint.set_delay(Duration::ZERO);
    let failing = webhook(2, true);
    let third = Webhook { url: "https://third.example.org".into(), ..webhook(3, true) };
    for webhook in [&failing, &third] {
        assert!(process.store.save_webhook(webhook).await.expect("the store works"));
    }
    process.wait_until("both have the first event", TIMEOUT, async || endpoint.accepted().len() == 2).await;

    exceed_restart_intensity(&process, &format!("/webhooks/{}", failing.group())).await;
    // Longer than the poll in which an idle consumer ends.
    process.advance(Duration::from_millis(1_500)).await;
    publish(&process, "b", None).await;

    assert_eq!(logs.fields("intensity_exceeded", ["child"]).len(), 1, "all consumers restart");
    let is_delivered =
        || endpoint.urls().into_iter().zip(endpoint.received()).any(|post| post == (third.url.clone(), "b".into()));
    process.wait_until("the third webhook has it", Duration::from_secs(3), async || is_delivered()).await;
}

/// The supervisor removes a slow consumer when the manager starts a second one, which therefore does not run yet when the manager restarts.
#[tokio::test(start_paused = true)]
async fn consumer_that_waits_for_its_start_ends_with_its_webhook_after_a_manager_restart() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let (environment, process) = start(&endpoint, true).await;
    endpoint.set_delay(Duration::from_secs(20));
    publish(&process, "a", None).await;
    process.wait_until("a POST is under way", TIMEOUT, async || !endpoint.received().is_empty()).await;
    let [slow, second] = [webhook(1, true), webhook(2, true)];
    let path = |webhook: &Webhook| format!("/webhooks/{}", webhook.group());
    let is_registered = |webhook: &Webhook| process.bus().snapshot().iter().any(|row| row.path == path(webhook));
    // A paused consumer is removed at once, and the supervisor waits for its POST.
    process.bus().pause(&path(&slow), "test").expect("it runs");
    process.store.delete_webhook(slow.id).await.expect("the store works");
    process.advance(2 * environment.options.webhooks.refresh).await;

    assert!(process.store.save_webhook(&second).await.expect("the store works"));
    process.advance(2 * environment.options.webhooks.refresh).await;
    assert!(!is_registered(&second), "its start waits");
    process.bus().panic("/webhooks/webhook-manager", "test").expect("it runs");
    process.wait_until("it has started", TIMEOUT, async || is_registered(&second)).await;
    process.advance(2 * environment.options.webhooks.refresh).await;
    process.store.delete_webhook(second.id).await.expect("the store works");

    process.wait_until("it has ended", 2 * TIMEOUT, async || !is_registered(&second)).await;
}
