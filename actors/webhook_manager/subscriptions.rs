//! Subscriptions: the active webhooks as they were read last, and which of them have a consumer.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::WebhookId;
use parking_lot::Mutex;
use ports::endpoint::webhooks::Webhook;
use tokio::sync::Notify;

/// Shared by the manager, which writes it, and the consumers, which read it. It outlives a restart of either.
#[derive(Default)]
pub struct Subscriptions {
    state: Mutex<State>,
    poll_ended: Notify,
}

#[derive(Default)]
struct State {
    active: BTreeMap<WebhookId, Arc<Webhook>>,
    /// The webhooks with a consumer.
    consumers: BTreeSet<WebhookId>,
    /// The webhooks whose consumer is being removed.
    ending: BTreeSet<WebhookId>,
    /// The webhooks whose consumer has a poll under way.
    polling: BTreeSet<WebhookId>,
}

impl Subscriptions {
    /// The webhook as it was read last; `None` once it is deleted or inactive.
    pub fn find(&self, id: WebhookId) -> Option<Arc<Webhook>> {
        self.state.lock().active.get(&id).cloned()
    }

    /// Begins a poll of the webhook's consumer, until [`Subscriptions::end_poll`]; `None` once the webhook is deleted or inactive.
    pub fn begin_poll(&self, id: WebhookId) -> Option<Arc<Webhook>> {
        let mut state = self.state.lock();
        let webhook = state.active.get(&id).cloned()?;
        state.polling.insert(id);
        Some(webhook)
    }

    /// The poll of a webhook's consumer has ended.
    pub fn end_poll(&self, id: WebhookId) {
        self.state.lock().polling.remove(&id);
        self.poll_ended.notify_waiters();
    }

    /// Waits until the webhook's consumer has no poll under way.
    pub async fn wait_for_poll(&self, id: WebhookId) {
        loop {
            let ended = self.poll_ended.notified();
            if !self.state.lock().polling.contains(&id) {
                return;
            }
            ended.await;
        }
    }

    /// Replaces the webhooks. Returns those whose consumer must end now; each is returned once, until [`Subscriptions::record_end`].
    pub fn replace(&self, active: BTreeMap<WebhookId, Arc<Webhook>>) -> BTreeSet<WebhookId> {
        let mut state = self.state.lock();
        state.active = active;
        let State { active, consumers, ending, .. } = &mut *state;
        let without_webhook = consumers.iter().copied().filter(|id| !active.contains_key(id));
        without_webhook.filter(|id| ending.insert(*id)).collect()
    }

    /// Ends the deliveries of a webhook until the next replacement that has it.
    pub fn suspend(&self, id: WebhookId) {
        self.state.lock().active.remove(&id);
    }

    /// Records that the webhook's consumer has ended.
    pub fn record_end(&self, id: WebhookId) {
        let mut state = self.state.lock();
        state.consumers.remove(&id);
        state.ending.remove(&id);
    }

    /// Removes the consumers that do not run. Returns those whose removal a former manager began: it may go on, or have ended with that manager.
    pub fn retain(&self, runs: impl Fn(WebhookId) -> bool) -> BTreeSet<WebhookId> {
        let mut state = self.state.lock();
        let State { consumers, ending, .. } = &mut *state;
        consumers.retain(|id| runs(*id));
        ending.retain(|id| consumers.contains(id));
        ending.clone()
    }

    /// Starts the consumers that are missing; `start` returns whether it could.
    pub fn start_missing(&self, start: impl Fn(&Webhook) -> bool) {
        let mut state = self.state.lock();
        let State { active, consumers, .. } = &mut *state;
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
            id: WebhookId::new_v7(at, [number; 10]),
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
        let again = subscriptions.replace([one.clone(), three.clone()].into());
        assert_eq!(again, BTreeSet::new(), "its removal has begun");
        ended.into_iter().for_each(|id| subscriptions.record_end(id));
        let started = Mutex::new(Vec::new());
        subscriptions.start_missing(|webhook| {
            started.lock().push(webhook.id);
            true
        });
        assert_eq!(*started.lock(), [three.0], "the first one has its consumer");
        subscriptions.suspend(one.0);
        assert_eq!((subscriptions.find(one.0), subscriptions.find(three.0)), (None, Some(three.1)));
    }

    #[test]
    fn removals_of_a_former_manager_are_returned_and_end_their_consumer() {
        let subscriptions = Subscriptions::default();
        let [one, two, three] = [webhook(1), webhook(2), webhook(3)];
        subscriptions.replace([one.clone(), two.clone(), three.clone()].into());
        subscriptions.start_missing(|_| true);
        subscriptions.replace([three.clone()].into());

        let unfinished = subscriptions.retain(|id| id != two.0);

        assert_eq!(unfinished, [one.0].into(), "the consumer of the second one has ended");
        // The webhooks are active again before the manager has read them once.
        assert_eq!(subscriptions.replace([one.clone(), two.clone(), three].into()), BTreeSet::new());
        let started = Mutex::new(Vec::new());
        let start = |webhook: &Webhook| {
            started.lock().push(webhook.id);
            true
        };
        subscriptions.start_missing(start);
        subscriptions.record_end(one.0);
        subscriptions.start_missing(start);
        assert_eq!(*started.lock(), [two.0, one.0]);
    }
}
