//! The instance id that one process holds, and a Redis that is refused as a store.
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::{Posthaste, command, finish};

#[test]
fn an_instance_id_is_held_by_a_live_process_and_free_after_a_kill() {
    let backend = Backend::new();
    // The holder stays alive, however slow its calls of Redis are.
    let lives_long = ("POSTHASTE__PARTITIONS__DEAD_AFTER", "60s");
    let first = Posthaste::start(&backend, &[lives_long]);

    let mut second = command(&backend, &["serve", "--dev"]);
    second.env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0").env(lives_long.0, lives_long.1);
    let (code, _, stderr) = finish(&mut second);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("one") && stderr.contains(&first.pid().to_string()), "{stderr}");
    first.http.post("/orders", &first.http.user(), &[], &tea_order(1));
    first.kill();

    let again = Posthaste::start(&backend, &[]);
    assert!(again.started_in < kit::wait::scaled(Backend::START_MAX), "after {:?}", again.started_in);
    again.drain();
    assert_eq!(backend.events().len(), 1);
}

#[test]
fn a_redis_that_may_lose_data_is_refused_unless_the_config_accepts_it() {
    let backend = Backend::with(&["--appendonly", "no", "--maxmemory-policy", "allkeys-lru"]);

    let mut refused = command(&backend, &["serve", "--dev"]);
    let (code, _, stderr) = finish(refused.env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0"));
    assert_eq!(code, 1, "{stderr}");
    for word in ["appendonly is no", "allkeys-lru", "store.durability"] {
        assert!(stderr.contains(word), "{word} is missing in: {stderr}");
    }

    let warned = Posthaste::start(&backend, &[("POSTHASTE__STORE__DURABILITY", "warn")]);
    warned.await_logged("store_not_durable", 1);
    assert_eq!(warned.http.post("/orders", &warned.http.user(), &[], &tea_order(1)).status, 201);
}

#[test]
fn a_redis_that_syncs_each_second_is_reported_once_by_each_start() {
    let backend = Backend::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let lives_long = ("POSTHASTE__PARTITIONS__DEAD_AFTER", "60s");
    let probes_often = ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "200ms");
    let first = Posthaste::start(&backend, &[lives_long, probes_often]);

    let mut second = command(&backend, &["serve", "--dev"]);
    second.env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0").env(lives_long.0, lives_long.1);
    let (code, stdout, stderr) = finish(&mut second);
    assert_eq!(code, 1, "{stderr}");
    let log = stdout + &stderr;
    assert!(!log.contains("store_fsync_everysec"), "none of its attempts opens the store: {log}");

    first.await_logged("store_fsync_everysec", 1);
}

#[test]
fn a_redis_that_is_reconfigured_to_sync_each_second_is_reported() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__FAILOVER__PROBE_INTERVAL", "200ms")]);
    assert!(service.logged("store_fsync_everysec").is_empty());

    backend.redis_command("CONFIG SET appendfsync everysec");

    service.await_logged("store_fsync_everysec", 1);
    assert!(service.is_ready());
}

/// As while an ACL forbids `CONFIG`.
#[test]
fn settings_of_a_redis_that_cannot_be_read_count_as_unchanged() {
    for (fsync, event) in [("everysec", "store_fsync_everysec"), ("no", "store_not_durable")] {
        let backend = Backend::with(&["--appendonly", "yes", "--appendfsync", fsync]);
        let settings = [("POSTHASTE__STORE__DURABILITY", "warn"), ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "200ms")];
        let service = Posthaste::start(&backend, &settings);
        service.await_logged(event, 1);
        let config_calls = |counter: &str| -> u64 {
            let statistics = backend.redis_command("INFO commandstats");
            let of_config = statistics.iter().filter(|line| line.starts_with("cmdstat_config"));
            let counts =
                of_config.flat_map(|line| line.split([':', ',']).filter_map(|field| field.strip_prefix(counter)));
            counts.map(|count| count.parse::<u64>().expect("a number")).sum()
        };

        backend.redis_command("ACL SETUSER default -config");
        let refused = || (config_calls("rejected_calls=") > 1).then_some(());
        until("probes are refused", Duration::from_secs(20), refused);
        backend.redis_command("ACL SETUSER default +config");
        let before = config_calls("calls=");
        until("probes read them again", Duration::from_secs(20), || {
            (config_calls("calls=") > before + 3).then_some(())
        });

        service.await_logged(event, 1);
        assert!(service.logged("store_durable_again").is_empty());
    }
}

#[test]
fn a_redis_that_is_reconfigured_to_lose_data_makes_readyz_fail() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__FAILOVER__PROBE_INTERVAL", "200ms")]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let post = || {
        let created = service.http.send_once("POST", "/orders", Some(&user), &[], Some(tea_order(1).to_string()));
        created.expect("a response").status
    };
    until("an order is accepted", Duration::from_secs(20), || (post() == 201).then_some(()));

    backend.redis_command("CONFIG SET appendonly no");
    until("/readyz responds with 503 and writes are refused", Duration::from_secs(20), || {
        (!service.is_ready() && post() == 503).then_some(())
    });
    let health = service.http.get("/actuator/health/db", Some(&admin));
    assert!(health.text.contains("appendonly is no"), "{}", health.text);
    service.await_logged("store_not_durable", 1);

    backend.redis_command("CONFIG SET appendonly yes");
    until("the service is ready again", Duration::from_secs(20), || {
        (service.is_ready() && post() == 201).then_some(())
    });
    service.await_logged("store_durable_again", 1);
}

#[test]
fn a_redis_reconfigured_to_lose_data_is_logged_where_the_config_accepts_it() {
    let backend = Backend::new();
    let settings = [("POSTHASTE__STORE__DURABILITY", "warn"), ("POSTHASTE__FAILOVER__PROBE_INTERVAL", "200ms")];
    let service = Posthaste::start(&backend, &settings);
    assert!(service.logged("store_not_durable").is_empty());

    backend.redis_command("CONFIG SET appendonly no");
    service.await_logged("store_not_durable", 1);

    assert!(service.is_ready());
    assert_eq!(service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).status, 201);
}
