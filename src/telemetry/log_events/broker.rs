//! Log events of the Kafka adapter.

use tracing::Level;

use super::log_event::{LogEvent, LogEventGroup};

pub(super) const BROKER: LogEventGroup = LogEventGroup {
    title: "Kafka",
    description: "The Kafka clients, topics and transactional producers.",
    common_fields: &[],
    events: EVENTS,
};

const EVENTS: &[LogEvent] = &[
    LogEvent {
        name: "broker_unreachable",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "No broker can be reached. Events wait in the outbox, and no attempt is counted.",
        action: "Check Kafka and `broker.bootstrap_servers`.",
    },
    LogEvent {
        name: "broker_recovered",
        levels: &[Level::INFO],
        fields: &[],
        meaning: "A broker answers again.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "broker_refused",
        levels: &[Level::ERROR],
        fields: &["error"],
        meaning: "A topic of the installation does not have the required settings, or Kafka refused to create it, or the \
                  watermark topic was deleted while the service runs, or a permission is missing. The relay does not publish \
                  until this is corrected. Each cause is logged once, until the topics are ready.",
        action: "Correct the topic that `error` names, or grant the permission. After a deletion of the watermark topic, a batch that is open is \
                 published again: see docs/guarantees.md before you create it.",
    },
    LogEvent {
        name: "further_topics_refused",
        levels: &[Level::ERROR],
        fields: &["error"],
        meaning: "Topics of other services (`broker.topics`, `[topics.NAME]`) are missing, and Kafka or \
                  `broker.create_topics` refuses to create them. Their events are tried again or parked by the rules of \
                  their topic; all other events are published. A member of a group that reads such a topic does not \
                  join. The service looks for the topics again every 10 s.",
        action: "Create the topics that `error` names.",
    },
    LogEvent {
        name: "partition_log_truncated",
        levels: &[Level::WARN],
        fields: &["topic", "partition", "read_until", "offset"],
        meaning: "A consumer had read a topic partition up to `read_until`, and the broker sends it other messages from \
                  `offset` on: the topic was deleted and created again, or its last messages were lost. The group \
                  continues at `offset`, and may receive messages again.",
        action: "Nothing, if the topic was created again. Otherwise look for an election of a leader that was not in \
                 sync (`unclean.leader.election.enable`).",
    },
    LogEvent {
        name: "consumer_group_mixed",
        levels: &[Level::WARN],
        fields: &["group", "client_id", "host"],
        meaning: "A client of a consumer group (`client_id`, connected from `host`) reads topics of events and of retries, as members of the \
                  earlier version do. This instance must not join such a group: Kafka's client library would end the process that leads it. The \
                  other members go on consuming. This instance relays and serves requests; it reads the group every 2 s, and joins when the \
                  group has had no such client for 12 s. Each consumer logs this once for each time it joins.",
        action: "Continue the upgrade: replace the instances of the earlier version. During a roll back, see docs/deploy.md. If no instance of the \
                 earlier version runs, look for another application that uses the group.",
    },
    LogEvent {
        name: "consumer_group_joined",
        levels: &[Level::INFO],
        fields: &["group"],
        meaning: "The last member of the earlier version has left the group of a `consumer_group_mixed`, and this instance joins it.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "consumer_group_unread",
        levels: &[Level::DEBUG, Level::WARN],
        fields: &["group", "error"],
        meaning: "Before it joined a consumer group, this instance could not read from Kafka whether the group has members of the earlier version: \
                  `error` says why. It joins nevertheless. A warning follows a `consumer_group_mixed`, when the group could not be read for \
                  30 s: such a member may still be in the group.",
        action: "Nothing, if all instances are of one version. Otherwise see docs/deploy.md.",
    },
    LogEvent {
        name: "unread_records_removed",
        levels: &[Level::WARN],
        fields: &["group", "topic", "partition", "read_until", "offset"],
        meaning: "A consumer group had read a topic partition up to `read_until`, and the next record that the log still \
                  has is that at `offset`: the group had no member, or was behind, for longer than the retention of the \
                  topic (`broker.retention`), or the data folder of the embedded broker is damaged. The group continues \
                  at `offset`. On Kafka, a single missing offset is not reported, because it may be the end of a \
                  transaction.",
        action: "Choose a `broker.retention` that is longer than the service may be stopped. Look for errors of the disk if \
                 it was not stopped that long.",
    },
    LogEvent {
        name: "broker_client",
        levels: &[Level::DEBUG],
        fields: &["level", "facility", "line"],
        meaning: "A log line of the Kafka client library.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "broker_client_error",
        levels: &[Level::DEBUG],
        fields: &["error", "reason"],
        meaning: "A Kafka client reported an error outside of a call; the client recovers by itself.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "broker_clients_renewed",
        levels: &[Level::DEBUG],
        fields: &[],
        meaning: "A Kafka client reached no broker for too long and is replaced.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "broker_clients_kept",
        levels: &[Level::WARN],
        fields: &["error"],
        meaning: "A Kafka client could not be replaced; the old one remains in use.",
        action: "Check the `broker` configuration if it repeats.",
    },
    LogEvent {
        name: "producer_session_ended",
        levels: &[Level::DEBUG],
        fields: &["session", "reason"],
        meaning: "The session of a transactional producer ended; the next batch opens a new one.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "rebalance_unanswered",
        levels: &[Level::DEBUG],
        fields: &["error"],
        meaning: "A consumer that leaves the group could not complete a rebalance; the group expires it.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "topic_created",
        levels: &[Level::INFO],
        fields: &["topic", "replicas"],
        meaning: "A missing topic was created.",
        action: "Nothing to do.",
    },
    LogEvent {
        name: "topic_partitions_differ",
        levels: &[Level::WARN],
        fields: &["topic", "actual", "configured"],
        meaning: "A topic has another number of partitions than `topics.NAME.partitions` or `broker.topic_partitions` \
                  say. It is not changed, because that would break the order of events per key.",
        action: "Set the key to the topic's number, or drain the topic and recreate it.",
    },
];
