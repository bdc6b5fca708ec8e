//! Rules for single values beyond their type: ranges, enumerations and formats.
use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use app::consume::chain::ATTEMPTS_MAX;
use app::contract::{LATEST, READABLE_MIN};
use app::units;
use outbox::topics::RETRY_DELAYS;

use super::layers::Settings;
use super::topic_keys;
use super::traces::{collector_headers, traces_url};

/// Accepts a value's text, or returns the accepted values, as the end of a sentence with "must be".
type Rule = fn(&str) -> Result<(), String>;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const TOPIC_PREFIX_MAX: usize = 200;
const KEY_PREFIX_MAX: usize = 200;
/// A stop waits for requests in progress, and must end within its deadline.
const POST_TIMEOUT_MAX: Duration = Duration::from_secs(10);

pub(super) const RULES: [(&str, Rule); 82] = [
    ("store.key_prefix", key_prefix),
    ("store.pool", |text| integer(text, 9, 1_000)),
    ("broker.topic_prefix", topic_prefix),
    ("broker.topic_partitions", |text| integer(text, 1, 10_000)),
    ("broker.transaction_timeout", |text| at_least(text, SECOND)),
    ("broker.lanes", |text| integer(text, 1, 64)),
    ("broker.retention", |text| at_least(text, SECOND)),
    ("broker.sasl.mechanism", |text| one_of(text, &["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])),
    ("broker.breaker.failures", |text| integer(text, 1, 1_000_000)),
    ("broker.breaker.open", |text| at_least(text, MILLISECOND)),
    ("cache.order_ttl", |text| at_least(text, MILLISECOND)),
    ("cache.list_ttl", |text| at_least(text, MILLISECOND)),
    ("cache.jitter", |text| fraction(text).map(drop)),
    ("cache.breaker.failures", |text| integer(text, 1, 1_000_000)),
    ("cache.breaker.open", |text| at_least(text, MILLISECOND)),
    ("idempotency.lock", |text| at_least(text, MILLISECOND)),
    ("idempotency.retention", |text| at_least(text, SECOND)),
    ("failover.dependency_failures", |text| integer(text, 1, 1_000)),
    ("failover.unhealthy_rounds", |text| integer(text, 1, 1_000)),
    ("failover.healthy_rounds", |text| integer(text, 1, 1_000)),
    ("events.schema_version", |text| integer(text, READABLE_MIN, LATEST)),
    ("http.listen", address),
    ("http.admin_listen", |text| if text.is_empty() { Ok(()) } else { address(text) }),
    ("http.request_timeout", |text| at_least(text, MILLISECOND)),
    ("http.header_timeout", |text| at_least(text, MILLISECOND)),
    ("http.body_timeout", |text| at_least(text, MILLISECOND)),
    ("http.max_connections", |text| integer(text, 1, 1_000_000)),
    ("read.records_max", |text| integer(text, 1, 1_000_000)),
    ("read.bytes_max", |text| ensure(units::size(text)? >= 1, "at least 1 byte")),
    ("read.wait_max", |text| at_least(text, MILLISECOND)),
    ("read.readers_max", |text| integer(text, 0, 100_000)),
    ("instance.id", identifier),
    ("region.id", |text| if text.is_empty() { Err("a name".to_owned()) } else { identifier(text) }),
    ("region.drift_max", |text| at_least(text, MILLISECOND)),
    ("outbox.partitions", |text| integer(text, 1, 4_096)),
    ("outbox.lease", |text| at_least(text, SECOND)),
    ("outbox.poll_interval", |text| at_least(text, MILLISECOND)),
    ("outbox.publisher.batch", |text| integer(text, 1, 100_000)),
    ("outbox.publisher.max_in_flight", |text| integer(text, 1, 4_096)),
    ("outbox.publisher.cycle_spacing_max", |text| at_least(text, MILLISECOND)),
    ("outbox.retry.attempts_max", |text| integer(text, 1, 1_000_000)),
    ("outbox.retry.base", |text| at_least(text, MILLISECOND)),
    ("outbox.retry.max", |text| at_least(text, MILLISECOND)),
    ("outbox.retry.jitter", |text| fraction(text).map(drop)),
    ("inbox.retention", |text| at_least(text, SECOND)),
    ("partitions.heartbeat", |text| at_least(text, MILLISECOND)),
    ("partitions.dead_after", |text| at_least(text, MILLISECOND)),
    ("failover.probe_interval", |text| at_least(text, MILLISECOND)),
    ("failover.probe_timeout", |text| at_least(text, MILLISECOND)),
    ("failover.redis_latency_max", |text| at_least(text, MILLISECOND)),
    ("failover.gates", gates),
    ("broker.topics", topics),
    ("backpressure.lag", |text| ascending_pair(text, units::duration)),
    ("backpressure.backlog", |text| {
        ascending_pair(text, |value| parsed::<u64>(value, "two whole numbers separated by a comma"))
    }),
    ("backpressure.saturation", |text| ascending_pair(text, fraction)),
    ("promotion.batch", |text| integer(text, 1, 100_000)),
    ("orders.list_max_rows", |text| integer(text, 1, 100_000)),
    ("orders.shards", |text| integer(text, 1, 1_024)),
    ("orders.mailbox", |text| integer(text, 1, 1_000_000)),
    ("consumer.count", |text| integer(text, 0, 256)),
    ("consumer.attempts_max.ORDER_CREATED", attempts),
    ("consumer.attempts_max.ORDER_STATUS_CHANGED", attempts),
    ("consumer.attempts_max.ORDER_CANCELLED", attempts),
    ("consumer.post.timeout", post_timeout),
    ("consumer.retry_delays", retry_delays),
    ("webhooks.max", |text| integer(text, 0, 1_000)),
    ("webhooks.parallel", |text| integer(text, 1, 256)),
    ("webhooks.timeout", post_timeout),
    ("webhooks.retry_delays", retry_delays),
    ("webhooks.secret_overlap", |text| at_least(text, Duration::ZERO)),
    ("webhooks.refresh", |text| at_least(text, MILLISECOND)),
    ("webhooks.breaker.failures", |text| integer(text, 1, 1_000_000)),
    ("webhooks.breaker.open", |text| at_least(text, MILLISECOND)),
    ("rate_limit.capacity", |text| integer(text, 1, 1_000_000_000)),
    ("rate_limit.window", |text| at_least(text, MILLISECOND)),
    ("shutdown.deadline", |text| at_least(text, SECOND)),
    ("log.level", log_level),
    ("tracing.endpoint", |text| if text.is_empty() { Ok(()) } else { valid(traces_url(text)) }),
    ("tracing.headers", |text| valid(collector_headers(text))),
    ("tracing.sample_ratio", |text| fraction(text).map(drop)),
    ("tracing.queue", |text| integer(text, 1, 1_000_000)),
    ("tracing.timeout", post_timeout),
];

/// Rules of the keys of `[topics.NAME]`, by field. An empty value means that of another key where `config/default.toml` says so.
pub(super) const TOPIC_RULES: [(&str, Rule); 7] = [
    ("partitions", |text| or_empty(text, |text| integer(text, 1, 10_000))),
    ("attempts_max", |text| or_empty(text, |text| integer(text, 1, 1_000_000))),
    ("retry_base", |text| or_empty(text, |text| at_least(text, MILLISECOND))),
    ("retry_max", |text| or_empty(text, |text| at_least(text, MILLISECOND))),
    ("retry_jitter", |text| or_empty(text, |text| fraction(text).map(drop))),
    ("consumers", |text| integer(text, 0, 256)),
    ("consumer_attempts_max", attempts),
];

fn or_empty(text: &str, rule: Rule) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { rule(text) }
}

fn post_timeout(text: &str) -> Result<(), String> {
    at_least(text, MILLISECOND)?;
    ensure(units::duration(text)? <= POST_TIMEOUT_MAX, "at most 10s")
}

/// Refuses every value that breaks its rule.
pub(super) fn check(settings: &mut Settings) {
    for (key, rule) in RULES {
        if let Err(expected) = rule(settings.text(key)) {
            settings.refuse(key, &expected);
        }
    }
    let topic_keys_set: Vec<String> =
        settings.by_key.keys().filter(|key| topic_keys::split(key).is_some()).cloned().collect();
    for key in topic_keys_set {
        let rule = TOPIC_RULES
            .iter()
            .find(|(field, _)| topic_keys::split(&key).is_some_and(|(_, key_field)| key_field == *field));
        if let Some(Err(expected)) = rule.map(|(_, rule)| rule(settings.text(&key))) {
            settings.refuse(&key, &expected);
        }
    }
}

fn ensure(holds: bool, expected: impl Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(expected.to_string()) }
}

fn valid<T>(parsed: Result<T, &'static str>) -> Result<(), String> {
    parsed.map(drop).map_err(str::to_owned)
}

fn parsed<T: FromStr>(text: &str, expected: &str) -> Result<T, String> {
    text.parse().map_err(|_| expected.to_owned())
}

fn integer(text: &str, least: u32, most: u32) -> Result<(), String> {
    let fits = text.parse().is_ok_and(|number: u32| (least..=most).contains(&number));
    ensure(fits, format_args!("a whole number from {least} to {most}"))
}

fn at_least(text: &str, least: Duration) -> Result<(), String> {
    ensure(units::duration(text)? >= least, format_args!("at least {} ms", least.as_millis()))
}

/// The first attempt, and one in each retry topic.
fn attempts(text: &str) -> Result<(), String> {
    integer(text, 1, ATTEMPTS_MAX)
}

fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "a number from 0 to 1".to_owned())
}

fn ascending_pair<T: PartialOrd + Default>(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<(), String> {
    let expected = "two values above 0, separated by a comma, ELEVATED then CRITICAL, rising";
    let (low, high) = text.split_once(',').ok_or(expected)?;
    let (low, high) = (parse(low.trim())?, parse(high.trim())?);
    ensure(T::default() < low && low <= high, expected)
}

fn retry_delays(text: &str) -> Result<(), String> {
    let delays: Vec<_> = text.split(',').map(|delay| at_least(delay.trim(), MILLISECOND)).collect();
    let legal = delays.len() == RETRY_DELAYS.len() && delays.iter().all(Result::is_ok);
    ensure(legal, format_args!("{} durations of at least 1 ms, separated by commas", RETRY_DELAYS.len()))
}

fn one_of(text: &str, words: &[&str]) -> Result<(), String> {
    let listed: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
    ensure(words.contains(&text), format_args!("one of {}", listed.join(", ")))
}

fn gates(text: &str) -> Result<(), String> {
    let known = |gate: &str| ["", "db", "redis", "broker"].contains(&gate.trim());
    ensure(text.split(',').all(known), "a list of db, redis, broker")
}

fn topics(text: &str) -> Result<(), String> {
    let legal = |name: &str| name.is_empty() || outbox::event_rules::check_topic(name).is_ok();
    ensure(text.split(',').map(str::trim).all(legal), "a list of topic names")
}

fn address(text: &str) -> Result<(), String> {
    parsed::<SocketAddr>(text, "an address and port such as 127.0.0.1:8080").map(drop)
}

fn identifier(text: &str) -> Result<(), String> {
    ensure(text.bytes().all(|byte| byte.is_ascii_graphic()), "printable ASCII without spaces")
}

fn topic_prefix(text: &str) -> Result<(), String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let expected = format!("at most {TOPIC_PREFIX_MAX} letters, digits, dots, underscores and hyphens");
    ensure(text.len() <= TOPIC_PREFIX_MAX && text.bytes().all(legal), expected)
}

/// Braces would choose the slot of a Redis cluster.
fn key_prefix(text: &str) -> Result<(), String> {
    let legal = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    let expected = format!("1 to {KEY_PREFIX_MAX} printable ASCII characters without spaces and braces");
    ensure((1..=KEY_PREFIX_MAX).contains(&text.len()) && text.bytes().all(legal), expected)
}

fn log_level(text: &str) -> Result<(), String> {
    telemetry::logging::check_level(text).map_err(|error| format!("a level or a filter: {error}"))
}
