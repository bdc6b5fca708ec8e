//! The rate limit on a Redis that is there and whose script fails: a row of the failure matrix.
use crate::ground::Ground;
use crate::meter::metric;
use crate::process::Posthaste;

/// What counts requests becomes what no counter can be: every script and command on it fails from then on.
fn spoil(ground: &Ground, what: &str) {
    let script = format!(
        "local names = redis.call('KEYS', '*{what}:*') \
         for _, name in ipairs(names) do redis.call('DEL', name) redis.call('RPUSH', name, 'spoilt') end return #names"
    );
    assert_eq!(ground.ask_redis(&format!("EVAL \"{script}\" 0")), ":1", "one caller, one {what}");
}

#[test]
fn a_bucket_script_that_fails_counts_in_windows_and_where_those_fail_too_requests_pass() {
    let ground = Ground::new();
    let limits = [
        ("POSTHASTE__RATE_LIMIT__ENABLED", "true"),
        ("POSTHASTE__RATE_LIMIT__CAPACITY", "4"),
        ("POSTHASTE__RATE_LIMIT__WINDOW", "24h"),
    ];
    let service = Posthaste::start(&ground, &limits);
    let user = service.http.user();
    let ask = || service.http.get("/orders", Some(&user)).status;
    let (fallback, open) = ("rate_limit_fallback_count_total", "rate_limit_fail_open_count_total");
    assert_eq!((ask(), metric(&service.http, fallback), metric(&service.http, open)), (200, 0.0, 0.0));

    spoil(&ground, "bucket");
    let in_window: Vec<u16> = (0..6).map(|_| ask()).collect();
    assert_eq!(in_window, [200, 200, 200, 200, 429, 429], "the policy still holds");
    assert_eq!((metric(&service.http, fallback), metric(&service.http, open)), (6.0, 0.0));
    assert_eq!(service.logged("bucket_failed").len(), 1, "told once, and not for each request");

    spoil(&ground, "window");
    let unlimited: Vec<u16> = (0..6).map(|_| ask()).collect();
    assert_eq!(unlimited, [200; 6], "availability before policy");
    assert_eq!(metric(&service.http, open), 6.0);
    assert_eq!(metric(&service.http, "rate_limit_rejections_by_policy_total{policy=\"default\"}"), 2.0);

    ground.flush_redis();
    let limited: Vec<u16> = (0..7).map(|_| ask()).collect();
    assert_eq!(limited, [200, 200, 200, 200, 200, 429, 429], "and the bucket counts again, with its quarter on top");
    assert_eq!(metric(&service.http, open), 6.0);
}
