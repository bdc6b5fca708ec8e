//! OrderPipeline: the processing of a message of the orders' topic. Decode → apply the region rule → handle → decide on the message.
use std::sync::Arc;

use app::consume::handlers::Handlers;
use app::consume::message_decision::{self, DecodedMessage, EventOrigin, MessageDecision};
use app::consume::spring_headers;
use app::policy::conflict::{ConflictDecision, VersionStamp};
use app::policy::regional_clock::RegionalClock;
use async_trait::async_trait;
use domain::{OrderId, RegionId};
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::inbox::Effect;
use ports::orders::OrderStore;
use ports::outbox::OutboxStore;
use telemetry::traces::Tracer;

use crate::consumer_actor::decisions::{Decisions, EventMetricInput};
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::consumer_actor::message_decider::MessageDecider;
use crate::consumer_actor::{message_log, message_span};

/// Shared by all consumers of an instance.
pub struct OrderPipeline {
    /// The group and its ports.
    pub consumer: GroupConsumer,
    /// Orders of this region: the last change of an order decides whether an event of another region is stale.
    pub orders: Arc<dyn OrderStore>,
    /// The outbox of this installation: an event that it contains is local, whatever region id it was written under.
    pub outbox: Arc<dyn OutboxStore>,
    /// Clock of this region, which the stamps of other regions advance.
    pub regional_clock: Arc<RegionalClock>,
    /// Handlers by event type.
    pub handlers: Handlers,
    /// Region of this instance; events of other regions are checked for conflicts.
    pub region: RegionId,
    /// Most messages of one poll.
    pub batch: u32,
    /// Starts the spans of traced messages.
    pub tracer: Tracer,
}

#[async_trait(?Send)]
impl MessageDecider for OrderPipeline {
    const KEY_IS_ORDER: bool = true;

    fn group_consumer(&self) -> &GroupConsumer {
        &self.consumer
    }

    fn batch(&self) -> u32 {
        self.batch
    }

    async fn decide(&self, message: &ConsumerRecord, decisions: &mut Decisions) -> Result<(), Error> {
        let consumer = &self.consumer;
        let mut span = message_span::begin_consume(&self.tracer, message, &consumer.group);
        let decoded = match message_decision::decode(message) {
            Ok(decoded) => decoded,
            Err(failure) => {
                consumer.metrics.kafka_schema_validation_errors.inc();
                span.fail("undecodable");
                decisions.failed += 1;
                consumer.dead_letter(message, 1, &failure, decisions);
                return Ok(());
            }
        };
        let version = decoded.event.schema_version.to_string();
        consumer.metrics.kafka_event_version_distribution.with([&version]).inc();
        let needs_order = self.handlers.chain(decoded.event.event_type).needs_order();
        if consumer.queue_behind_earlier(message, needs_order, decisions).await? {
            span.set("posthaste.waits_for_earlier", true);
            return Ok(());
        }
        let origin = self.origin(&decoded, decisions).await?;
        let latest_accepted_time = self.regional_clock.latest_accepted_time(consumer.clock.now());
        let decision = message_decision::decide(&self.handlers, message, &decoded, origin, latest_accepted_time).await;
        message_span::record_decision(&mut span, &decision, spring_headers::attempt(&message.record));
        match decision {
            MessageDecision::Process { event, region_rule, fallback_after } => {
                let stale = region_rule != ConflictDecision::Apply;
                if region_rule == ConflictDecision::TooFarAhead {
                    message_log::too_far_ahead(message, &decoded.stamp, latest_accepted_time);
                }
                tracing::debug!(
                    event = "event_consumed",
                    origin = decoded.stamp.region.as_str(),
                    stale,
                    "an event was consumed"
                );
                if let Some(failure) = fallback_after {
                    consumer.metrics.kafka_consumer_fallback_count.inc();
                    message_log::handled_by_fallback(message, &failure);
                }
                decisions.processed.push(event);
                decisions
                    .metric_inputs
                    .push(EventMetricInput { occurred_at: decoded.event.occurred_at, is_stale: stale });
                consumer.leave_retry_route(message, needs_order, decisions);
            }
            MessageDecision::Forward { action, failure } => {
                consumer.forward_failed(message, needs_order, action, &failure, decisions);
            }
        }
        Ok(())
    }
}

impl OrderPipeline {
    /// The origin of an event; for one of another region with the last update of its order. The stamp of a remote event advances the clock of
    /// this region. An event that names another region id is still local if this outbox contains it: the id was changed after the event was
    /// written, or an instance with another id shares the store.
    async fn origin(&self, decoded: &DecodedMessage, decisions: &Decisions) -> Result<EventOrigin, Error> {
        if !message_decision::is_remote(decoded, &self.region) {
            return Ok(EventOrigin::Local);
        }
        let id = decoded.event.order_id;
        let is_own = self.outbox.contains(decoded.event.event_id);
        let (is_own, order, remote) =
            tokio::try_join!(is_own, self.orders.find(id), self.last_remote_stamp(id, decisions))?;
        if is_own {
            return Ok(EventOrigin::Local);
        }
        self.regional_clock.receive(decoded.stamp.hlc, self.consumer.clock.now());
        Ok(EventOrigin::Remote { last_update: message_decision::last_update(decoded, order.as_ref(), remote) })
    }

    /// The last update of another region, of this poll or committed.
    async fn last_remote_stamp(&self, id: OrderId, decisions: &Decisions) -> Result<Option<VersionStamp>, Error> {
        let in_this_poll =
            decisions.processed.iter().rev().flat_map(|event| &event.effects).find_map(|effect| match effect {
                Effect::StoreRemoteStamp { order_id, region, hlc } => {
                    (*order_id == id).then(|| VersionStamp { hlc: *hlc, region: region.clone() })
                }
            });
        if in_this_poll.is_some() {
            return Ok(in_this_poll);
        }
        Ok(self.consumer.inbox.remote_stamp(id).await?.map(VersionStamp::from))
    }
}
