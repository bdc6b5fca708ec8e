//! How each kind of client is set up. Every time-out that differs from the library's says why.
use std::time::Duration;

use rdkafka::ClientConfig;
use secrecy::ExposeSecret;

use crate::options::Options;

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

/// A broker that says nothing for so long is gone; a minute of silence would eat what we promise after an outage.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What all clients share.
fn base(options: &Options) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &options.bootstrap_servers)
        .set("client.id", format!("posthaste-{}", options.instance))
        .set("socket.timeout.ms", millis(SILENCE_MAX))
        .set("socket.connection.setup.timeout.ms", "5000")
        .set("socket.keepalive.enable", "true")
        .set("socket.nagle.disable", "true")
        // A broker that comes back is noticed within a second, not within ten.
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "1000")
        .set("retry.backoff.ms", "50")
        .set("retry.backoff.max.ms", "500")
        // A leader that moved, or a topic that was just made, is found at once.
        .set("topic.metadata.refresh.fast.interval.ms", "100")
        .set("topic.metadata.refresh.interval.ms", "60000")
        // Idle connections are cut by every broker; that is no event.
        .set("log.connection.close", "false");
    secure(&mut config, options);
    config
}

fn secure(config: &mut ClientConfig, options: &Options) {
    let security = &options.security;
    let protocol = match (security.tls, security.sasl.is_some()) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some(file) = &security.ca_file {
        config.set("ssl.ca.location", file.to_string_lossy());
    }
    if let Some(sasl) = &security.sasl {
        config
            .set("sasl.mechanism", &sasl.mechanism)
            .set("sasl.username", &sasl.username)
            .set("sasl.password", sasl.password.expose_secret());
    }
}

/// A client that asks about topics and makes them.
pub(crate) fn asking(options: &Options) -> ClientConfig {
    base(options)
}

/// A client that asks how far partitions go, open transactions included.
pub(crate) fn measuring(options: &Options) -> ClientConfig {
    let mut config = base(options);
    config.set("isolation.level", "read_uncommitted");
    config
}

/// A client that reads partitions by name, outside any group. (The library wants a group's name even so; nothing is stored under it.)
pub(crate) fn reading(options: &Options) -> ClientConfig {
    let mut config = base(options);
    config
        .set("group.id", format!("{}-look", options.lane_base()))
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "earliest")
        // A fetch that waits for more would hold back the next look.
        .set("fetch.wait.max.ms", "5")
        .set("fetch.error.backoff.ms", "50")
        .set("queued.max.messages.kbytes", "16384");
    config
}

/// A member of a consumer group.
pub(crate) fn consuming(options: &Options, group: &str) -> ClientConfig {
    let mut config = base(options);
    config
        // Installations that share a cluster must not wait for each other's members.
        .set("group.id", options.topic(group))
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        // Only what changes hands stops for a rebalance. No `group.instance.id`: a static member that is killed keeps its partitions
        // until its session times out even when its successor is there already.
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("session.timeout.ms", millis(options.session_timeout))
        .set("heartbeat.interval.ms", millis(options.session_timeout / 4))
        // The consumer's own thread always polls; a process that is stopped for so long is given up by its group.
        .set("max.poll.interval.ms", "60000")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "50")
        // Memory: what is fetched ahead of what was asked for.
        .set("queued.min.messages", "1000")
        .set("queued.max.messages.kbytes", "16384")
        // How far the fetches have got, markers included, is told only by the statistics.
        .set("statistics.interval.ms", "500");
    config
}

/// A producer of either kind.
fn producing(options: &Options) -> ClientConfig {
    let mut config = base(options);
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        // As Java's clients choose, so that a topic shared with them stays in order.
        .set("partitioner", "murmur2_random")
        .set("compression.type", options.compression.as_str())
        // Long enough for a batch that is being handed over to travel together, short beside a commit.
        .set("linger.ms", "1")
        // Our own check comes first; this one is the room for key and headers beside the value.
        .set("message.max.bytes", (options.record_bytes_max + 64 * 1024).to_string())
        .set("queue.buffering.max.messages", "200000")
        .set("queue.buffering.max.kbytes", "131072")
        .set("request.timeout.ms", "8000")
        // A topic that is missing is told within seconds.
        .set("topic.metadata.propagation.max.ms", "3000");
    config
}

/// A lane's producer.
pub(crate) fn transacting(options: &Options, id: &str) -> ClientConfig {
    let mut config = producing(options);
    config
        .set("transactional.id", id)
        // The library refuses one that outlasts the transaction.
        .set("socket.timeout.ms", millis(options.transaction_timeout.min(SILENCE_MAX)))
        .set("transaction.timeout.ms", millis(options.transaction_timeout))
        .set("message.timeout.ms", millis(options.transaction_timeout));
    config
}

/// A producer without transactions.
pub(crate) fn sending(options: &Options) -> ClientConfig {
    let mut config = producing(options);
    config.set("message.timeout.ms", millis(options.deliver_within));
    config
}
