//! The suite of `WebhookStore`: a change needs the version before it, and each webhook keeps its latest deliveries.
use std::time::Duration;

use domain::WebhookId;
use futures::future::join_all;
use ports::endpoint::webhooks::{AttemptOutcome, DELIVERIES_KEPT, Webhook, WebhookDelivery, WebhookSecret};
use ports::inbox::RetryRouteChange;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, fixture};

suite! { $ webhooks:
    a_stored_webhook_is_listed_with_everything,
    webhooks_are_listed_in_id_order,
    a_change_needs_the_version_before_it,
    a_new_webhook_replaces_none,
    one_of_many_concurrent_changes_is_stored,
    a_deleted_webhook_is_gone_with_its_deliveries,
    a_deleted_webhook_is_gone_with_the_retry_routes_of_its_group,
    deliveries_are_listed_newest_first,
    each_webhook_has_its_own_deliveries,
    only_the_latest_deliveries_are_kept,
    deliveries_of_an_unknown_webhook_are_not_kept,
}

impl<B: Backend> Fixture<'_, B> {
    fn webhook(&self, number: u8) -> Webhook {
        let now = self.factory.next_timestamp();
        let secret = |text: &str, valid_until| WebhookSecret { text: text.into(), valid_until };
        Webhook {
            id: WebhookId::new_v7(now, [number; 10]),
            version: 1,
            url: format!("https://example.org/hooks/{number}?token=é%20\"x\""),
            topics: vec!["order.events".into(), "customers".into()],
            types: vec!["ORDER_CREATED".into()],
            ordered: true,
            active: true,
            disabled_reason: Some("the endpoint answered with status 410".into()),
            description: "of the shop's stock".into(),
            secrets: vec![secret("whsec_bmV3", None), secret("whsec_b2xk", Some(now))],
            created_at: now,
            updated_at: now,
        }
    }

    fn delivery(&self, webhook: &Webhook, number: usize) -> WebhookDelivery {
        WebhookDelivery {
            webhook: webhook.id,
            message_id: format!("message-{number}"),
            topic: "order.events".into(),
            key: "schlüssel".into(),
            event_type: "ORDER_CREATED".into(),
            attempt: 2,
            at: self.factory.next_timestamp(),
            duration: Duration::from_millis(7),
            status: number.is_multiple_of(2).then_some(503),
            outcome: AttemptOutcome::ALL[number % 4],
            error: number.is_multiple_of(2).then(|| "no \"reply\"".into()),
        }
    }

    async fn save(&self, webhook: &Webhook) -> bool {
        self.backend.webhooks().save_webhook(webhook).await.expect("the call succeeds")
    }

    async fn webhooks(&self) -> Vec<Webhook> {
        self.backend.webhooks().webhooks().await.expect("the webhooks are listed")
    }

    async fn record(&self, deliveries: &[WebhookDelivery]) {
        self.backend.webhooks().record_deliveries(deliveries).await.expect("the deliveries are recorded");
    }

    async fn deliveries(&self, webhook: &Webhook) -> Vec<WebhookDelivery> {
        self.backend.webhooks().deliveries(webhook.id).await.expect("the deliveries are listed")
    }
}

async fn a_stored_webhook_is_listed_with_everything<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let webhook = fixture.webhook(1);

    assert!(fixture.save(&webhook).await);

    assert_eq!(fixture.webhooks().await, [webhook]);
}

async fn webhooks_are_listed_in_id_order<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut webhooks: Vec<Webhook> = (1..=5).map(|number| fixture.webhook(number)).collect();
    for webhook in webhooks.iter().rev() {
        fixture.save(webhook).await;
    }

    webhooks.sort_by_key(|webhook| webhook.id);
    assert_eq!(fixture.webhooks().await, webhooks);
}

async fn a_change_needs_the_version_before_it<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let first = fixture.webhook(1);
    fixture.save(&first).await;
    let second = Webhook { version: 2, active: false, disabled_reason: None, ..first.clone() };
    let third = Webhook { version: 3, types: Vec::new(), ..second.clone() };

    assert!(!fixture.save(&third).await, "version 2 is missing");
    assert!(fixture.save(&second).await);
    assert!(!fixture.save(&Webhook { ordered: false, ..second.clone() }).await, "there is another version 2");
    assert_eq!(fixture.webhooks().await, [second]);
    assert!(fixture.save(&third).await);
    assert_eq!(fixture.webhooks().await, [third]);
}

async fn a_new_webhook_replaces_none<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let webhook = fixture.webhook(1);
    fixture.save(&webhook).await;

    assert!(!fixture.save(&Webhook { active: false, ..webhook.clone() }).await);
    assert!(!fixture.save(&Webhook { version: 2, ..fixture.webhook(2) }).await, "it does not exist");

    assert_eq!(fixture.webhooks().await, [webhook]);
}

async fn one_of_many_concurrent_changes_is_stored<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let webhook = fixture.webhook(1);
    fixture.save(&webhook).await;
    let changed = |number: u32| Webhook { version: 2, description: format!("change {number}"), ..webhook.clone() };
    let changes: Vec<Webhook> = (0..16).map(changed).collect();

    let stored = join_all(changes.iter().map(|change| fixture.save(change))).await;

    assert_eq!(stored.iter().filter(|stored| **stored).count(), 1);
    let winner = stored.iter().position(|stored| *stored).expect("one is stored");
    assert_eq!(fixture.webhooks().await, [changes[winner].clone()]);
}

async fn a_deleted_webhook_is_gone_with_its_deliveries<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let webhook = fixture.webhook(1);
    fixture.save(&webhook).await;
    fixture.record(&[fixture.delivery(&webhook, 0)]).await;
    let delete = || async { backend.webhooks().delete_webhook(webhook.id).await.expect("the call succeeds") };

    assert!(delete().await);
    assert!(!delete().await);

    assert_eq!((fixture.webhooks().await, fixture.deliveries(&webhook).await), (Vec::new(), Vec::new()));
    fixture.save(&webhook).await;
    assert_eq!(fixture.deliveries(&webhook).await, [], "it begins without deliveries");
}

async fn a_deleted_webhook_is_gone_with_the_retry_routes_of_its_group<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (webhook, other) = (fixture.webhook(1), fixture.webhook(2));
    let keys = ["a", "b", "schlüssel"];
    for webhook in [&webhook, &other] {
        fixture.save(webhook).await;
        let enter = |key: &str| RetryRouteChange::Enter { key: key.into(), stage: 0, offset: 1 };
        let changes = keys.map(enter).into();
        backend.inbox().update_retry_routes(&webhook.group(), changes).await.expect("the retry routes are stored");
    }

    backend.webhooks().delete_webhook(webhook.id).await.expect("the call succeeds");

    for key in keys {
        let retry_route =
            async |webhook: &Webhook| backend.inbox().retry_route(&webhook.group(), key).await.expect("it is read");
        assert_eq!(retry_route(&webhook).await, None);
        assert!(retry_route(&other).await.is_some(), "another webhook keeps its own");
    }
}

async fn deliveries_are_listed_newest_first<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let webhook = fixture.webhook(1);
    fixture.save(&webhook).await;
    let mut deliveries: Vec<WebhookDelivery> = (0..6).map(|number| fixture.delivery(&webhook, number)).collect();

    fixture.record(&deliveries[..4]).await;
    fixture.record(&deliveries[4..]).await;

    deliveries.reverse();
    assert_eq!(fixture.deliveries(&webhook).await, deliveries);
}

async fn each_webhook_has_its_own_deliveries<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (first, second) = (fixture.webhook(1), fixture.webhook(2));
    fixture.save(&first).await;
    fixture.save(&second).await;
    let (of_first, of_second) = (fixture.delivery(&first, 1), fixture.delivery(&second, 2));

    fixture.record(&[of_first.clone(), of_second.clone()]).await;

    assert_eq!(
        (fixture.deliveries(&first).await, fixture.deliveries(&second).await),
        (vec![of_first], vec![of_second])
    );
}

async fn only_the_latest_deliveries_are_kept<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (webhook, other) = (fixture.webhook(1), fixture.webhook(2));
    fixture.save(&webhook).await;
    fixture.save(&other).await;
    fixture.record(&[fixture.delivery(&other, 1)]).await;
    let deliveries: Vec<WebhookDelivery> =
        (0..DELIVERIES_KEPT + 20).map(|number| fixture.delivery(&webhook, number)).collect();

    for some in deliveries.chunks(30) {
        fixture.record(some).await;
    }

    let latest: Vec<WebhookDelivery> = deliveries.into_iter().rev().take(DELIVERIES_KEPT).collect();
    assert_eq!(fixture.deliveries(&webhook).await, latest);
    assert_eq!(fixture.deliveries(&other).await.len(), 1);
}

async fn deliveries_of_an_unknown_webhook_are_not_kept<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (webhook, unknown) = (fixture.webhook(1), fixture.webhook(2));
    fixture.save(&webhook).await;

    fixture.record(&[fixture.delivery(&unknown, 1), fixture.delivery(&webhook, 2)]).await;

    assert_eq!(fixture.deliveries(&unknown).await, []);
    assert_eq!(fixture.deliveries(&webhook).await.len(), 1);
}
