//! WebhookPipeline: one poll of a webhook's consumer. Poll → call the endpoint → forward what failed → acknowledge → record the deliveries.
use std::sync::Arc;
use std::time::Duration;

use app::consume::chain::ATTEMPTS_MAX;
use app::consume::intake::IntakeFailure;
use app::consume::spring_headers;
use app::consume::webhooks::delivery::{self, Verdict};
use app::policy::breaker::{BreakerPermit, CircuitBreaker};
use async_trait::async_trait;
use domain::WebhookId;
use futures::{StreamExt, TryStreamExt, stream};
use outbox::topics::{RETRY_DELAYS, WEBHOOK_HEADER};
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Broker;
use ports::broker::consumer_groups::{ConsumerGroups, Delivery, GroupMember};
use ports::clock::Clock;
use ports::endpoint::WebhookClient;
use ports::endpoint::webhooks::{AttemptOutcome, Webhook, WebhookDelivery, WebhookStore};
use ports::inbox::Inbox;
use supervision::SupervisionBus;
use telemetry::Metrics;
use tokio::time::Instant;
use tracing::Instrument;

use super::subscriptions::Subscriptions;
use crate::consumer_actor::forwarding::{Decisions, Forwarding, by_key, round_of, waits_for_earlier};
use crate::consumer_actor::message_log;
use crate::consumer_actor::work::ConsumerWork;

/// Delivers the events of one webhook.
pub struct WebhookPipeline {
    /// The webhook whose events this delivers.
    pub id: WebhookId,
    /// The group that holds the offsets of this webhook.
    pub group: String,
    /// The topics that its consumer joins.
    pub topics: Vec<String>,
    /// The base of the retry topics and of the dead letters, prefix included.
    pub base: String,
    /// The webhooks as they were read last.
    pub subscriptions: Arc<Subscriptions>,
    /// Source of the events.
    pub groups: Arc<dyn ConsumerGroups>,
    /// Receives the events for retry topics and dead letters.
    pub broker: Arc<dyn Broker>,
    /// Keys whose events wait for an earlier one.
    pub inbox: Arc<dyn Inbox>,
    /// Log of the deliveries.
    pub store: Arc<dyn WebhookStore>,
    /// Sends the signed requests.
    pub client: Arc<dyn WebhookClient>,
    /// Stops the calls of an endpoint that does not work.
    pub breaker: Mutex<CircuitBreaker>,
    /// The breaker's clock begins here.
    pub started: Instant,
    /// Most events that are sent at the same time; those of one key follow each other where the webhook is ordered.
    pub parallel: usize,
    /// How long an event waits in each retry topic.
    pub retry_delays: [Duration; RETRY_DELAYS.len()],
    /// Stamps attempts, and the signatures of their requests.
    pub clock: Arc<dyn Clock>,
    /// Counters of the deliveries.
    pub metrics: Arc<Metrics>,
    /// The live stream, for dead letters.
    pub events: SupervisionBus,
}

/// What became of the messages of one poll or key.
#[derive(Default)]
struct Results {
    decisions: Decisions,
    deliveries: Vec<WebhookDelivery>,
    /// Why the messages must be delivered again by the group: the endpoint does not work, or asks for no further event.
    stop: Option<Stop>,
}

enum Stop {
    /// A probe of the breaker failed: the message is not at fault.
    ProbeFailed,
    /// The endpoint is gone, or the webhook.
    Ended,
}

#[async_trait(?Send)]
impl ConsumerWork for WebhookPipeline {
    fn group(&self) -> &str {
        &self.group
    }

    async fn run_once(
        &self,
        member: Option<Arc<dyn GroupMember>>,
        number: u32,
        timeout: Duration,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        let member = match member {
            Some(member) => member,
            None => self.groups.join(&self.group, &self.topics, number, 1).await?,
        };
        let Some(webhook) = self.subscriptions.find(self.id) else {
            // The manager ends this consumer at its next refresh.
            tokio::time::sleep(timeout).await;
            return Ok(member);
        };
        let permit = self.breaker.lock().pass(self.started.elapsed());
        let (limit, probing) = match permit {
            BreakerPermit::Free => (2 * self.parallel as u32, false),
            BreakerPermit::Probe => (1, true),
            BreakerPermit::Wait(wait) => {
                tokio::time::sleep(wait.min(timeout)).await;
                return Ok(member);
            }
        };
        let polled = member.poll(limit, timeout).await;
        let result = match polled {
            Ok(messages) => self.process(&webhook, &*member, messages, probing).await,
            Err(error) => Err(error),
        };
        // A probe that called nothing shows nothing about the endpoint.
        self.breaker.lock().probe_without_result(self.started.elapsed());
        result.map(|()| member)
    }
}

impl WebhookPipeline {
    fn forwarding(&self) -> Forwarding<'_> {
        Forwarding {
            group: &self.group,
            base: Some(&self.base),
            mark: Some((WEBHOOK_HEADER.into(), self.id.to_string().into_bytes().into())),
            retry_delays: &self.retry_delays,
            broker: &*self.broker,
            inbox: &*self.inbox,
            clock: &*self.clock,
            metrics: &self.metrics,
            events: &self.events,
        }
    }

    async fn process(
        &self,
        webhook: &Webhook,
        member: &dyn GroupMember,
        messages: Vec<Delivery>,
        probing: bool,
    ) -> Result<(), Error> {
        let forwarding = self.forwarding();
        let (mut due, mut done, mut paused) = (Vec::new(), Vec::new(), Vec::new());
        for message in &messages {
            let place = (Arc::clone(&message.position.topic), message.position.partition);
            if paused.contains(&place) {
                continue;
            }
            if !delivery::receives(webhook, message) {
                done.push(message.position.clone());
            } else if let Some(wait) = forwarding.remaining_delay(message) {
                member.pause(&message.position, wait).await?;
                paused.push(place);
            } else {
                due.push(message);
            }
        }
        let groups = if webhook.ordered { by_key(due) } else { due.into_iter().map(|message| vec![message]).collect() };
        let groups = stream::iter(groups).map(|messages| self.deliver_all(webhook, messages, probing));
        let results: Vec<Results> = groups.buffered(self.parallel.max(1)).try_collect().await?;
        let mut all = Results::default();
        for Results { decisions, deliveries, stop } in results {
            all.decisions.append(decisions);
            all.deliveries.extend(deliveries);
            all.stop = all.stop.or(stop);
        }
        self.log(&all.deliveries);
        self.store.record_deliveries(&all.deliveries).await?;
        forwarding.apply(&mut all.decisions).await?;
        if all.stop.is_some() {
            // What was not decided comes again. What was accepted may come again as well; its id is the same.
            return member.rewind().await;
        }
        all.decisions.acknowledge.extend(done);
        if all.decisions.acknowledge.is_empty() { Ok(()) } else { member.acknowledge(&all.decisions.acknowledge).await }
    }

    /// Delivers messages one after the other; ends early where the rest must come again.
    async fn deliver_all(&self, webhook: &Webhook, messages: Vec<&Delivery>, probing: bool) -> Result<Results, Error> {
        let mut results = Results::default();
        for message in messages {
            self.deliver(webhook, message, probing, &mut results).instrument(message_log::span(message)).await?;
            if results.stop.is_some() {
                break;
            }
            results.decisions.acknowledge.push(message.position.clone());
        }
        Ok(results)
    }

    async fn deliver(
        &self,
        webhook: &Webhook,
        message: &Delivery,
        probing: bool,
        results: &mut Results,
    ) -> Result<(), Error> {
        let (forwarding, ordered) = (self.forwarding(), webhook.ordered);
        let attempts_made = spring_headers::attempts_made(&message.record).unwrap_or(0);
        let round = round_of(message).filter(|_| ordered);
        if ordered && let Some(ahead) = forwarding.detour_ahead(message, &results.decisions).await? {
            let stage = round.map_or(0, |round| round + 1);
            forwarding.retry(message, stage, Some(ahead), &waits_for_earlier(), attempts_made, &mut results.decisions);
            forwarding.leave_detour(message, ordered, &mut results.decisions);
            return Ok(());
        }
        let (verdict, mut record) = self.call(webhook, message, attempts_made + 1).await;
        let Some((failure, endpoint_down)) = self.failure_of(webhook, verdict).await? else {
            if record.status == Some(410) {
                results.stop = Some(Stop::Ended);
                record.outcome = AttemptOutcome::Failed;
                record.error = Some("the endpoint answered with status 410".to_owned());
            } else {
                self.endpoint_works(webhook);
                forwarding.leave_detour(message, ordered, &mut results.decisions);
            }
            results.deliveries.push(record);
            return Ok(());
        };
        record.error = Some(failure.reason.clone());
        record.outcome = AttemptOutcome::Retried;
        if endpoint_down {
            self.endpoint_fails(webhook, &failure);
        } else {
            self.endpoint_works(webhook);
        }
        if probing && endpoint_down {
            results.stop = Some(Stop::ProbeFailed);
        } else if attempts_made + 1 < ATTEMPTS_MAX {
            message_log::retried(message, attempts_made + 1, &failure);
            let stage = round.map_or(attempts_made, |round| attempts_made.max(round + 1));
            let detour = ordered.then_some(stage);
            forwarding.retry(message, stage, detour, &failure, attempts_made + 1, &mut results.decisions);
            forwarding.leave_detour(message, ordered, &mut results.decisions);
        } else {
            record.outcome = AttemptOutcome::DeadLettered;
            forwarding.dead_letter(message, Some(attempts_made + 1), &failure, &mut results.decisions);
            forwarding.leave_detour(message, ordered, &mut results.decisions);
        }
        results.deliveries.push(record);
        Ok(())
    }

    async fn call(&self, webhook: &Webhook, message: &Delivery, attempt: u32) -> (Verdict, WebhookDelivery) {
        let (at, started) = (self.clock.now(), Instant::now());
        let message_id = delivery::message_id(message);
        let request = delivery::request(webhook, &message_id, &message.record, at);
        let result = self.client.post(&webhook.url, request).await;
        let text = |name| message.record.text(name).unwrap_or_default().to_owned();
        let first_topic = message.record.text("kafka_original-topic").unwrap_or(&message.position.topic).to_owned();
        let record = WebhookDelivery {
            webhook: webhook.id,
            message_id,
            topic: first_topic,
            key: message.record.key.to_string(),
            kind: text("ce_type"),
            attempt,
            at,
            duration: started.elapsed(),
            status: result.as_ref().ok().copied(),
            outcome: AttemptOutcome::Delivered,
            error: None,
        };
        (delivery::verdict(&result), record)
    }

    /// The failure of a call and whether the endpoint itself failed. An endpoint that is gone ends its webhook.
    async fn failure_of(&self, webhook: &Webhook, verdict: Verdict) -> Result<Option<(IntakeFailure, bool)>, Error> {
        match verdict {
            Verdict::Accepted => Ok(None),
            Verdict::Failed { failure, endpoint_down } => Ok(Some((failure, endpoint_down))),
            Verdict::Gone => {
                let reason = "the endpoint answered with status 410: it asks for no further event".to_owned();
                let disabled = Webhook {
                    version: webhook.version + 1,
                    active: false,
                    disabled_reason: Some(reason),
                    updated_at: self.clock.now(),
                    ..webhook.clone()
                };
                // Otherwise another change came first, and the next call asks again.
                if self.store.save_webhook(&disabled).await? {
                    tracing::warn!(event = "webhook_disabled", webhook = %webhook.id, "webhook {} was switched off: its endpoint answered with status 410", webhook.id);
                }
                self.subscriptions.suspend(webhook.id);
                Ok(None)
            }
        }
    }

    fn endpoint_works(&self, webhook: &Webhook) {
        if self.breaker.lock().succeeded() {
            self.metrics.webhook_endpoints_down.dec();
            tracing::info!(event = "webhook_endpoint_recovered", webhook = %webhook.id, "the endpoint of webhook {} works again", webhook.id);
        }
    }

    fn endpoint_fails(&self, webhook: &Webhook, failure: &IntakeFailure) {
        let mut breaker = self.breaker.lock();
        let was_closed = breaker.name() == "closed";
        if breaker.failed(self.started.elapsed()) && was_closed {
            self.metrics.webhook_endpoints_down.inc();
            let reason = failure.reason.as_str();
            tracing::warn!(event = "webhook_endpoint_down", webhook = %webhook.id, error = reason, "the endpoint of webhook {} does not work; its events wait: {reason}", webhook.id);
        }
    }

    fn log(&self, deliveries: &[WebhookDelivery]) {
        for delivery in deliveries {
            self.metrics.webhook_deliveries_total.with([delivery.outcome.as_str()]).inc();
            self.metrics.webhook_delivery_seconds.record(delivery.duration);
        }
    }
}

impl Drop for WebhookPipeline {
    fn drop(&mut self) {
        if self.breaker.get_mut().name() != "closed" {
            self.metrics.webhook_endpoints_down.dec();
        }
    }
}
