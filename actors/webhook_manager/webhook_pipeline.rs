//! WebhookPipeline: one poll of a webhook's consumer. Poll → call the endpoint → forward what failed → acknowledge → record the deliveries.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use app::consume::chain::FailureAction;
use app::consume::message_decision::MessageFailure;
use app::consume::order_topic::OrderTopic;
use app::consume::spring_headers;
use app::consume::webhooks::delivery::{self, AttemptVerdict, EndpointState};
use app::consume::webhooks::endpoint_health::{DeliveryDecision, EndpointHealth, decide_after_failure};
use app::policy::breaker::BreakerPermit;
use async_trait::async_trait;
use domain::WebhookId;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use ports::Error;
use ports::broker::consumer_groups::{ConsumerRecord, GroupMember};
use ports::endpoint::WebhookClient;
use ports::endpoint::webhooks::{AttemptOutcome, Webhook, WebhookDelivery, WebhookStore};
use telemetry::traces::Tracer;
use tokio::time::Instant;
use tracing::Instrument;

use super::subscriptions::Subscriptions;
use crate::consumer_actor::decisions::Decisions;
use crate::consumer_actor::forwarding::{DueMessages, by_key};
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::consumer_actor::poll_processor::{PollPermit, PollProcessor, ProcessedPoll};
use crate::consumer_actor::{message_log, message_span};

/// Pause of a consumer whose webhook is deleted or inactive.
const ENDING_PAUSE: Duration = Duration::from_millis(50);

/// Delivers the events of one webhook.
pub struct WebhookPipeline {
    /// The webhook whose events this delivers.
    pub id: WebhookId,
    /// The group that holds the offsets of this webhook, and its ports. All webhooks share retry topics and dead letters.
    pub consumer: GroupConsumer,
    /// The webhooks as they were read last.
    pub subscriptions: Arc<Subscriptions>,
    /// Log of the deliveries.
    pub store: Arc<dyn WebhookStore>,
    /// Sends the signed requests.
    pub client: Arc<dyn WebhookClient>,
    /// The topic whose values may have a frame, without which they are delivered.
    pub orders: OrderTopic,
    /// State of the endpoint, derived from its calls.
    pub health: Mutex<EndpointHealth>,
    /// The clock of `health` begins here.
    pub started: Instant,
    /// Whether the log of the deliveries could not be written.
    pub delivery_log_is_failing: AtomicBool,
    /// Starts the spans of traced messages.
    pub tracer: Tracer,
}

/// A poll of a webhook that has begun.
pub struct DeliveryPoll {
    /// The webhook as it was when the poll began.
    webhook: Arc<Webhook>,
    /// Whether the poll is the circuit breaker's probe of the endpoint.
    probing: bool,
}

/// Outcome of the messages of one poll or key.
#[derive(Default)]
struct DeliveryResults {
    decisions: Decisions,
    deliveries: Vec<WebhookDelivery>,
    /// Whether the group must deliver the messages again: the endpoint does not work, or asks for no further event.
    needs_redelivery: bool,
    /// Whether the webhook was deleted or became inactive before all messages were delivered.
    webhook_is_inactive: bool,
}

#[async_trait(?Send)]
impl PollProcessor for WebhookPipeline {
    type PollState = DeliveryPoll;

    fn consumer(&self) -> &GroupConsumer {
        &self.consumer
    }

    async fn begin(&self, timeout: Duration) -> Option<PollPermit<DeliveryPoll>> {
        let Some(webhook) = self.subscriptions.begin_poll(self.id) else {
            // The manager is about to end this consumer: the pause is short, because the supervisor waits for the end of the poll.
            tokio::time::sleep(ENDING_PAUSE.min(timeout)).await;
            return None;
        };
        let permit = self.health.lock().breaker.try_acquire(self.started.elapsed());
        match permit {
            BreakerPermit::Free => Some(PollPermit {
                messages_max: 2 * self.consumer.parallel_keys as u32,
                state: DeliveryPoll { webhook, probing: false },
            }),
            BreakerPermit::Probe => {
                Some(PollPermit { messages_max: 1, state: DeliveryPoll { webhook, probing: true } })
            }
            BreakerPermit::Wait(wait) => {
                self.subscriptions.end_poll(self.id);
                tokio::time::sleep(wait.min(timeout)).await;
                None
            }
        }
    }

    async fn process(
        &self,
        state: DeliveryPoll,
        member: &dyn GroupMember,
        messages: &[ConsumerRecord],
    ) -> Result<ProcessedPoll, Error> {
        let (DeliveryPoll { webhook, probing }, consumer) = (state, &self.consumer);
        let is_for_group = |message: &ConsumerRecord| delivery::receives(&webhook, message);
        let DueMessages { due, not_for_group } = consumer.due(member, messages, is_for_group).await?;
        let groups = if webhook.ordered { by_key(due) } else { due.into_iter().map(|message| vec![message]).collect() };
        let groups = stream::iter(groups).map(|messages| self.deliver_all(messages, webhook.ordered, probing));
        let results: Vec<DeliveryResults> = groups.buffered(consumer.parallel_keys.max(1)).try_collect().await?;
        let mut all = DeliveryResults::default();
        for DeliveryResults { decisions, deliveries, needs_redelivery, webhook_is_inactive } in results {
            all.decisions.append(decisions);
            all.deliveries.extend(deliveries);
            all.needs_redelivery |= needs_redelivery;
            all.webhook_is_inactive |= webhook_is_inactive;
        }
        let DeliveryResults { mut decisions, deliveries, needs_redelivery, webhook_is_inactive } = all;
        self.count(&deliveries);
        decisions.acknowledge.extend(not_for_group);
        // Undecided messages are delivered again, and the accepted ones behind them may be, with the same id.
        if needs_redelivery || webhook_is_inactive || consumer.is_stopping() {
            decisions.acknowledge_up_to_undone(messages);
        }
        let processed = ProcessedPoll { failed: decisions.failed, progress: decisions.progress() };
        let mut applied = consumer.apply(decisions, member).await;
        // The webhook may be active again before this consumer is removed.
        if (needs_redelivery || webhook_is_inactive) && applied.is_ok() {
            applied = member.rewind().await;
        }
        self.record(&deliveries).await;
        applied.map(|()| processed)
    }

    /// Failures were counted with the deliveries. A probe without a call shows nothing about the endpoint.
    fn end(&self, _: u64) {
        self.health.lock().breaker.probe_without_result(self.started.elapsed());
        self.subscriptions.end_poll(self.id);
    }
}

impl WebhookPipeline {
    /// Delivers messages one after the other, each with the latest settings of the webhook. Ends early where the rest must be delivered again, when
    /// the webhook is deleted or inactive, and when the service stops. `ordered` is the setting at the start of the poll, by which the messages were
    /// grouped.
    async fn deliver_all(
        &self,
        messages: Vec<&ConsumerRecord>,
        ordered: bool,
        probing: bool,
    ) -> Result<DeliveryResults, Error> {
        let mut results = DeliveryResults::default();
        for message in messages {
            if self.consumer.is_stopping() {
                break;
            }
            let Some(webhook) = self.subscriptions.find(self.id) else {
                results.webhook_is_inactive = true;
                break;
            };
            if delivery::receives(&webhook, message) {
                let delivered = self.deliver(&webhook, ordered, message, probing, &mut results);
                delivered.instrument(message_log::span(message, false)).await?;
            }
            if results.needs_redelivery {
                break;
            }
            results.decisions.acknowledge.push(message.position.clone());
        }
        Ok(results)
    }

    async fn deliver(
        &self,
        webhook: &Webhook,
        ordered: bool,
        message: &ConsumerRecord,
        probing: bool,
        results: &mut DeliveryResults,
    ) -> Result<(), Error> {
        let consumer = &self.consumer;
        if consumer.queue_behind_earlier(message, ordered, &mut results.decisions).await? {
            return Ok(());
        }
        let attempt = spring_headers::attempt(&message.record);
        let (verdict, mut record) = self.call(webhook, message, attempt).await;
        match verdict {
            AttemptVerdict::Accepted => {
                self.endpoint_recovered(webhook);
                consumer.leave_retry_route(message, ordered, &mut results.decisions);
            }
            AttemptVerdict::Gone => {
                self.disable(webhook).await?;
                (record.outcome, record.error) = (AttemptOutcome::Failed, Some(delivery::GONE.to_owned()));
                results.needs_redelivery = true;
            }
            AttemptVerdict::Failed { failure, endpoint } => {
                let worked_since = self.health.lock().worked_since(self.last_failure_of(message));
                match endpoint {
                    EndpointState::Healthy => self.endpoint_recovered(webhook),
                    EndpointState::Unavailable | EndpointState::Overloaded => self.endpoint_fails(webhook, &failure),
                }
                record.outcome = AttemptOutcome::Retried;
                match decide_after_failure(attempt, endpoint, probing, worked_since) {
                    DeliveryDecision::NeedsRedelivery => results.needs_redelivery = true,
                    DeliveryDecision::Forward(action) => {
                        if action == FailureAction::DeadLetter {
                            record.outcome = AttemptOutcome::DeadLettered;
                        }
                        consumer.forward_failed(message, ordered, action, &failure, &mut results.decisions);
                    }
                }
                record.error = Some(failure.reason);
            }
        }
        results.deliveries.push(record);
        Ok(())
    }

    async fn call(
        &self,
        webhook: &Webhook,
        message: &ConsumerRecord,
        number: u32,
    ) -> (AttemptVerdict, WebhookDelivery) {
        // The endpoint compares the time in the signature with its own clock.
        let (at, started) = (self.consumer.clock.wall(), Instant::now());
        let message_id = delivery::message_id(message);
        let request = delivery::request(webhook, &message_id, message, &self.orders, at);
        let mut span = message_span::begin_delivery(&self.tracer, message, webhook.id, number);
        let result = self.client.post(&webhook.url, request).await;
        message_span::record_response(&mut span, &result);
        drop(span);
        let record = &message.record;
        let first_topic = spring_headers::original_topic(record).unwrap_or(&message.position.topic).to_owned();
        let attempt = WebhookDelivery {
            webhook: webhook.id,
            message_id,
            topic: first_topic,
            key: record.key.to_string(),
            event_type: record.text("ce_type").unwrap_or_default().to_owned(),
            attempt: number,
            at,
            duration: started.elapsed(),
            status: result.as_ref().ok().copied(),
            outcome: AttemptOutcome::Delivered,
            error: None,
        };
        (delivery::verdict(&result), attempt)
    }

    /// When the last counted attempt of a message failed, by the clock of `health`: it was written to its retry topic then.
    fn last_failure_of(&self, message: &ConsumerRecord) -> Duration {
        self.started.elapsed().saturating_sub(self.consumer.clock.wall().since(message.record.timestamp))
    }

    /// Ends the deliveries of a webhook whose endpoint is gone.
    async fn disable(&self, webhook: &Webhook) -> Result<(), Error> {
        let disabled = Webhook {
            version: webhook.version + 1,
            active: false,
            disabled_reason: Some(format!("{}: it asks for no further event", delivery::GONE)),
            updated_at: self.consumer.clock.now(),
            ..webhook.clone()
        };
        // If another change came first, the webhook stays active, and the next call to the endpoint decides again.
        if self.store.save_webhook(&disabled).await? {
            tracing::warn!(event = "webhook_disabled", webhook = %webhook.id, "webhook {} was switched off: its endpoint answered with status 410", webhook.id);
        }
        self.subscriptions.suspend(webhook.id);
        Ok(())
    }

    fn endpoint_recovered(&self, webhook: &Webhook) {
        if self.health.lock().record_success(self.started.elapsed()) {
            self.consumer.metrics.webhook_endpoints_down.dec();
            tracing::info!(event = "webhook_endpoint_recovered", webhook = %webhook.id, "the endpoint of webhook {} recovered", webhook.id);
        }
    }

    fn endpoint_fails(&self, webhook: &Webhook, failure: &MessageFailure) {
        let breaker = &mut self.health.lock().breaker;
        let was_closed = breaker.name() == "closed";
        if breaker.failed(self.started.elapsed()) && was_closed {
            self.consumer.metrics.webhook_endpoints_down.inc();
            let reason = failure.reason.as_str();
            tracing::warn!(event = "webhook_endpoint_down", webhook = %webhook.id, error = reason, "the endpoint of webhook {} does not work; its events wait: {reason}", webhook.id);
        }
    }

    /// Adds deliveries to the log, after their acknowledgement: operators may miss some, but no endpoint receives an event again for the log.
    async fn record(&self, deliveries: &[WebhookDelivery]) {
        if deliveries.is_empty() {
            return;
        }
        let recorded = self.store.record_deliveries(deliveries).await;
        let failed_before = self.delivery_log_is_failing.swap(recorded.is_err(), Relaxed);
        if let (Err(error), false) = (recorded, failed_before) {
            tracing::warn!(event = "webhook_deliveries_not_recorded", webhook = %self.id, error = %error, "the deliveries of webhook {} could not be recorded; they go on: {error}", self.id);
        }
    }

    fn count(&self, deliveries: &[WebhookDelivery]) {
        for delivery in deliveries {
            self.consumer.metrics.webhook_deliveries_total.with([delivery.outcome.as_str()]).inc();
            self.consumer.metrics.webhook_delivery_seconds.record(delivery.duration);
        }
    }
}

impl Drop for WebhookPipeline {
    fn drop(&mut self) {
        if self.health.get_mut().breaker.name() != "closed" {
            self.consumer.metrics.webhook_endpoints_down.dec();
        }
    }
}
