//! Deliveries to a webhook with the default delays and breaker.
use std::sync::Arc;
use std::time::Duration;

use domain::{Timestamp, WebhookId};
use ports::endpoint::webhooks::{Webhook, WebhookStore};

use crate::support::environment::Environment;
use crate::support::foreign_events::{CUSTOMERS, publish};
use crate::support::process::{Process, TIMEOUT};
use crate::support::scripted_endpoint::{ScriptedEndpoint, unreachable};

const HOUR: Duration = Duration::from_secs(3_600);

/// A process with one webhook, whose requests the endpoint receives.
async fn start(endpoint: &Arc<ScriptedEndpoint>, ordered: bool) -> (Environment, Process) {
    let mut environment = Environment::new();
    environment.consumes = true;
    environment.webhook_client = Some(endpoint.clone());
    let process = environment.start().await;
    let at = Timestamp::from_millis(1_000);
    let webhook = Webhook {
        id: WebhookId::at(at, [1; 10]),
        version: 1,
        url: "https://example.org".into(),
        topics: vec![CUSTOMERS.into()],
        types: Vec::new(),
        ordered,
        active: true,
        disabled_reason: None,
        description: String::new(),
        secrets: Vec::new(),
        created_at: at,
        updated_at: at,
    };
    assert!(process.store.save_webhook(&webhook).await.expect("the store works"));
    (environment, process)
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
