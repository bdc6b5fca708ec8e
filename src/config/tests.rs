//! Tests of the loader: defaults, the order of layers, errors, secrets.
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use actors::ProducerSlots;
use app::consume::chain::{ATTEMPTS_MAX, PoisonMessageAction};
use app::policy::backpressure::PressureThresholds;
use app::policy::failover::FailoverThresholds;
use app::relay::chain::Fallback;
use outbox::PoisonAction;
use secrecy::ExposeSecret;

use super::layers::{self, Environment};
use super::print;
use super::rules::{RULES, TOPIC_RULES};
use super::sections::Config;

pub(super) fn environment(pairs: &[(&str, &str)]) -> Environment {
    Environment(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

pub(super) fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

pub(super) fn errors(text: &str, pairs: &[(&str, &str)]) -> Vec<String> {
    let file = file(text);
    Config::load(Some(file.path()), &environment(pairs)).expect_err("it has errors").0
}

#[test]
fn defaults_equal_those_of_each_crates_options() {
    let config = Config::defaults();

    assert_eq!(config.broker.breaker, app::policy::breaker::Options::default());
    assert_eq!(config.outbox.retry, outbox::RetryPolicy::default());
    assert_eq!(config.backpressure, PressureThresholds::default());
    assert_eq!(config.rate_limit, app::admission::rate_limit::Options::default());
    let actors = actors::Options::default();
    assert_eq!(config.outbox.partitions, actors.partitions);
    assert_eq!(config.outbox.publisher.max_in_flight, actors.max_in_flight);
    assert_eq!(config.outbox.publisher.cycle_spacing_max, actors.cycle_spacing_max);
    assert_eq!(config.outbox.publisher.enabled, actors.publisher_enabled);
    assert_eq!((config.outbox.publisher.batch, config.outbox.lease), (actors.relay.batch, actors.relay.lease));
    assert_eq!((config.outbox.poll_interval, config.outbox.retention), (actors.poll_interval, actors.retention));
    assert_eq!((config.partitions.heartbeat, config.partitions.dead_after), (actors.heartbeat, actors.dead_after));
    assert_eq!(
        (config.failover.probe_interval, config.failover.probe_timeout),
        (actors.probe_interval, actors.probe_timeout)
    );
    assert_eq!(config.failover.redis_latency_max, actors.redis_latency_max);
    let FailoverThresholds { dependency, unhealthy, healthy } = actors.region;
    let failover = &config.failover;
    assert_eq!((failover.dependency_failures, failover.unhealthy_rounds), (dependency, unhealthy));
    assert_eq!((failover.healthy_rounds, config.consumer.retry_delays), (healthy, actors.retry_delays));
    let (memory, cache) = (memory::Options::default(), &config.cache);
    assert_eq!((cache.order_ttl, cache.list_ttl, cache.jitter), (memory.order_ttl, memory.list_ttl, memory.jitter));
    assert_eq!((cache.order_ttl, cache.list_ttl), (Duration::from_secs(300), Duration::from_secs(60)));
    assert_eq!((cache.breaker.failures, cache.breaker.open), (5, Duration::from_secs(30)));
    let commands = app::commands::Options::default();
    assert_eq!((config.idempotency.lock, config.idempotency.retention), (commands.key_lock, commands.key_keep));
    assert_eq!(
        (config.promotion.interval, config.promotion.batch),
        (actors.promotion_interval, actors.promotion_batch)
    );
    assert_eq!((config.orders.shards, config.orders.mailbox), (actors.shards, actors.mailbox));
    assert_eq!((config.consumer.count, config.inbox.retention), (actors.consumers, actors.inbox_retention));
    assert_eq!(
        (ProducerSlots::Shared(config.broker.lanes), config.http.request_timeout),
        (actors.producers, actors.request_timeout)
    );
    assert_eq!(config.topic(), actors.topic);
    assert!(config.outbox.poison.values().all(|poison| *poison == PoisonAction::default()));
    assert!(config.outbox.fallback.values().all(|fallback| *fallback == Fallback::default()));
    let chain = &config.consumer;
    assert!(chain.poison.values().all(|poison| *poison == PoisonMessageAction::default()) && !chain.posts());
    assert!(chain.attempts_max.values().all(|attempts| *attempts == ATTEMPTS_MAX));
    let types = domain::EventType::ALL.len();
    assert_eq!((chain.handler.len(), chain.url.len(), chain.attempts_max.len()), (types, types, types));
    assert_eq!((chain.fallback.len(), chain.fallback_url.len(), chain.poison.len()), (types, types, types));
    assert_eq!((config.outbox.poison.len(), config.outbox.fallback.len()), (types, types));
    assert!(!config.fault_injection.enabled && config.outbox.enabled);
    let (traces, tracing) = (telemetry::traces::Options::default(), &config.tracing);
    assert_eq!(
        (tracing.sample_ratio, tracing.queue, tracing.timeout),
        (traces.sample_ratio, traces.queue_max, traces.timeout)
    );
    assert_eq!(tracing.endpoint, None, "tracing is off");
}

#[test]
fn the_file_overrides_defaults_and_the_environment_overrides_both() {
    let file =
        file("[outbox]\nlease = \"10s\"\npoll_interval = \"2s\"\n[outbox.fallback]\nORDER_CREATED = \"dead-letter\"\n");
    let variables = environment(&[
        ("POSTHASTE__OUTBOX__LEASE", "20s"),
        ("POSTHASTE__OUTBOX__PUBLISHER__MAX_IN_FLIGHT", "3"),
        ("POSTHASTE__OUTBOX__POISON__ORDER_CANCELLED", "skip-row"),
        ("PATH", "/bin"),
    ]);

    let config = Config::load(Some(file.path()), &variables).expect("no errors");

    assert_eq!(config.outbox.lease, Duration::from_secs(20));
    assert_eq!(config.outbox.poll_interval, Duration::from_secs(2));
    assert_eq!(config.outbox.publisher.max_in_flight, 3);
    assert_eq!(config.outbox.fallback["ORDER_CREATED"], Fallback::DeadLetter);
    assert_eq!(config.outbox.poison["ORDER_CANCELLED"], PoisonAction::SkipRow);
    assert_eq!(config.outbox.poison["ORDER_CREATED"], PoisonAction::BlockKey);
}

#[test]
fn a_value_may_be_text_or_a_toml_type() {
    let file = file(
        "[failover]\ngates = [\"db\", \"redis\"]\n[http]\nbody_max = 2048\nlisten = \"[::1]:0\"\n[outbox.retry]\njitter = 0.5\n\
         [backpressure]\nsaturation = [0.5, 0.6]\n[events]\nschema_ids = \"2:18,1:17\"\n",
    );
    let variables = environment(&[
        ("POSTHASTE__OUTBOX__ENABLED", "false"),
        ("POSTHASTE__HTTP__TRUSTED_PROXIES", "10.0.0.1, 10.1.0.0/16"),
        ("POSTHASTE__BACKPRESSURE__LAG", "1s, 2s"),
        ("POSTHASTE__LOG__FORMAT", "json"),
        ("POSTHASTE__STORE__CA_FILE", ""),
    ]);

    let config = Config::load(Some(file.path()), &variables).expect("no errors");

    assert_eq!(config.failover.gates, ["db", "redis"]);
    assert_eq!((config.http.body_max, config.http.listen.to_string()), (2048, "[::1]:0".to_owned()));
    assert_eq!(config.backpressure.saturation, (0.5, 0.6).into());
    assert_eq!(config.backpressure.lag, (Duration::from_secs(1), Duration::from_secs(2)).into());
    assert_eq!((config.outbox.enabled, config.outbox.retry.jitter), (false, 0.5));
    assert_eq!(
        config.http.trusted_proxies,
        api::TrustedProxies::parse(&["10.0.0.1", "10.1.0.0/16"]).expect("networks")
    );
    assert_eq!(config.log.format, Some(telemetry::logging::Format::Json));
    assert_eq!((config.store.ca_file, config.events.schema_ids.is_some()), (None, true));
}

#[test]
fn all_errors_are_reported_together_each_with_its_remedy() {
    let found = errors(
        "[outbox]\nlease = \"0\"\nenabled = \"perhaps\"\n[store]\nkind = \"sqlite\"\n[ratelimit]\ncapacity = 5\n[htttp]\n[cache]\n",
        &[
            ("POSTHASTE__OUTBOX__", "x"),
            ("POSTHASTE__HTTP__LISTN", "x"),
            ("POSTHASTE__HTTP__BODY_MAX", "1MB"),
            ("POSTHASTE__HTTP__TRUSTED_PROXIES", "10.0.0.0/33"),
            ("POSTHASTE__BACKPRESSURE__LAG", "600s,120s"),
            ("POSTHASTE__OUTBOX__POISON__NO_SUCH", "skip-row"),
            ("POSTHASTE__OUTBOX__POISON__ORDER_CREATED", "skip"),
            ("POSTHASTE__OUTBOX__RETENTION", "1 week"),
            ("POSTHASTE__ORDERS__SHARDS", "many"),
            ("POSTHASTE__EVENTS__SCHEMA_IDS", "17"),
            ("POSTHASTE__PARTITIONS__DEAD_AFTER", "1s"),
        ],
    );

    let all = found.join("\n");
    for expected in [
        "ratelimit.capacity: unknown key",
        "did you mean rate_limit.capacity?",
        "htttp: unknown section (from",
        "did you mean http?",
        "outbox: unknown section (from POSTHASTE__OUTBOX__)",
        "http.listn: unknown key (from POSTHASTE__HTTP__LISTN); did you mean http.listen?",
        "http.body_max = \"1MB\" (from POSTHASTE__HTTP__BODY_MAX): must be a size such as 64KiB",
        "http.trusted_proxies = \"10.0.0.0/33\" (from POSTHASTE__HTTP__TRUSTED_PROXIES): must be a list of addresses",
        "outbox.lease = \"0\"",
        "must be at least 1000 ms",
        "outbox.enabled = \"perhaps\"",
        "must be true or false",
        "store.kind = \"sqlite\"",
        "must be one of embedded, postgres, redis",
        "backpressure.lag = \"600s,120s\" (from POSTHASTE__BACKPRESSURE__LAG): must be two values above 0",
        "outbox.poison.NO_SUCH: no such event type; there are ORDER_CREATED",
        "outbox.poison.ORDER_CREATED = \"skip\" (from POSTHASTE__OUTBOX__POISON__ORDER_CREATED): must be block-key or skip-row",
        "outbox.retention = \"1 week\" (from POSTHASTE__OUTBOX__RETENTION): must be a duration such as 250ms",
        "orders.shards = \"many\" (from POSTHASTE__ORDERS__SHARDS): must be a whole number from 1 to 1024",
        "events.schema_ids = \"17\" (from POSTHASTE__EVENTS__SCHEMA_IDS): must be 1:ID,2:ID",
        "partitions.dead_after: must be longer than partitions.heartbeat",
    ] {
        assert!(all.contains(expected), "{expected:?} is missing in:\n{all}");
    }
    assert_eq!(found.len(), 16, "each error once:\n{all}");
}

#[test]
fn an_unreadable_file_hides_no_error_of_the_environment() {
    let broken = file("[auth\n");
    let found = Config::load(Some(broken.path()), &environment(&[("POSTHASTE__NOPE", "1")])).expect_err("two").0;
    assert_eq!(found.len(), 2, "{found:?}");
    let missing = Config::load(Some(Path::new("/no/such.toml")), &environment(&[("POSTHASTE__NOPE", "1")]));
    assert_eq!(missing.expect_err("two").0.len(), 2);
}

#[test]
fn a_secret_may_be_read_from_a_file_but_not_set_twice() {
    let secret = file("a top secret of thirty-two bytes\n");
    let path = secret.path().display().to_string();
    let config = Config::load(None, &environment(&[("POSTHASTE__AUTH__HS256_SECRET_FILE", &path)])).expect("no errors");
    assert_eq!(config.auth.hs256_secret.expect("it is set").expose_secret(), "a top secret of thirty-two bytes");

    let url = file("https://example.org/hook?token=x\n");
    let path_of_url = url.path().display().to_string();
    let by_type = environment(&[("POSTHASTE__CONSUMER__URL__ORDER_CREATED_FILE", &path_of_url)]);
    let config = Config::load(None, &by_type).expect("no errors");
    assert_eq!(config.consumer.url["ORDER_CREATED"].expose_secret(), "https://example.org/hook?token=x");

    let both =
        environment(&[("POSTHASTE__AUTH__HS256_SECRET_FILE", &path), ("POSTHASTE__AUTH__HS256_SECRET", "other")]);
    let report = Config::load(None, &both).expect_err("both").to_string();
    assert!(report.contains("auth.hs256_secret: set both directly and by auth.hs256_secret_file"), "{report}");
    assert!(!report.contains("top secret") && !report.contains("other"), "{report}");

    assert!(report.contains("POSTHASTE__AUTH__HS256_SECRET and POSTHASTE__AUTH__HS256_SECRET_FILE"), "{report}");

    let missing = environment(&[("POSTHASTE__AUTH__HS256_SECRET_FILE", "/no/such/file")]);
    assert!(Config::load(None, &missing).expect_err("missing").to_string().contains("cannot be read"));
}

#[test]
fn a_broken_file_is_reported_by_position_without_its_secrets() {
    for broken in
        ["[auth]\nhs256_secret = \"top secret\n", "[auth]\nhs256_secret = \"a\"\nhs256_secret = \"top secret\"\n"]
    {
        let broken = file(broken);
        let report = Config::load(Some(broken.path()), &environment(&[])).expect_err("not TOML").to_string();
        assert!(report.contains("line ") && !report.contains("top secret"), "{report}");
    }
}

#[test]
fn debug_output_never_shows_a_secret() {
    let endpoint = |name: &str| (format!("POSTHASTE__CONSUMER__{name}"), format!("https://h/hidden-{name}"));
    let endpoints: Vec<_> = ["URL", "FALLBACK_URL"]
        .into_iter()
        .flat_map(|key| domain::EventType::ALL.map(|event_type| endpoint(&format!("{key}__{}", event_type.as_str()))))
        .collect();
    let mut pairs: Vec<(&str, &str)> = endpoints.iter().map(|(name, url)| (name.as_str(), url.as_str())).collect();
    pairs.extend([
        ("POSTHASTE__AUTH__HS256_SECRET", "hidden-1-and-thirty-two-bytes-long"),
        ("POSTHASTE__STORE__URL", "postgres://u:hidden-2@h/d"),
        ("POSTHASTE__REDIS__URL", "redis://:hidden-3@h"),
        ("POSTHASTE__BROKER__SASL__PASSWORD", "hidden-4"),
        ("POSTHASTE__HTTP__CONSOLE_SECRET", "hidden-5-and-thirty-two-bytes-long"),
        ("POSTHASTE__TRACING__HEADERS", "authorization=hidden-6"),
    ]);
    let variables = environment(&pairs);
    assert_eq!(variables.0.len(), layers::SECRETS.len(), "every secret is tried");
    let config = Config::load(None, &variables).expect("no errors");

    for debug in [format!("{config:?}"), format!("{variables:?}"), format!("{:?}", config.auth.source())] {
        assert!(!debug.contains("hidden"), "{debug}");
    }
}

#[test]
fn contradicting_values_are_reported() {
    let cases = [
        (
            &[("POSTHASTE__STORE__KIND", "postgres"), ("POSTHASTE__STORE__URL", "postgres://x")][..],
            "broker.kind = \"embedded\"",
        ),
        (&[("POSTHASTE__BROKER__KIND", "kafka")][..], "broker.bootstrap_servers"),
        (&[("POSTHASTE__CACHE__KIND", "redis")][..], "redis.url"),
        (&[("POSTHASTE__STORE__KIND", "postgres"), ("POSTHASTE__STORE__URL", "mysql://x")][..], "postgres://user"),
        (&[("POSTHASTE__STORE__KIND", "redis"), ("POSTHASTE__STORE__URL", "http://x")][..], "store.url: must be"),
        (
            &[("POSTHASTE__CACHE__KIND", "redis"), ("POSTHASTE__REDIS__URL", "x:1")][..],
            "redis.url: must be a URL such as",
        ),
        (&[("POSTHASTE__BACKPRESSURE__BACKLOG", "0,0")][..], "two values above 0"),
        (&[("POSTHASTE__PARTITIONS__DEAD_AFTER", "1s")][..], "partitions.dead_after"),
        (&[("POSTHASTE__FAILOVER__GATES", "db,kafka")][..], "failover.gates"),
        (&[("POSTHASTE__CONSUMER__RETRY_DELAYS", "1s,2s,4s")][..], "consumer.retry_delays"),
        (&[("POSTHASTE__CONSUMER__RETRY_DELAYS", "1s,2s,4s,0")][..], "consumer.retry_delays"),
        (&[("POSTHASTE__CACHE__JITTER", "1.5")][..], "cache.jitter"),
        (&[("POSTHASTE__CACHE__LIST_TTL", "0")][..], "cache.list_ttl"),
        (&[("POSTHASTE__FAILOVER__UNHEALTHY_ROUNDS", "0")][..], "failover.unhealthy_rounds"),
        (&[("POSTHASTE__HTTP__TRUSTED_PROXIES", "10.0.0.0/33")][..], "http.trusted_proxies"),
        (&[("POSTHASTE__READ__BYTES_MAX", "0")][..], "read.bytes_max = \"0\""),
        (&[("POSTHASTE__LOG__LEVEL", "loud")][..], "log.level"),
        (&[("POSTHASTE__AUTH__JWKS_URL", "http://keys.example/jwks")][..], "auth.jwks_url: http://keys.example/jwks"),
        (&[("POSTHASTE__AUTH__PUBLIC_KEY_FILE", "/no/such.pem")][..], "auth.public_key_file: cannot read"),
        (&[("POSTHASTE__BROKER__TOPIC_PREFIX", "no topic/")][..], "broker.topic_prefix"),
        (&[("POSTHASTE__OUTBOX__ENABLED", "false"), ("POSTHASTE__BROKER__KIND", "none")][..], "outbox.enabled"),
        (
            &[("POSTHASTE__CONSUMER__HANDLER__ORDER_CREATED", "post")][..],
            "consumer.url.ORDER_CREATED: must be set for consumer.handler.ORDER_CREATED = \"post\"",
        ),
        (
            &[("POSTHASTE__CONSUMER__FALLBACK__ORDER_CANCELLED", "post")][..],
            "consumer.fallback_url.ORDER_CANCELLED: must be set for consumer.fallback.ORDER_CANCELLED",
        ),
        (
            &[("POSTHASTE__CONSUMER__URL__ORDER_CREATED", "ftp://x/y")][..],
            "consumer.url.ORDER_CREATED: must be an http",
        ),
        (&[("POSTHASTE__CONSUMER__FALLBACK_URL__ORDER_CREATED", "http://u:p@x")][..], "without user name and password"),
        (&[("POSTHASTE__CONSUMER__HANDLER__ORDER_CREATED", "drop")][..], "must be record or post"),
        (&[("POSTHASTE__CONSUMER__FALLBACK__ORDER_CREATED", "drop")][..], "must be one of none, record, post"),
        (&[("POSTHASTE__CONSUMER__POISON__ORDER_CREATED", "skip-row")][..], "must be dead-letter or block-key"),
        (
            &[("POSTHASTE__CONSUMER__POISON__ORDER_LOST", "dead-letter")][..],
            "consumer.poison.ORDER_LOST: no such event type",
        ),
        (&[("POSTHASTE__CONSUMER__ATTEMPTS_MAX__ORDER_CREATED", "6")][..], "must be a whole number from 1 to 5"),
        (&[("POSTHASTE__CONSUMER__POST__TIMEOUT", "11s")][..], "consumer.post.timeout = \"11s\""),
        (&[("POSTHASTE__TRACING__ENDPOINT", "collector:4318")][..], "tracing.endpoint = \"collector:4318\""),
        (&[("POSTHASTE__TRACING__HEADERS", "hidden")][..], "tracing.headers = \"***\""),
        (&[("POSTHASTE__TRACING__SAMPLE_RATIO", "1.1")][..], "must be a number from 0 to 1"),
        (&[("POSTHASTE__TRACING__QUEUE", "0")][..], "tracing.queue = \"0\""),
        (&[("POSTHASTE__TRACING__TIMEOUT", "0")][..], "tracing.timeout = \"0\""),
    ];
    for (pairs, expected) in cases {
        let found = errors("", pairs).join("\n");
        assert!(found.contains(expected), "{expected:?} is missing in {found:?}");
    }
}

#[test]
fn security_of_kafka_needs_another_build_only_where_it_needs_openssl() {
    let load = |mechanism, tls| {
        let pairs = [
            ("POSTHASTE__BROKER__SASL__MECHANISM", mechanism),
            ("POSTHASTE__BROKER__SASL__USERNAME", "a"),
            ("POSTHASTE__BROKER__SASL__PASSWORD", "b"),
            ("POSTHASTE__BROKER__TLS", tls),
        ];
        Config::load(Some(file("").path()), &environment(&pairs)).map(drop)
    };

    load("PLAIN", "false").expect("librdkafka speaks PLAIN without OpenSSL");
    for needs_openssl in [load("PLAIN", "true"), load("SCRAM-SHA-512", "false")] {
        if cfg!(feature = "kafka-tls") {
            needs_openssl.expect("this build has OpenSSL");
        } else {
            let report = needs_openssl.expect_err("this build has no OpenSSL").to_string();
            assert!(report.contains("--features kafka-tls"), "{report}");
        }
    }
}

#[test]
fn shipped_configuration_files_have_no_errors() {
    for name in ["local.toml", "production.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
        Config::load(Some(&path), &Environment::default()).unwrap_or_else(|errors| panic!("{name}: {errors}"));
    }
}

#[test]
fn every_rule_belongs_to_a_key() {
    let settings = layers::load(None, &Environment::default());
    for (key, _) in RULES {
        assert!(settings.by_key.contains_key(key), "there is no key {key}");
    }
    for (field, _) in TOPIC_RULES {
        assert!(settings.by_key.contains_key(&format!("topics.NAME.{field}")), "topics have no key {field}");
    }
}

#[test]
fn the_schema_accepts_what_the_loader_accepts() {
    let schema = print::schema();
    let kinds = |section: &str, key: &str| schema["properties"][section]["properties"][key]["type"].clone();
    assert_eq!(kinds("http", "body_max"), serde_json::json!(["string", "number", "array"]), "a bare number of bytes");
    assert_ne!(kinds("auth", "hs256_secret_file"), serde_json::Value::Null, "a secret from a file");
    assert_eq!(kinds("http", "listen_file"), serde_json::Value::Null);
    let bare = file("[http]\nbody_max = 1048576\n");
    assert!(Config::load(Some(bare.path()), &environment(&[])).is_ok());
    let topics = &schema["properties"]["topics"];
    assert_eq!(
        topics["additionalProperties"]["properties"]["consumers"]["type"],
        serde_json::json!(["number", "string"])
    );
    assert_ne!(topics["additionalProperties"]["properties"]["consumer_url_file"], serde_json::Value::Null);
    assert_eq!(topics["properties"], serde_json::Value::Null, "any topic may be named");
}
