//! Log events of the outbox and the relay.

use tracing::Level;

use super::log_event::{LogEvent, LogEventGroup};

pub(super) const RELAY: LogEventGroup = LogEventGroup {
    title: "Outbox and relay",
    description: "The path from the outbox to the broker, and the partitions of this instance.",
    common_fields: &[],
    events: EVENTS,
};

const EVENTS: &[LogEvent] = &[
    LogEvent {
        name: "event_failed",
        levels: &[Level::WARN],
        fields: &[
            "event_id",
            "order_id",
            "request_id",
            "key",
            "type",
            "row",
            "attempt",
            "failure_type",
            "error",
            "delay_ms",
        ],
        meaning: "An event could not be published; its row is retried after `delay_ms`.",
        action: "Watch it. `posthaste outbox why` shows the row's attempts.",
    },
    LogEvent {
        name: "event_parked",
        levels: &[Level::ERROR],
        fields: &["event_id", "order_id", "request_id", "key", "type", "row", "attempt", "failure_type", "error"],
        meaning: "An event failed permanently, used up its attempts, or its worker or process crashed in two trials. Its row is \
                  PARKED; with `block-key`, later events of the key wait.",
        action: "Correct the cause, then `posthaste outbox retry`.",
    },
    LogEvent {
        name: "event_parking_unknown",
        levels: &[Level::ERROR],
        fields: &["event_id", "order_id", "request_id", "key", "type", "row", "attempt", "failure_type", "error"],
        meaning: "The row of an event was to be parked, and the store's reply was lost. It is PARKED and not counted, or it is sent \
                  again; a further failure is then logged as `event_parked`.",
        action: "`posthaste outbox why` shows the row's status. If it is PARKED, proceed as after `event_parked`.",
    },
    LogEvent {
        name: "event_published",
        levels: &[Level::DEBUG],
        fields: &[
            "event_id",
            "order_id",
            "request_id",
            "key",
            "type",
            "row",
            "attempt",
            "topic",
            "partition",
            "offset",
        ],
        meaning: "The broker acknowledged an event.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "batch_resolved",
        levels: &[Level::INFO],
        fields: &["partition", "epoch", "token", "verdict", "session"],
        meaning: "A previous owner left a batch open. The new owner fenced its producer and read the watermark: \
                  `verdict` says whether the batch was published.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "batch_acknowledged",
        levels: &[Level::DEBUG],
        fields: &["token", "rows", "ages_ms"],
        meaning: "The broker acknowledged a batch. `ages_ms` is the time from commit to acknowledgement of each row, in milliseconds. \
                  `posthaste bench latency` reads it.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "store_rewound",
        levels: &[Level::ERROR],
        fields: &["timeline", "complete_until", "partitions_behind", "partition", "epoch", "counter", "watermark"],
        meaning: "The broker has committed a batch that the store does not contain: the store was rewound (a fail-over to a standby \
                  that lagged, or a restore). Where the store shows its timeline, one line says how many partitions are behind; otherwise \
                  there is one for each partition. Rows whose settlement it lost are published again; no event is lost that it still has.",
        action: "Orders after `complete_until` may be gone, and events that were published after it may appear twice. Without that time, \
                 determine since when the store lacks changes. Use a synchronous standby.",
    },
    LogEvent {
        name: "store_timeline_changed",
        levels: &[Level::WARN],
        fields: &["timeline", "complete_until"],
        meaning: "The store is on a new timeline after a fail-over or a restore. All producer sessions were fenced. No watermark on \
                  the broker shows a batch that the store lacks, so none that was published is missing. In `at-least-once` mode there are no \
                  watermarks: the store may have been rewound behind published batches.",
        action: "Nothing to do after a planned fail-over. Otherwise look for orders after `complete_until`: those that were not published yet may be \
                 missing. In `at-least-once` mode treat the store as rewound: orders and events after `complete_until` may be missing, also published \
                 ones, and events that were published after it may be published twice.",
    },
    LogEvent {
        name: "store_timeline_accepted_elsewhere",
        levels: &[Level::WARN],
        fields: &["timeline", "complete_until"],
        meaning: "The store is on a new timeline after a fail-over or a restore, and another instance has accepted it, or the timeline has changed \
                  once more. The instance that accepts the last one logs `store_rewound` or `store_timeline_changed`.",
        action: "Read that line. If no instance has it, one died before it logged it: treat the store as rewound.",
    },
    LogEvent {
        name: "partitions_owned",
        levels: &[Level::INFO],
        fields: &["owned", "before"],
        meaning: "This instance owns another number of partitions than before: it started, or instances came or went. The \
                  events of each worker (`child_started`) are logged at `debug`.",
        action: "Nothing to do. The numbers of all instances together reach `outbox.partitions`.",
    },
    LogEvent {
        name: "lease_acquired",
        levels: &[Level::DEBUG],
        fields: &["partition", "epoch", "reason"],
        meaning: "This instance holds the lease of a partition under a new epoch. `reason`: `unowned` (it was free, expired, or its owner was \
                  dead), `worker_died` (the worker here died), or `outcome_unknown` (this instance held it, and a statement had no reply).",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "lease_released",
        levels: &[Level::DEBUG],
        fields: &["partition", "epoch"],
        meaning: "This instance gave the lease of a partition back: another one takes it over at once.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "lease_lost",
        levels: &[Level::DEBUG],
        fields: &["partition", "owner"],
        meaning: "This instance no longer holds the lease of a partition that it held: the lease expired, or its heartbeat stopped, and another \
                  instance (`owner`, where it is known) took it over.",
        action: "Nothing to do after a long pause of this instance. If it repeats, look for `heartbeat_failed` and `leases_locked`.",
    },
    LogEvent {
        name: "relay_failing",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The relay began to fail: events stay in the outbox. It is logged once until it recovers.",
        action: "Check the broker and the store; no event is lost.",
    },
    LogEvent {
        name: "relay_recovered",
        levels: &[Level::INFO],
        fields: &[],
        meaning: "The relay publishes events again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "breaker_opened",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The broker kept failing, so its circuit breaker is open: sends pause for `broker.breaker.open`, or until it \
                  is seen to come back. \
                  No event is lost.",
        action: "Check the broker.",
    },
    LogEvent {
        name: "breaker_closed",
        levels: &[Level::INFO],
        fields: &[],
        meaning: "The broker's circuit breaker is closed: sends continue.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "breaker",
        levels: &[],
        fields: &["state", "error"],
        meaning: "The broker's circuit breaker changed its state. Only on the live event stream; the log has \
                  `breaker_opened` and `breaker_closed`.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "publisher_disabled",
        levels: &[Level::WARN],
        fields: &[],
        meaning: "`outbox.publisher.enabled` is `false`: this instance takes no partition and relays no events. Other instances relay what it writes; without any, events wait as PENDING.",
        action: "Nothing to do if it is intended. Otherwise remove the setting.",
    },
    LogEvent {
        name: "broker_absent",
        levels: &[Level::WARN],
        fields: &[],
        meaning: "`broker.kind` is `none`: events wait as PENDING until an instance with a broker takes their partitions. This instance has \
                  no share of them.",
        action: "Configure a broker; the waiting events are then published.",
    },
    LogEvent {
        name: "direct_publish_failed",
        levels: &[Level::ERROR],
        fields: &["order_id", "event_id", "error"],
        meaning: "`outbox.enabled` is false and an event could not be published: this event is lost.",
        action: "Enable the outbox. Compare the orders with the topic to find the lost event.",
    },
    LogEvent {
        name: "heartbeat_failed",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The instance could not renew its membership in the store. Its leases expire when this continues, \
                  and other instances take over its partitions.",
        action: "Check the store.",
    },
    LogEvent {
        name: "leases_locked",
        levels: &[Level::WARN],
        fields: &["partitions"],
        meaning: "The leases of `partitions` were not renewed, because a transaction outside the service has locked their rows in \
                  `outbox_lease`. The other leases were renewed. It is logged once, until no row is locked.",
        action: "End that transaction; `pg_blocking_pids` and `pg_stat_activity` show it.",
    },
    LogEvent {
        name: "leases_not_released",
        levels: &[Level::WARN],
        fields: &["partitions", "error"],
        meaning: "A stop could not release the leases of `partitions`: a batch is open, an acquisition had no reply, or the store did not release \
                  them in time. The next owner of each partition waits until its lease expires, `outbox.lease` later at the latest. `error` is \
                  the reason for the first of them that has one. After `root_gave_up` the event may come twice.",
        action: "Read `error`. Nothing is lost: an instance that starts with the same id takes these partitions at once.",
    },
    LogEvent {
        name: "sessions_forgotten",
        levels: &[Level::INFO],
        fields: &["forgotten"],
        meaning: "Instances that left, or were dead for long, had producer sessions: they were fenced, and a fence of all sessions no longer \
                  includes them.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "worker_start_failed",
        levels: &[Level::DEBUG],
        fields: &["partition", "error"],
        meaning: "The worker of an assigned partition could not be started; the next heartbeat tries again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "worker_not_removed",
        levels: &[Level::WARN],
        fields: &["partition", "error"],
        meaning: "The worker of a released partition could not be stopped. Its lease expires.",
        action: "Restart the instance if the partition has no owner for longer than `outbox.lease`.",
    },
    LogEvent {
        name: "leave_failed",
        levels: &[Level::DEBUG],
        fields: &["error"],
        meaning: "The instance could not delete its membership row while it stopped. Other instances notice after \
                  `partitions.dead_after`.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "sweep_failed",
        levels: &[Level::DEBUG],
        fields: &["what", "error"],
        meaning: "One page of a periodic cleanup (archive, idempotency keys, inbox, log or producer sessions) failed; a later sweep \
                  repeats it.",
        action: "Nothing to do: `sweep_failing` reports one that goes on.",
    },
    LogEvent {
        name: "sweep_failing",
        levels: &[Level::WARN],
        fields: &["what", "failures", "error"],
        meaning: "A periodic cleanup (`what`) failed several times in a row: expired data accumulates. It is repeated, and logged once until \
                  it recovers.",
        action: "Read `error`. An archive partition in use: a reader (a backup, an open transaction) holds a lock on `outbox_archive`.",
    },
    LogEvent {
        name: "sweep_recovered",
        levels: &[Level::INFO],
        fields: &["what"],
        meaning: "The periodic cleanup succeeds again.",
        action: "Nothing to do.",
    },
];
