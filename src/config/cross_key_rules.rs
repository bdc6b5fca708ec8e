//! Checks that values agree with each other. An error found here belongs to more than one key.
use api::auth::Verifier;
use secrecy::ExposeSecret;

use super::consumer::endpoint_url;
use super::sections::{AuthSettings, BrokerKind, CacheKind, Config, SaslSettings, StoreKind};

/// All errors between values, each with the keys that it concerns.
pub(super) fn errors(config: &Config) -> Vec<String> {
    let mut errors: Vec<String> = [store(config), broker(config), cache(config), pairs(config)].concat();
    errors.extend(endpoints(config));
    errors.extend(super::topic_validation::errors(config));
    errors.extend(auth(&config.auth));
    errors.extend(sasl(&config.broker.sasl));
    errors
}

/// Keeps the messages of the requirements that do not hold.
fn violated<const N: usize>(requirements: [(bool, &str); N]) -> Vec<String> {
    requirements.into_iter().filter(|(holds, _)| !holds).map(|(_, message)| message.to_owned()).collect()
}

fn is_postgres(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) || url.contains("host=")
}

fn is_redis(url: &str) -> bool {
    ["redis://", "rediss://", "unix://"].iter().any(|scheme| url.starts_with(scheme))
}

fn store(config: &Config) -> Vec<String> {
    let (kind, url) = (config.store.kind, config.store.url.expose_secret());
    let given = !url.is_empty();
    violated([
        (kind != StoreKind::Embedded || !config.store.path.as_os_str().is_empty(), "store.path: must name a folder"),
        (kind == StoreKind::Embedded || given, "store.url: must be set for this store.kind"),
        (
            kind != StoreKind::Postgres || !given || is_postgres(url),
            "store.url: must be a URL such as postgres://user:password@host:5432/database",
        ),
        (kind != StoreKind::Redis || !given || is_redis(url), "store.url: must be a URL such as redis://host:6379"),
    ])
}

fn broker(config: &Config) -> Vec<String> {
    let broker = &config.broker;
    let scram = broker.sasl.mechanism.as_ref().is_some_and(|mechanism| mechanism.starts_with("SCRAM"));
    violated([
        (
            broker.kind != BrokerKind::Embedded || config.store.kind == StoreKind::Embedded,
            "broker.kind = \"embedded\": only with store.kind = \"embedded\"; set broker.kind to kafka or none",
        ),
        (
            broker.kind != BrokerKind::Kafka || !broker.bootstrap_servers.is_empty(),
            "broker.bootstrap_servers: must be set for broker.kind = \"kafka\"",
        ),
        (
            cfg!(feature = "kafka-tls") || !(broker.tls || scram),
            "broker.tls and the SCRAM mechanisms of broker.sasl: this program was built without them; build it with --features kafka-tls",
        ),
        (
            config.outbox.enabled || broker.kind != BrokerKind::None,
            "outbox.enabled = false: needs a broker to publish to; set broker.kind",
        ),
    ])
}

fn cache(config: &Config) -> Vec<String> {
    let (used, url) = (config.cache.kind == CacheKind::Redis, config.redis.url.expose_secret());
    violated([
        (!used || !url.is_empty(), "redis.url: must be set for cache.kind = \"redis\""),
        (!used || url.is_empty() || is_redis(url), "redis.url: must be a URL such as redis://host:6379"),
    ])
}

fn pairs(config: &Config) -> Vec<String> {
    let (http, retry) = (&config.http, &config.outbox.retry);
    violated([
        (
            http.admin_listen.is_none_or(|admin| admin.port() == 0 || admin != http.listen),
            "http.admin_listen: must differ from http.listen, or be empty",
        ),
        (
            config.partitions.dead_after > config.partitions.heartbeat,
            "partitions.dead_after: must be longer than partitions.heartbeat",
        ),
        (retry.max >= retry.base, "outbox.retry.max: must not be shorter than outbox.retry.base"),
    ])
}

/// A URL is legal, and is set where a handler uses it.
fn endpoints(config: &Config) -> impl Iterator<Item = String> {
    config.consumer.urls().filter_map(|(key, url, used_by, used)| {
        if url.expose_secret().is_empty() {
            return used.then(|| format!("{key}: must be set for {used_by} = \"post\""));
        }
        endpoint_url(url).err().map(|form| format!("{key}: must be {form}"))
    })
}

/// Accepts at most one key, which must be usable. Fetches nothing: a JWKS URL is only parsed.
fn auth(auth: &AuthSettings) -> Option<String> {
    let keys = [
        ("auth.hs256_secret", auth.hs256_secret.is_some()),
        ("auth.public_key_file", auth.public_key_file.is_some()),
        ("auth.jwks_url", auth.jwks_url.is_some()),
    ];
    let given: Vec<&str> = keys.iter().filter(|(_, given)| *given).map(|(key, _)| *key).collect();
    match given[..] {
        [] => None,
        [key] => {
            let verifier = Verifier::new(api::auth::Options::new(auth.source()?));
            verifier.err().map(|error| format!("{key}: {error}"))
        }
        [..] => Some(format!("{}: set exactly one of them", given.join(" and "))),
    }
}

fn sasl(sasl: &SaslSettings) -> Option<String> {
    let complete = !sasl.username.is_empty() && !sasl.password.expose_secret().is_empty();
    let missing = sasl.mechanism.is_some() && !complete;
    missing.then(|| "broker.sasl: the mechanism needs username and password".to_owned())
}
