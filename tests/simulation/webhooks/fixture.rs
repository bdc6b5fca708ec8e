//! A process with a webhook.
use std::sync::Arc;

use domain::{Timestamp, WebhookId};
use ports::endpoint::webhooks::{Webhook, WebhookStore};

use crate::support::environment::Environment;
use crate::support::external_events::CUSTOMERS;
use crate::support::process::Process;
use crate::support::scripted_endpoint::ScriptedEndpoint;

/// A process with one webhook, whose requests the endpoint receives.
pub async fn start(endpoint: &Arc<ScriptedEndpoint>, ordered: bool) -> (Environment, Process) {
    start_in(Environment::new(), endpoint, ordered).await
}

/// [`start`] in this environment.
pub async fn start_in(
    environment: Environment,
    endpoint: &Arc<ScriptedEndpoint>,
    ordered: bool,
) -> (Environment, Process) {
    start_with(environment, endpoint, &webhook(1, ordered)).await
}

/// A process with one webhook for the events of this topic.
pub async fn start_for(topic: &str, endpoint: &Arc<ScriptedEndpoint>) -> (Environment, Process) {
    let of_topic = Webhook { topics: vec![topic.into()], ..webhook(1, true) };
    start_with(Environment::new(), endpoint, &of_topic).await
}

async fn start_with(
    mut environment: Environment,
    endpoint: &Arc<ScriptedEndpoint>,
    webhook: &Webhook,
) -> (Environment, Process) {
    environment.consumes = true;
    environment.webhook_client = Some(endpoint.clone());
    let process = environment.start().await;
    assert!(process.store.save_webhook(webhook).await.expect("the store works"));
    (environment, process)
}

/// An active webhook for the events of customers.
pub fn webhook(number: u8, ordered: bool) -> Webhook {
    let at = Timestamp::from_millis(1_000);
    Webhook {
        id: WebhookId::new_v7(at, [number; 10]),
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
    }
}
