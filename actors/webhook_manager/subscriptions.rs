//! Subscriptions: the active webhooks as they were read last, and which of them have a consumer.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::WebhookId;
use parking_lot::Mutex;
use ports::endpoint::webhooks::Webhook;

/// Shared by the manager, which writes it, and the consumers, which read it. It outlives a restart of either.
#[derive(Default)]
pub struct Subscriptions(Mutex<State>);

#[derive(Default)]
struct State {
    active: BTreeMap<WebhookId, Arc<Webhook>>,
    /// The webhooks with a consumer.
    consumers: BTreeSet<WebhookId>,
}

impl Subscriptions {
    /// The webhook as it was read last; `None` once it is deleted or inactive.
    pub fn find(&self, id: WebhookId) -> Option<Arc<Webhook>> {
        self.0.lock().active.get(&id).cloned()
    }

    /// Replaces the webhooks. Returns those whose consumer must end.
    pub fn replace(&self, active: BTreeMap<WebhookId, Arc<Webhook>>) -> BTreeSet<WebhookId> {
        let mut state = self.0.lock();
        state.active = active;
        let State { active, consumers } = &*state;
        consumers.iter().copied().filter(|id| !active.contains_key(id)).collect()
    }

    /// Ends the deliveries of a webhook until the next replacement that has it.
    pub fn suspend(&self, id: WebhookId) {
        self.0.lock().active.remove(&id);
    }

    /// A consumer has ended.
    pub fn ended(&self, id: WebhookId) {
        self.0.lock().consumers.remove(&id);
    }

    /// Forgets the consumers that do not run.
    pub fn retain(&self, runs: impl Fn(WebhookId) -> bool) {
        self.0.lock().consumers.retain(|id| runs(*id));
    }

    /// Starts the consumers that are missing; `start` returns whether it could.
    pub fn start_missing(&self, start: impl Fn(&Webhook) -> bool) {
        let mut state = self.0.lock();
        let State { active, consumers } = &mut *state;
        for (id, webhook) in active {
            if !consumers.contains(id) && start(webhook) {
                consumers.insert(*id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    fn webhook(number: u8) -> (WebhookId, Arc<Webhook>) {
        let at = Timestamp::from_millis(1_000);
        let webhook = Webhook {
            id: WebhookId::at(at, [number; 10]),
            version: 1,
            url: String::new(),
            topics: Vec::new(),
            types: Vec::new(),
            ordered: true,
            active: true,
            disabled_reason: None,
            description: String::new(),
            secrets: Vec::new(),
            created_at: at,
            updated_at: at,
        };
        (webhook.id, Arc::new(webhook))
    }

    #[test]
    fn consumers_start_and_end_with_their_webhooks() {
        let subscriptions = Subscriptions::default();
        let [one, two, three] = [webhook(1), webhook(2), webhook(3)];
        assert_eq!(subscriptions.replace([one.clone(), two.clone(), three.clone()].into()), BTreeSet::new());
        subscriptions.start_missing(|webhook| webhook.id != three.0);

        let ended = subscriptions.replace([one.clone(), three.clone()].into());

        assert_eq!(ended, [two.0].into());
        ended.into_iter().for_each(|id| subscriptions.ended(id));
        let started = Mutex::new(Vec::new());
        subscriptions.start_missing(|webhook| {
            started.lock().push(webhook.id);
            true
        });
        assert_eq!(*started.lock(), [three.0], "the first one has its consumer");
        subscriptions.suspend(one.0);
        assert_eq!((subscriptions.find(one.0), subscriptions.find(three.0)), (None, Some(three.1)));
    }
}
