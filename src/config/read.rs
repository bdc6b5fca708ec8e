//! From text to typed options. Each mistake is noted and a stand-in used, so that one run finds all of them.
use std::collections::HashMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use app::contract::framing::SchemaIds;
use app::policy::backpressure::PressureThresholds;
use app::relay::chain::{Fallback, Poison};
use domain::EventType;

use super::layers::{Setting, Settings};
use super::{AuthKey, BrokerKind, Config, Mistakes, Sasl, StoreKind, value};

struct Reader {
    settings: Settings,
    mistakes: Vec<String>,
}

pub(super) fn config(mut settings: Settings) -> Result<Config, Mistakes> {
    let mistakes = std::mem::take(&mut settings.mistakes);
    let mut reader = Reader { settings, mistakes };
    let config = reader.config();
    reader.agree(&config);
    if reader.mistakes.is_empty() { Ok(config) } else { Err(Mistakes(reader.mistakes)) }
}

impl Reader {
    fn text(&self, key: &str) -> String {
        self.settings.by_key.get(key).map(|setting| setting.text.clone()).unwrap_or_default()
    }

    fn optional(&self, key: &str) -> Option<String> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    fn wrong(&mut self, key: &str, expected: &str) {
        let secret = super::layers::SECRETS.contains(&key);
        let Some(Setting { text, origin }) = self.settings.by_key.get(key) else { return };
        let shown = if secret { "***" } else { text };
        self.mistakes.push(format!("{key} = \"{shown}\" (from {origin}): must be {expected}"));
    }

    fn read<T>(&mut self, key: &str, stand_in: T, read: impl FnOnce(&str) -> Result<T, String>) -> T {
        match read(&self.text(key)) {
            Ok(value) => value,
            Err(expected) => {
                self.wrong(key, &expected);
                stand_in
            }
        }
    }

    fn flag(&mut self, key: &str) -> bool {
        self.read(key, false, value::flag)
    }

    fn duration(&mut self, key: &str) -> Duration {
        self.read(key, Duration::from_secs(1), value::duration)
    }

    /// A duration that makes no sense as zero.
    fn positive(&mut self, key: &str, least: Duration) -> Duration {
        let duration = self.duration(key);
        if duration < least {
            self.wrong(key, &format!("at least {} ms", least.as_millis()));
        }
        duration
    }

    fn count<T: FromStr + PartialOrd + std::fmt::Display + Copy>(&mut self, key: &str, least: T, most: T) -> T {
        self.read(key, least, |text| {
            let number = text.parse::<T>().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("a whole number from {least} to {most}"))
        })
    }

    fn one_of<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> T {
        let text = self.text(key);
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, choice)) => *choice,
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                self.wrong(key, &format!("one of {}", names.join(", ")));
                choices[0].1
            }
        }
    }

    fn address(&mut self, key: &str) -> SocketAddr {
        self.read(key, SocketAddr::from(([127, 0, 0, 1], 0)), |text| {
            text.parse().map_err(|_| "an address and port such as 127.0.0.1:8080".to_owned())
        })
    }

    fn pair<T: PartialOrd + Copy + Default>(
        &mut self,
        key: &str,
        stand_in: T,
        read: fn(&str) -> Result<T, String>,
    ) -> (T, T) {
        self.read(key, (stand_in, stand_in), |text| {
            let form = || "two values above 0, separated by a comma, ELEVATED then CRITICAL, rising".to_owned();
            let (low, high) = text.split_once(',').ok_or_else(form)?;
            let (low, high) = (read(low.trim())?, read(high.trim())?);
            if T::default() < low && low <= high { Ok((low, high)) } else { Err(form()) }
        })
    }

    fn by_type<T: Copy>(&mut self, section: &str, choices: &[(&str, T)]) -> HashMap<String, T> {
        let prefix = format!("{section}.");
        let keys: Vec<String> = self.settings.by_key.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
        let mut rules = HashMap::new();
        for key in keys {
            let kind = key[prefix.len()..].to_owned();
            if EventType::parse(&kind).is_none() {
                let types: Vec<&str> = EventType::ALL.iter().map(|kind| kind.as_str()).collect();
                self.mistakes.push(format!("{key}: no such event type; there are {}", types.join(", ")));
                continue;
            }
            let choice = self.one_of(&key, choices);
            rules.insert(kind, choice);
        }
        rules
    }

    fn auth_key(&mut self) -> Option<AuthKey> {
        let given = [
            ("auth.hs256_secret", self.optional("auth.hs256_secret").map(AuthKey::Secret)),
            (
                "auth.public_key_file",
                self.optional("auth.public_key_file").map(|path| AuthKey::PublicKeyFile(path.into())),
            ),
            ("auth.jwks_url", self.optional("auth.jwks_url").map(AuthKey::JwksUrl)),
        ];
        let names: Vec<&str> = given.iter().filter(|(_, key)| key.is_some()).map(|(name, _)| *name).collect();
        if names.len() > 1 {
            self.mistakes.push(format!("{}: set exactly one of them", names.join(" and ")));
        }
        let key = given.into_iter().find_map(|(_, key)| key);
        // A key that cannot be used is a mistake of the configuration like any other; nothing is fetched for it.
        if let (Some(key), 1) = (&key, names.len())
            && let Err(error) = api::auth::Verifier::new(api::auth::Options::new(key.source()))
        {
            self.mistakes.push(format!("{}: {error}", names[0]));
        }
        key
    }

    fn sasl(&mut self) -> Option<Sasl> {
        let mechanism = self.optional("broker.sasl.mechanism")?;
        if !["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"].contains(&mechanism.as_str()) {
            self.wrong("broker.sasl.mechanism", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512");
        }
        let (username, password) = (self.text("broker.sasl.username"), self.text("broker.sasl.password"));
        if username.is_empty() || password.is_empty() {
            self.mistakes.push("broker.sasl: the mechanism needs username and password".into());
        }
        Some(Sasl { mechanism, username, password })
    }

    fn schema_ids(&mut self) -> Option<SchemaIds> {
        self.optional("events.schema_ids")?;
        self.read("events.schema_ids", None, |text| SchemaIds::parse(text).map(Some))
    }

    fn gates(&mut self) -> Vec<String> {
        let gates = value::list(&self.text("failover.gates"));
        if !gates.iter().all(|gate| ["db", "redis", "broker"].contains(&gate.as_str())) {
            self.wrong("failover.gates", "a list of db, redis, broker");
        }
        gates
    }

    fn trusted_proxies(&mut self) -> Vec<String> {
        let proxies = value::list(&self.text("http.trusted_proxies"));
        let legal = |proxy: &String| {
            let (address, bits) = proxy.split_once('/').map_or((proxy.as_str(), None), |(a, b)| (a, Some(b)));
            let Ok(address) = address.parse::<std::net::IpAddr>() else { return false };
            let most = if address.is_ipv4() { 32 } else { 128 };
            bits.is_none_or(|bits| bits.parse::<u8>().is_ok_and(|bits| bits <= most))
        };
        if !proxies.iter().all(legal) {
            self.wrong("http.trusted_proxies", "a list of addresses or networks such as 10.0.0.1,10.1.0.0/16");
        }
        proxies
    }

    fn log_level(&mut self) -> String {
        let level = self.text("log.level");
        if let Err(error) = telemetry::logging::check_level(&level) {
            self.wrong("log.level", &format!("a level or a filter: {error}"));
        }
        level
    }

    fn config(&mut self) -> Config {
        use telemetry::logging::Format;
        let second = Duration::from_secs(1);
        let milli = Duration::from_millis(1);
        let unsent_age_max = self.duration("health.unsent_age_max");
        Config {
            store_kind: self.one_of(
                "store.kind",
                &[("embedded", StoreKind::Embedded), ("postgres", StoreKind::Postgres), ("redis", StoreKind::Redis)],
            ),
            store_path: self.text("store.path").into(),
            store_url: self.text("store.url"),
            store_migrate: self.flag("store.migrate"),
            store_pool: self.count("store.pool", 9, 1_000),
            store_pooler: self.flag("store.pooler"),
            store_notify: self.flag("store.notify"),
            store_durability_warn: self.one_of("store.durability", &[("refuse", false), ("warn", true)]),
            store_ca_file: self.optional("store.ca_file").map(Into::into),
            broker_kind: self.one_of(
                "broker.kind",
                &[("embedded", BrokerKind::Embedded), ("kafka", BrokerKind::Kafka), ("none", BrokerKind::None)],
            ),
            broker_bootstrap_servers: self.text("broker.bootstrap_servers"),
            broker_exactly_once: self.one_of("broker.delivery", &[("exactly-once", true), ("at-least-once", false)]),
            broker_topic_prefix: self.text("broker.topic_prefix"),
            broker_topic_partitions: self.count("broker.topic_partitions", 1, 10_000),
            broker_create_topics: self.flag("broker.create_topics"),
            broker_transaction_timeout: self.positive("broker.transaction_timeout", second),
            broker_lanes: self.count("broker.lanes", 1, 64),
            broker_retention: self.positive("broker.retention", second),
            broker_lz4: self.one_of("broker.compression", &[("none", false), ("lz4", true)]),
            broker_tls: self.flag("broker.tls"),
            broker_ca_file: self.optional("broker.ca_file").map(Into::into),
            broker_sasl: self.sasl(),
            broker_breaker: app::policy::breaker::Options {
                failures: self.count("broker.breaker.failures", 1, 1_000_000),
                open: self.positive("broker.breaker.open", milli),
            },
            events_schema_version: self.count(
                "events.schema_version",
                app::contract::READABLE_MIN,
                app::contract::LATEST,
            ),
            events_schema_ids: self.schema_ids(),
            cache_redis: self.one_of("cache.kind", &[("memory", false), ("redis", true)]),
            redis_url: self.text("redis.url"),
            http_listen: self.address("http.listen"),
            http_admin_listen: self.optional("http.admin_listen").map(|_| self.address("http.admin_listen")),
            http_request_timeout: self.positive("http.request_timeout", milli),
            http_header_timeout: self.positive("http.header_timeout", milli),
            http_body_timeout: self.positive("http.body_timeout", milli),
            http_body_max: self.read("http.body_max", 1 << 20, value::size),
            http_max_connections: self.count("http.max_connections", 1, 1_000_000),
            http_trusted_proxies: self.trusted_proxies(),
            auth_key: self.auth_key(),
            auth_issuer: self.optional("auth.issuer"),
            auth_audience: self.optional("auth.audience"),
            auth_leeway: self.duration("auth.leeway"),
            instance_id: self.optional("instance.id"),
            region_id: self.text("region.id"),
            outbox_enabled: self.flag("outbox.enabled"),
            outbox_partitions: self.count("outbox.partitions", 1, 4_096),
            outbox_lease: self.positive("outbox.lease", second),
            outbox_poll_interval: self.positive("outbox.poll_interval", milli),
            outbox_retention: self.duration("outbox.retention"),
            outbox_batch: self.count("outbox.publisher.batch", 1, 100_000),
            outbox_max_in_flight: self.count("outbox.publisher.max_in_flight", 1, 4_096),
            outbox_retry: outbox::RetryPolicy {
                attempts_max: self.count("outbox.retry.attempts_max", 1, 1_000_000),
                base: self.positive("outbox.retry.base", milli),
                max: self.positive("outbox.retry.max", milli),
                jitter: self.read("outbox.retry.jitter", 0.2, share),
            },
            outbox_poison: self
                .by_type("outbox.poison", &[("block-key", Poison::BlockKey), ("skip-row", Poison::SkipRow)]),
            outbox_fallback: self
                .by_type("outbox.fallback", &[("none", Fallback::None), ("dead-letter", Fallback::DeadLetter)]),
            inbox_retention: self.positive("inbox.retention", second),
            partitions_heartbeat: self.positive("partitions.heartbeat", milli),
            partitions_dead_after: self.positive("partitions.dead_after", milli),
            failover_probe_interval: self.positive("failover.probe_interval", milli),
            failover_probe_timeout: self.positive("failover.probe_timeout", milli),
            failover_gates: self.gates(),
            backpressure: PressureThresholds {
                lag: self.pair("backpressure.lag", second, value::duration),
                backlog: self.pair("backpressure.backlog", 0, |text| {
                    text.parse().map_err(|_| "two whole numbers separated by a comma".to_owned())
                }),
                saturation: self.pair("backpressure.saturation", 0.5, share),
            },
            health_unsent_age_max: Some(unsent_age_max).filter(|age| !age.is_zero()),
            promotion_interval: self.duration("promotion.interval"),
            promotion_batch: self.count("promotion.batch", 1, 100_000),
            orders_list_max_rows: self.count("orders.list_max_rows", 1, 100_000),
            orders_shards: self.count("orders.shards", 1, 1_024),
            orders_mailbox: self.count("orders.mailbox", 1, 1_000_000),
            consumer_count: self.count("consumer.count", 0, 256),
            rate_limit: app::admission::rate_limit::Options {
                enabled: self.flag("rate_limit.enabled"),
                capacity: self.count("rate_limit.capacity", 1, 1_000_000_000),
                window: self.positive("rate_limit.window", milli),
            },
            startup_deadline: self.duration("startup.deadline"),
            shutdown_deadline: self.positive("shutdown.deadline", second),
            fault_injection_enabled: self.flag("fault_injection.enabled"),
            log_format: self
                .one_of("log.format", &[("", None), ("pretty", Some(Format::Pretty)), ("json", Some(Format::Json))]),
            log_level: self.log_level(),
        }
    }

    /// What must fit together.
    fn agree(&mut self, config: &Config) {
        let mut must = |holds: bool, say: &str| {
            if !holds {
                self.mistakes.push(say.to_owned());
            }
        };
        must(
            config.broker_kind != BrokerKind::Embedded || config.store_kind == StoreKind::Embedded,
            "broker.kind = \"embedded\": only with store.kind = \"embedded\"; set broker.kind to kafka or none",
        );
        must(
            config.store_kind == StoreKind::Embedded || !config.store_url.is_empty(),
            "store.url: must be set for this store.kind",
        );
        let postgres = |url: &str| {
            ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) || url.contains("host=")
        };
        let redis = |url: &str| ["redis://", "rediss://", "unix://"].iter().any(|scheme| url.starts_with(scheme));
        must(
            config.store_kind != StoreKind::Postgres || config.store_url.is_empty() || postgres(&config.store_url),
            "store.url: must be such as postgres://user:password@host:5432/database",
        );
        must(
            config.store_kind != StoreKind::Redis || config.store_url.is_empty() || redis(&config.store_url),
            "store.url: must be such as redis://host:6379",
        );
        must(
            !config.cache_redis || config.redis_url.is_empty() || redis(&config.redis_url),
            "redis.url: must be such as redis://host:6379",
        );
        must(
            cfg!(feature = "kafka-tls") || !(config.broker_tls || config.broker_sasl.is_some()),
            "broker.tls and broker.sasl: this program was built without them; build it with --features kafka-tls",
        );
        must(
            config.broker_kind != BrokerKind::Kafka || !config.broker_bootstrap_servers.is_empty(),
            "broker.bootstrap_servers: must be set for broker.kind = \"kafka\"",
        );
        must(!config.cache_redis || !config.redis_url.is_empty(), "redis.url: must be set for cache.kind = \"redis\"");
        must(
            config.store_kind != StoreKind::Embedded || !config.store_path.as_os_str().is_empty(),
            "store.path: must name a folder",
        );
        must(!config.region_id.is_empty(), "region.id: must not be empty");
        let legal_id = |id: &str| id.bytes().all(|byte| byte.is_ascii_graphic());
        must(legal_id(&config.region_id), "region.id: must be printable ASCII without spaces");
        must(config.instance_id.as_deref().is_none_or(legal_id), "instance.id: must be printable ASCII without spaces");
        let legal_topic = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        must(
            config.broker_topic_prefix.len() <= 200 && config.broker_topic_prefix.bytes().all(legal_topic),
            "broker.topic_prefix: must be at most 200 letters, digits, dots, underscores and hyphens",
        );
        must(
            config.partitions_dead_after > config.partitions_heartbeat,
            "partitions.dead_after: must be longer than partitions.heartbeat",
        );
        must(
            config.outbox_retry.max >= config.outbox_retry.base,
            "outbox.retry.max: must not be shorter than outbox.retry.base",
        );
        must(
            config.http_admin_listen.is_none_or(|admin| admin.port() == 0 || admin != config.http_listen),
            "http.admin_listen: must differ from http.listen, or be empty",
        );
        must(
            config.outbox_enabled || config.broker_kind != BrokerKind::None,
            "outbox.enabled = false: needs a broker to publish to; set broker.kind",
        );
    }
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "a number from 0 to 1".to_owned())
}
