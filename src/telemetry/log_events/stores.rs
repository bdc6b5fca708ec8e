//! Log events of the stores and the cache.

use tracing::Level;

use super::log_event::{LogEvent, LogEventGroup};

pub(super) const STORES: LogEventGroup = LogEventGroup {
    title: "Stores and cache",
    description: "The embedded store, PostgreSQL and Redis.",
    common_fields: &[],
    events: EVENTS,
};

const EVENTS: &[LogEvent] = &[
    LogEvent {
        name: "dependency_called",
        levels: &[Level::DEBUG],
        fields: &["operation", "duration_ms", "failed"],
        meaning: "A call of the store or of Redis ended. The context shows for which request or message.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "commits_failing",
        levels: &[Level::ERROR],
        fields: &["error"],
        meaning: "Commits of the embedded store began to fail, for example because the disk is full. Writes are \
                  rejected.",
        action: "Free space on the disk of `store.path`, or repair it.",
    },
    LogEvent {
        name: "commits_recovered",
        levels: &[Level::INFO],
        fields: &[],
        meaning: "Commits of the embedded store succeed again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "owner_index_update_failed",
        levels: &[Level::DEBUG],
        fields: &["error"],
        meaning: "The embedded store could not move new orders into its index of owners; it tries again later.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "store_timeline_unreadable",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The PostgreSQL server does not show its timeline to this role, or has none. A fail-over to a standby that lagged is then \
                  recognised only by the broker's watermarks.",
        action: "Grant the role EXECUTE on pg_control_system, pg_walfile_name and pg_current_wal_lsn.",
    },
    LogEvent {
        name: "migration_waits",
        levels: &[Level::WARN],
        fields: &["version", "name", "vacuumed"],
        meaning: "A migration of PostgreSQL needs a table that an open transaction, or VACUUM (`vacuumed`), has locked. It is rolled back after half a \
                  second, so that others go on, and tried again every second until that ends. Every 30 s one attempt waits long enough for \
                  PostgreSQL to cancel an autovacuum.",
        action: "End the transaction if it is forgotten: `pg_stat_activity` shows the oldest by `xact_start`.",
    },
    LogEvent {
        name: "database_message",
        levels: &[Level::DEBUG, Level::WARN],
        fields: &["code"],
        meaning: "PostgreSQL sent a NOTICE (debug) or a WARNING (warn) with this SQLSTATE. A migration reports by a WARNING what it could not \
                  change.",
        action: "Do what the hint of a warning says.",
    },
    LogEvent {
        name: "archive_partition_create_failed",
        levels: &[Level::DEBUG],
        fields: &["day", "error"],
        meaning: "An archive partition for this day could not be created; the next sweep tries again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "archive_partition_in_use",
        levels: &[Level::DEBUG],
        fields: &["day", "error"],
        meaning: "An expired archive partition could not be emptied and dropped; the next sweep tries again. The page \
                  counts as failed (`sweep_failed`).",
        action: "Nothing to do: `sweep_failing` reports one that stays.",
    },
    LogEvent {
        name: "instance_lock_interrupted",
        levels: &[Level::WARN],
        fields: &["instance"],
        meaning: "The PostgreSQL connection that holds the lock on `instance.id` broke. The instance continues \
                  while it takes the lock again.",
        action: "Check PostgreSQL and the network if it repeats.",
    },
    LogEvent {
        name: "instance_lock_regained",
        levels: &[Level::INFO],
        fields: &["instance"],
        meaning: "The instance holds the lock on its `instance.id` again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "instance_lock_retry_failed",
        levels: &[Level::DEBUG],
        fields: &["error"],
        meaning: "An attempt to take the lock on `instance.id` again failed; the next one follows.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "wake_listener_interrupted",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The PostgreSQL connection that listens for wake-ups broke or could not be opened, or Redis refuses to send them. It is opened \
                  again; until then events of other writers wait for the poll (`outbox.poll_interval`). It is logged once until it recovers.",
        action: "Check PostgreSQL and the network if it repeats. Behind a pooler in transaction mode set `store.pooler`. With Redis, permit its user \
                 the channel that `error` is about: `ACL SETUSER NAME &posthaste:*`.",
    },
    LogEvent {
        name: "wake_listener_regained",
        levels: &[Level::INFO],
        fields: &[],
        meaning: "The instance listens for wake-ups again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "redis_unreachable",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "Redis does not answer. As cache it is bypassed and rate limits are not enforced; as store it \
                  makes requests fail.",
        action: "Check Redis.",
    },
    LogEvent {
        name: "redis_recovered",
        levels: &[Level::INFO],
        fields: &["seconds"],
        meaning: "Redis answers again after this many seconds.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "policy_ignored",
        levels: &[Level::WARN],
        fields: &["key", "value"],
        meaning: "A rate limit policy in Redis is not a number within bounds; the default applies.",
        action: "Correct the value of `key` in Redis.",
    },
    LogEvent {
        name: "store_durable_again",
        levels: &[Level::INFO],
        fields: &[],
        meaning: "The settings of the Redis store, which allowed it to lose orders, have been corrected.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "outbox_index_built",
        levels: &[Level::INFO],
        fields: &["entries"],
        meaning: "The first start on the rows of an earlier release wrote the index of due rows: `entries` entries.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "outbox_index_repaired",
        levels: &[Level::WARN],
        fields: &["repairs"],
        meaning: "The audit found `repairs` entries of the Redis store's outbox indexes that did not agree with the rows, and corrected them. A row that was in flight without a batch became due again; no other row was changed.",
        action: "Find out who edited keys of the store, or whether a script of it was interrupted.",
    },
    LogEvent {
        name: "outbox_audit_failed",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "The audit of the Redis store's outbox indexes fails. Events still leave. Logged once.",
        action: "Read `error`; a key of the store may have another type.",
    },
    LogEvent {
        name: "legacy_key_ignored",
        levels: &[Level::WARN],
        fields: &["key"],
        meaning: "The idempotency key of an earlier service under `redis.legacy_key_prefix` has a value of an unknown format. It counts as absent. Logged once.",
        action: "Compare its value with the forms in docs/configure.md; a repeated request may create a second order until the key expires.",
    },
    LogEvent {
        name: "bucket_failed",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "Redis refused the token bucket script. Requests are counted in sliding windows instead.",
        action: "Allow scripts in Redis, or delete the key that holds another type.",
    },
    LogEvent {
        name: "store_fsync_everysec",
        levels: &[Level::WARN],
        fields: &[],
        meaning: "The Redis store uses `appendfsync everysec`: orders of the last seconds are lost when Redis and \
                  its machine fail together.",
        action: "Set `appendfsync always` where no order may be lost.",
    },
    LogEvent {
        name: "store_not_durable",
        levels: &[Level::WARN],
        fields: &["settings"],
        meaning: "The Redis store may lose orders: `settings` names the settings.",
        action: "Set `appendonly yes`, `appendfsync always`, `no-appendfsync-on-rewrite no` and `maxmemory-policy noeviction`.",
    },
];
