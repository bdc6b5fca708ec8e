//! librdkafka's configuration of each kind of client. Every value that differs from the library's default has its reason.
use std::time::Duration;

use rdkafka::ClientConfig;
use secrecy::ExposeSecret;

use crate::options::Options;
use crate::protocol::tls::authority_file;

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

/// A broker that sends nothing for this long counts as lost. The library's default, one minute, exceeds the 30 s within which events must
/// flow again after an outage.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings that all clients share.
fn base_config(options: &Options) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &options.bootstrap_servers)
        .set("client.id", format!("posthaste-{}", options.instance))
        .set("socket.timeout.ms", millis(SOCKET_TIMEOUT))
        .set("socket.connection.setup.timeout.ms", "5000")
        .set("socket.keepalive.enable", "true")
        .set("socket.nagle.disable", "true")
        // A client reconnects within a second after a broker returns, not within ten.
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "1000")
        .set("retry.backoff.ms", "50")
        .set("retry.backoff.max.ms", "500")
        // Finds the leader of a new topic, and a leader that moved, within 100 ms.
        .set("topic.metadata.refresh.fast.interval.ms", "100")
        .set("topic.metadata.refresh.interval.ms", "60000")
        // Every broker closes idle connections; that is not worth a log line.
        .set("log.connection.close", "false");
    set_security(&mut config, options);
    config
}

fn set_security(config: &mut ClientConfig, options: &Options) {
    let security = &options.security;
    let protocol = match (security.tls, security.sasl.is_some()) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if security.tls {
        // Set for the system's certificates too: an OpenSSL that is linked statically looks for them elsewhere.
        config.set("ssl.ca.location", authority_file(security.ca_file.as_deref()).to_string_lossy());
    }
    if let Some(sasl) = &security.sasl {
        config
            .set("sasl.mechanism", &sasl.mechanism)
            .set("sasl.username", &sasl.username)
            .set("sasl.password", sasl.password.expose_secret());
    }
}

/// A client that reads metadata and administers topics.
pub(crate) fn metadata(options: &Options) -> ClientConfig {
    base_config(options)
}

/// A client that reads high watermarks, open transactions included.
pub(crate) fn uncommitted_offsets(options: &Options) -> ClientConfig {
    let mut config = base_config(options);
    config.set("isolation.level", "read_uncommitted");
    config
}

/// A client that reads the committed offsets of a group that it does not join.
pub(crate) fn group_offset_reader(options: &Options, group: &str) -> ClientConfig {
    let mut config = base_config(options);
    config.set("group.id", options.topic(group)).set("enable.auto.commit", "false");
    config
}

/// A client that reads assigned partitions outside any group. The library requires a group id nevertheless; no offset is stored under it, and no
/// permission for it is needed.
pub(crate) fn partition_reader(options: &Options) -> ClientConfig {
    let mut config = base_config(options);
    config
        .set("group.id", options.transactional_id(&options.instance, "look"))
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "earliest")
        // A fetch that waits for more records would delay the next read.
        .set("fetch.wait.max.ms", "5");
    bound_prefetch(&mut config);
    config
}

/// The consumer of a member of a consumer group.
pub(crate) fn group_member(options: &Options, group: &str) -> ClientConfig {
    let mut config = base_config(options);
    config
        // The prefix keeps the groups of installations on one cluster apart: otherwise they would wait for each other's members.
        .set("group.id", options.topic(group))
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        // A cooperative rebalance stops only the partitions that move. No `group.instance.id`: a static member that is killed keeps its
        // partitions until its session times out, even when its successor has already joined.
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("session.timeout.ms", millis(options.session_timeout))
        .set("heartbeat.interval.ms", millis(options.session_timeout / 4))
        // The member's thread polls all the time; only a process that is stopped for this long loses its membership.
        .set("max.poll.interval.ms", "60000")
        .set("fetch.wait.max.ms", "100")
        .set("queued.min.messages", "1000")
        // Only the statistics report the fetch position, control records included.
        .set("statistics.interval.ms", "500");
    bound_prefetch(&mut config);
    config
}

/// Bounds the memory of prefetched messages. By default the client fetches nothing for a second after it has reached a bound, and the events
/// that come meanwhile wait for it.
fn bound_prefetch(config: &mut ClientConfig) {
    config
        .set("queued.max.messages.kbytes", "16384")
        .set("fetch.queue.backoff.ms", "10")
        .set("fetch.error.backoff.ms", "50");
}

/// A producer without transactions, for the guarantee at least once.
pub(crate) fn plain_producer(options: &Options) -> ClientConfig {
    let mut config = base_config(options);
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        // The partitioner of the Java clients, so that keys keep their order on a topic shared with them. Records without a key have one
        // partition, because retries keep their order, too.
        .set("partitioner", "murmur2")
        .set("compression.type", options.compression.as_str())
        // Long enough that the records of one batch share requests.
        .set("linger.ms", "1")
        // The adapter checks the value's size first; the extra 64 KiB are for the key and the headers.
        .set("message.max.bytes", (options.record_bytes_max + 64 * 1024).to_string())
        .set("queue.buffering.max.messages", "200000")
        .set("queue.buffering.max.kbytes", "131072")
        .set("request.timeout.ms", "8000")
        // A broker knows a new topic within this time. A record for a missing topic delays the other records sent with it for as long.
        .set("topic.metadata.propagation.max.ms", "1000")
        .set("message.timeout.ms", millis(options.delivery_timeout));
    config
}
