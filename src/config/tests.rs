//! What the configuration promises: defaults are the rooms' own, layers lie in order, all mistakes at once.
use actors::ProducerSlots;
use std::io::Write;

use super::*;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    Environment(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn mistakes(text: &str, pairs: &[(&str, &str)]) -> Vec<String> {
    let file = file(text);
    Config::load(Some(file.path()), &environment(pairs)).expect_err("it has mistakes").0
}

#[test]
fn the_defaults_are_the_rooms_own() {
    let config = Config::defaults();

    assert_eq!(config.broker_breaker, app::breaker::Options::default());
    assert_eq!(config.outbox_retry, app::policy::retry::Options::default());
    assert_eq!(config.backpressure, Thresholds::default());
    let rate = app::admission::Options::default();
    assert_eq!(
        (config.rate_limit.enabled, config.rate_limit.capacity, config.rate_limit.window),
        (rate.enabled, rate.capacity, rate.window)
    );
    let cast = actors::Options::default();
    assert_eq!(config.outbox_partitions, cast.partitions);
    assert_eq!(config.outbox_max_in_flight, cast.max_in_flight);
    assert_eq!((config.outbox_batch, config.outbox_lease), (cast.relay.batch, cast.relay.lease));
    assert_eq!((config.outbox_poll_interval, config.outbox_retention), (cast.poll_interval, cast.retention));
    assert_eq!((config.partitions_heartbeat, config.partitions_dead_after), (cast.heartbeat, cast.dead_after));
    assert_eq!(
        (config.failover_probe_interval, config.failover_probe_timeout),
        (cast.probe_interval, cast.probe_timeout)
    );
    assert_eq!((config.promotion_interval, config.promotion_batch), (cast.promotion_interval, cast.promotion_batch));
    assert_eq!((config.orders_shards, config.orders_mailbox), (cast.shards, cast.mailbox));
    assert_eq!((config.consumer_count, config.inbox_retention), (cast.consumers, cast.inbox_retention));
    assert_eq!(
        (ProducerSlots::Shared(config.broker_lanes), config.http_request_timeout),
        (cast.producers, cast.request_timeout)
    );
    assert_eq!(config.topic(), cast.topic);
    assert!(config.outbox_poison.values().all(|poison| *poison == Poison::default()));
    assert!(config.outbox_fallback.values().all(|fallback| *fallback == Fallback::default()));
    assert!(!config.fault_injection_enabled && config.outbox_enabled);
}

#[test]
fn a_file_lies_over_the_defaults_and_the_environment_over_both() {
    let file =
        file("[outbox]\nlease = \"10s\"\npoll_interval = \"2s\"\n[outbox.fallback]\nORDER_CREATED = \"dead-letter\"\n");
    let variables = environment(&[
        ("POSTHASTE__OUTBOX__LEASE", "20s"),
        ("POSTHASTE__OUTBOX__PUBLISHER__MAX_IN_FLIGHT", "3"),
        ("POSTHASTE__OUTBOX__POISON__ORDER_CANCELLED", "skip-row"),
        ("PATH", "/bin"),
    ]);

    let config = Config::load(Some(file.path()), &variables).expect("no mistakes");

    assert_eq!(config.outbox_lease, Duration::from_secs(20));
    assert_eq!(config.outbox_poll_interval, Duration::from_secs(2));
    assert_eq!(config.outbox_max_in_flight, 3);
    assert_eq!(config.outbox_fallback["ORDER_CREATED"], Fallback::DeadLetter);
    assert_eq!(config.outbox_poison["ORDER_CANCELLED"], Poison::SkipRow);
    assert_eq!(config.outbox_poison["ORDER_CREATED"], Poison::BlockKey);
}

#[test]
fn all_mistakes_are_told_together_each_with_its_remedy() {
    let found = mistakes(
        "[outbox]\nlease = \"0\"\n[store]\nkind = \"sqlite\"\n[ratelimit]\ncapacity = 5\n",
        &[
            ("POSTHASTE__HTTP__LISTN", "x"),
            ("POSTHASTE__BACKPRESSURE__LAG", "600s,120s"),
            ("POSTHASTE__OUTBOX__POISON__NO_SUCH", "skip-row"),
        ],
    );

    let all = found.join("\n");
    for told in [
        "ratelimit.capacity: unknown key",
        "did you mean rate_limit.capacity?",
        "http.listn: unknown key (from POSTHASTE__HTTP__LISTN); did you mean http.listen?",
        "outbox.lease = \"0\"",
        "must be at least 1000 ms",
        "store.kind = \"sqlite\"",
        "one of embedded, postgres, redis",
        "backpressure.lag",
        "outbox.poison.NO_SUCH: no such event type",
    ] {
        assert!(all.contains(told), "{told:?} is missing in:\n{all}");
    }
}

#[test]
fn a_file_that_is_no_toml_hides_no_mistake_of_the_environment() {
    let broken = file("[auth\n");
    let found = Config::load(Some(broken.path()), &environment(&[("POSTHASTE__NOPE", "1")])).expect_err("two").0;
    assert_eq!(found.len(), 2, "{found:?}");
    let missing = Config::load(Some(Path::new("/no/such.toml")), &environment(&[("POSTHASTE__NOPE", "1")]));
    assert_eq!(missing.expect_err("two").0.len(), 2);
}

#[test]
fn secrets_come_from_files_too_but_not_from_both_and_are_never_told() {
    let secret = file("top secret\n");
    let path = secret.path().display().to_string();
    let config =
        Config::load(None, &environment(&[("POSTHASTE__AUTH__HS256_SECRET_FILE", &path)])).expect("no mistakes");
    assert_eq!(config.auth_key, Some(AuthKey::Secret("top secret".into())));

    let both =
        environment(&[("POSTHASTE__AUTH__HS256_SECRET_FILE", &path), ("POSTHASTE__AUTH__HS256_SECRET", "other")]);
    let told = Config::load(None, &both).expect_err("both").to_string();
    assert!(told.contains("auth.hs256_secret") && !told.contains("top secret") && !told.contains("other"), "{told}");

    for broken in
        ["[auth]\nhs256_secret = \"top secret\n", "[auth]\nhs256_secret = \"a\"\nhs256_secret = \"top secret\"\n"]
    {
        let broken = file(broken);
        let told = Config::load(Some(broken.path()), &environment(&[])).expect_err("no TOML").to_string();
        assert!(told.contains("line ") && !told.contains("top secret"), "{told}");
    }

    let gone = environment(&[("POSTHASTE__AUTH__HS256_SECRET_FILE", "/no/such/file")]);
    assert!(Config::load(None, &gone).expect_err("gone").to_string().contains("cannot be read"));
}

#[test]
fn what_does_not_fit_together_is_told() {
    let cases = [
        (
            &[("POSTHASTE__STORE__KIND", "postgres"), ("POSTHASTE__STORE__URL", "postgres://x")][..],
            "broker.kind = \"embedded\"",
        ),
        (&[("POSTHASTE__BROKER__KIND", "kafka")][..], "broker.bootstrap_servers"),
        (&[("POSTHASTE__CACHE__KIND", "redis")][..], "redis.url"),
        (&[("POSTHASTE__STORE__KIND", "postgres"), ("POSTHASTE__STORE__URL", "mysql://x")][..], "postgres://user"),
        (&[("POSTHASTE__STORE__KIND", "redis"), ("POSTHASTE__STORE__URL", "http://x")][..], "store.url: must be"),
        (&[("POSTHASTE__CACHE__KIND", "redis"), ("POSTHASTE__REDIS__URL", "x:1")][..], "redis.url: must be such as"),
        (&[("POSTHASTE__BACKPRESSURE__BACKLOG", "0,0")][..], "two values above 0"),
        (&[("POSTHASTE__PARTITIONS__DEAD_AFTER", "1s")][..], "partitions.dead_after"),
        (&[("POSTHASTE__FAILOVER__GATES", "db,kafka")][..], "failover.gates"),
        (&[("POSTHASTE__HTTP__TRUSTED_PROXIES", "10.0.0.0/33")][..], "http.trusted_proxies"),
        (&[("POSTHASTE__LOG__LEVEL", "loud")][..], "log.level"),
        (&[("POSTHASTE__AUTH__JWKS_URL", "http://keys.example/jwks")][..], "auth.jwks_url: http://keys.example/jwks"),
        (&[("POSTHASTE__AUTH__PUBLIC_KEY_FILE", "/no/such.pem")][..], "auth.public_key_file: cannot read"),
        (&[("POSTHASTE__BROKER__TOPIC_PREFIX", "no topic/")][..], "broker.topic_prefix"),
        (&[("POSTHASTE__OUTBOX__ENABLED", "false"), ("POSTHASTE__BROKER__KIND", "none")][..], "outbox.enabled"),
    ];
    for (pairs, told) in cases {
        let found = mistakes("", pairs).join("\n");
        assert!(found.contains(told), "{told:?} is missing in {found:?}");
    }
}

#[test]
fn the_files_that_are_shipped_are_without_mistakes() {
    for name in ["local.toml", "production.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
        Config::load(Some(&path), &Environment::default()).unwrap_or_else(|mistakes| panic!("{name}: {mistakes}"));
    }
}

#[test]
fn the_schema_takes_what_the_loader_takes() {
    let schema = super::schema();
    let kinds = |section: &str, key: &str| schema["properties"][section]["properties"][key]["type"].clone();
    assert_eq!(kinds("http", "body_max"), serde_json::json!(["string", "number", "array"]), "a bare number of bytes");
    assert_ne!(kinds("auth", "hs256_secret_file"), serde_json::Value::Null, "a secret from a file");
    assert_eq!(kinds("http", "listen_file"), serde_json::Value::Null);
    let bare = file("[http]\nbody_max = 1048576\n");
    assert!(Config::load(Some(bare.path()), &environment(&[])).is_ok());
}
