//! The rate limit while its Redis script fails: a row of the failure matrix.
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::metrics::metric;
use crate::harness::process::Posthaste;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A limit that a few requests reach, and that does not recover during a test.
pub const LOW_LIMIT: [(&str, &str); 3] = [
    ("POSTHASTE__RATE_LIMIT__ENABLED", "true"),
    ("POSTHASTE__RATE_LIMIT__CAPACITY", "4"),
    ("POSTHASTE__RATE_LIMIT__WINDOW", "24h"),
];

/// Replaces the counters by lists, so that every script and command on them fails from then on.
fn corrupt_counters(backend: &Backend, what: &str) {
    let script = format!(
        "local names = redis.call('KEYS', '*{what}:*') \
         for _, name in ipairs(names) do redis.call('DEL', name) redis.call('RPUSH', name, 'corrupt') end return #names"
    );
    assert_eq!(backend.redis_command(&format!("EVAL \"{script}\" 0")), ":1", "one caller, one {what}");
}

#[test]
fn a_failing_bucket_script_falls_back_to_windows_and_then_fails_open() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &LOW_LIMIT);
    let user = service.http.user();
    let ask = || service.http.get("/orders", Some(&user));
    let until_limited = |what: &str| until(what, WAIT_MAX, || (ask().status == 429).then_some(()));
    let (fallback, open) = ("rate_limit_fallback_count_total", "rate_limit_fail_open_count_total");
    // A slow Redis also opens the limit; the comparison starts when the bucket counts.
    until("the bucket counts", WAIT_MAX, || ask().header("ratelimit").map(drop));
    assert_eq!(metric(&service.http, fallback), 0.0);

    corrupt_counters(&backend, "bucket");
    until_limited("the policy still holds");
    assert!(metric(&service.http, fallback) >= 5.0, "four went through in the window, the fifth did not");
    until("it is logged", WAIT_MAX, || (!service.logged("bucket_failed").is_empty()).then_some(()));
    assert_eq!(service.logged("bucket_failed").len(), 1, "logged once, not for each request");

    corrupt_counters(&backend, "window");
    let before = metric(&service.http, open);
    assert!((0..20).all(|_| ask().status == 200), "the limit fails open");
    assert_eq!(metric(&service.http, open) - before, 20.0);

    backend.flush_redis();
    until_limited("the bucket counts again");
    assert!(metric(&service.http, "rate_limit_rejections_by_policy_total{policy=\"default\"}") >= 2.0);
    assert!(metric(&service.http, "redis_command_latency_seconds_count") >= 20.0, "each request asks Redis");
}

#[test]
fn a_policy_is_changed_at_run_time_and_expires() {
    let backend = Backend::new();
    let settings = [&LOW_LIMIT[..], &[("POSTHASTE__RATE_LIMIT__POLICIES", "gold:read=600/60s")]].concat();
    let service = Posthaste::start(&backend, &settings);
    let gold = service.http.token_of_tier("ann", "USER", "gold");
    let policy = || service.http.get("/orders", Some(&gold)).header("ratelimit-policy").map(str::to_owned);
    let until_policy = |wanted: &str| until(wanted, WAIT_MAX, || (policy().as_deref() == Some(wanted)).then_some(()));
    until_policy("\"gold:read\";q=600;w=60");

    backend.redis_command("SET rate_limit:config:gold:read:capacity 50000");
    backend.redis_command("SET rate_limit:config:gold:read:windowMs 90000");
    until_policy("\"gold:read\";q=50000;w=90");
    // A request to which a slow Redis gives no answer is admitted without a limit.
    let of_others = until("a limit applies", WAIT_MAX, || {
        let response = service.http.get("/orders", Some(&service.http.user()));
        response.header("ratelimit-policy").map(str::to_owned)
    });
    assert_eq!(of_others, "\"default\";q=4;w=86400");

    backend.redis_command("PEXPIRE rate_limit:config:gold:read:capacity 1");
    backend.redis_command("PEXPIRE rate_limit:config:gold:read:windowMs 1");
    until_policy("\"gold:read\";q=600;w=60");
}
