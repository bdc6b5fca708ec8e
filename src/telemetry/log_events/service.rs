//! Log events of the consumer, the orders and the region.

use tracing::Level;

use super::log_event::{LogEvent, LogEventGroup};

pub(super) const SERVICE: LogEventGroup = LogEventGroup {
    title: "Consumer, orders and region",
    description: "The consumer, the promotion of orders, failover and backpressure.",
    common_fields: &[],
    events: EVENTS,
};

const EVENTS: &[LogEvent] = &[
    LogEvent {
        name: "consumer_failing",
        levels: &[Level::WARN],
        fields: &["member", "group", "error"],
        meaning: "A consumer began to fail; it leaves its group, waits, for 5 s at most, and joins again. It is logged once until \
                  `consumer_recovered`, and again for each other cause that no retry repairs, such as a missing permission.",
        action: "Check the broker and the store; no record is lost.",
    },
    LogEvent {
        name: "consumer_partitions_lost",
        levels: &[Level::WARN],
        fields: &["group"],
        meaning: "Kafka gave partitions of a consumer to another one while it still processed their messages, which the \
                  other one receives again; the inbox recognises those that were processed. The consumer keeps its other \
                  partitions.",
        action: "Nothing, if consumers joined or left. If it repeats, look for a slow endpoint or handler: a consumer has \
                 5 s to finish the messages of a partition that it must give up.",
    },
    LogEvent {
        name: "consumer_recovered",
        levels: &[Level::INFO],
        fields: &["member", "group"],
        meaning: "The consumer has processed records again, or for 30 s its partitions had none and nothing failed. One that has no \
                  partition does not log it.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "event_consumed",
        levels: &[Level::DEBUG],
        fields: &["origin", "stale"],
        meaning: "An event was consumed. `origin` is the region that wrote it; a stale one changes nothing, because a later update of its order is known.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "order_committed",
        levels: &[Level::DEBUG],
        fields: &["order_id", "event_id", "type", "version"],
        meaning: "A change of an order and its event were committed.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "change_stamped_too_far_ahead",
        levels: &[Level::WARN],
        fields: &["order_id", "ahead_ms"],
        meaning: "A change of an order follows one that was stamped while the clock of an instance was ahead by more than `region.drift_max`, so its own stamp is ahead of the clock, too. Other regions reject its event. Logged once a minute, however many changes there are.",
        action: "With one region, nothing to do. With several, compare the orders that the other regions name (`remote_event_too_far_ahead`). They accept changes of this one again once their clocks have passed the stamp, after about `ahead_ms`.",
    },
    LogEvent {
        name: "events_accepted",
        levels: &[Level::DEBUG],
        fields: &["new", "duplicates"],
        meaning: "Events that another service handed over by HTTP were committed.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "webhook_changed",
        levels: &[Level::INFO],
        fields: &["by", "action", "webhook"],
        meaning: "An administrator created, changed or deleted a webhook, or replaced its secret: `action`.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "webhook_endpoint_down",
        levels: &[Level::WARN],
        fields: &["webhook", "error"],
        meaning: "Several calls of a webhook's endpoint failed one after the other. Its events wait; every `webhooks.breaker.open` one of them is tried.",
        action: "Inform the operators of the endpoint. `posthaste webhook deliveries` shows the attempts.",
    },
    LogEvent {
        name: "webhook_endpoint_recovered",
        levels: &[Level::INFO],
        fields: &["webhook"],
        meaning: "The endpoint of a webhook works again after `webhook_endpoint_down`; its events are delivered.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "webhook_disabled",
        levels: &[Level::WARN],
        fields: &["webhook"],
        meaning: "The endpoint of a webhook answered with status 410: it asks for no further event. The webhook is inactive now.",
        action: "Delete the webhook, or correct its URL and activate it again; its events have waited.",
    },
    LogEvent {
        name: "webhooks_not_read",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The store did not return the webhooks. Deliveries go on with those that were read last.",
        action: "Look for `dependency_down` and the store's events.",
    },
    LogEvent {
        name: "webhook_deliveries_not_recorded",
        levels: &[Level::WARN],
        fields: &["webhook", "error"],
        meaning: "The store did not accept the log of a webhook's deliveries. The deliveries go on without it; logged once, until it is written again.",
        action: "Look for `dependency_down` and the store's events. `posthaste webhook deliveries` misses the attempts of that time.",
    },
    LogEvent {
        name: "webhook_consumer_not_removed",
        levels: &[Level::DEBUG],
        fields: &["webhook", "error"],
        meaning: "The consumer of a webhook that was deleted or changed had ended already.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "webhook_offsets_not_kept",
        levels: &[Level::WARN],
        fields: &["webhook", "error"],
        meaning: "The group of an inactive webhook could not be joined to keep its offsets. Kafka deletes them after `offsets.retention.minutes`.",
        action: "Nothing to do unless it comes every hour: then look for `dependency_down` and read `error`.",
    },
    LogEvent {
        name: "message_dead_lettered",
        levels: &[Level::ERROR],
        fields: &["topic", "partition", "offset", "key", "webhook", "error"],
        meaning: "A consumed record cannot be processed or used up its attempts. It is in the dead letter topic. `webhook` is the one that could not be \
                  delivered to.",
        action: "`posthaste dlt show` prints it. Correct the cause, then `posthaste dlt redrive`. With `webhook`: `posthaste webhook dead-letters` and \
                 `posthaste webhook redrive`.",
    },
    LogEvent {
        name: "message_value_omitted",
        levels: &[Level::ERROR],
        fields: &["origin", "key", "error"],
        meaning: "The broker refused a consumed record for its retry topic or the dead letters, in general because the record is larger than these \
                  topics accept. Its dead letter has no value; the value is at `origin`.",
        action: "Raise `max.message.bytes` of the retry topics and dead letters, and send the event again from `origin`.",
    },
    LogEvent {
        name: "message_not_dead_lettered",
        levels: &[Level::ERROR],
        fields: &["origin", "error"],
        meaning: "The broker refused a consumed record that was not processed, and its dead letter without a value too.",
        action: "Correct what `error` names, and send the event again from `origin`.",
    },
    LogEvent {
        name: "message_retried",
        levels: &[Level::WARN],
        fields: &["topic", "partition", "offset", "key", "attempt", "error"],
        meaning: "The handler of a consumed record failed in this attempt. The record is in a retry topic, whose delay it waits.",
        action: "Check the system behind the handler if it repeats.",
    },
    LogEvent {
        name: "message_handled_by_fallback",
        levels: &[Level::WARN],
        fields: &["topic", "partition", "offset", "key", "error"],
        meaning: "The handler of a consumed record refused it or used up its attempts, and the fallback of its event type accepted it.",
        action: "Check the system behind the handler; `error` is its last failure.",
    },
    LogEvent {
        name: "remote_event_too_far_ahead",
        levels: &[Level::WARN],
        fields: &["topic", "partition", "offset", "key", "origin", "beyond_ms"],
        meaning: "An event of the region `origin` was rejected: its stamp is further ahead of this region's clock than `region.drift_max` permits, by `beyond_ms`. It is recorded and counted (`region_conflict_rejected_count_total`), and changes nothing here.",
        action: "Synchronise the clocks of both regions, and compare the order in both: handlers and endpoints of this region have not received the change.",
    },
    LogEvent {
        name: "message_blocks_key",
        levels: &[Level::ERROR],
        fields: &["topic", "partition", "offset", "key", "error"],
        meaning: "No handler accepts a consumed record whose event type has `block-key`: it is tried after the last of \
                  `consumer.retry_delays`, then after twice the time before, up to four times that delay, and the later events of its order \
                  wait. Logged for its first attempts only.",
        action: "Correct the cause; the record is then handled without a redrive.",
    },
    LogEvent {
        name: "orders_promoted",
        levels: &[Level::INFO],
        fields: &["promoted"],
        meaning: "A promotion run moved waiting orders to PROCESSING.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "promotion_held_back",
        levels: &[Level::INFO],
        fields: &["promoted", "reason"],
        meaning: "A promotion run stopped early because the region is passive or the service is under pressure. \
                  The next run continues.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "promotion_skipped",
        levels: &[Level::WARN],
        fields: &["order_id", "error"],
        meaning: "A promotion run left out an order that could not be read or changed, and went on with the next one.",
        action: "Read `error`; if the same order is named in every run, check it in the store.",
    },
    LogEvent {
        name: "promotion_stopped",
        levels: &[Level::WARN],
        fields: &["promoted", "order_id", "error"],
        meaning: "A promotion run stopped: orders could not be listed, three in a row failed, or the store is full. The next run \
                  begins after `order_id`, and tries the older orders after the younger ones.",
        action: "Read `error`; check the store if it repeats.",
    },
    LogEvent {
        name: "dependency_down",
        levels: &[Level::WARN],
        fields: &["dependency", "error"],
        meaning: "The probes of a dependency began to fail.",
        action: "Check the dependency that the event names.",
    },
    LogEvent {
        name: "dependency_up",
        levels: &[Level::INFO],
        fields: &["dependency"],
        meaning: "The probes of a dependency succeed again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "region_passive",
        levels: &[Level::ERROR],
        fields: &["region"],
        meaning: "A dependency of `failover.gates` is down: this region rejects writes until it recovers.",
        action: "Recover the dependency that `dependency_down` names, or send writes to another region.",
    },
    LogEvent {
        name: "region_active",
        levels: &[Level::INFO],
        fields: &["region"],
        meaning: "The region accepts writes again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "pressure_changed",
        levels: &[Level::INFO, Level::WARN],
        fields: &["from", "to", "lag_ms", "backlog", "saturation"],
        meaning: "Backpressure changed its level; a rise is a warning. Higher levels lower the rate limits, and \
                  CRITICAL rejects writes.",
        action: "Find what is slow: `lag_ms` is the consumer, `backlog` the broker or relay, `saturation` the \
                  store.",
    },
];
