//! The rate limit on a Redis that is there and whose script fails: a row of the failure matrix.
use std::time::Duration;

use kit::wait::until;

use crate::ground::Ground;
use crate::meter::metric;
use crate::process::Posthaste;

/// Longest that anything here may take; what is judged is that it comes.
const SOON: Duration = Duration::from_secs(20);

/// A limit that is soon reached, and does not come back while a story runs.
pub const FEW: [(&str, &str); 3] = [
    ("POSTHASTE__RATE_LIMIT__ENABLED", "true"),
    ("POSTHASTE__RATE_LIMIT__CAPACITY", "4"),
    ("POSTHASTE__RATE_LIMIT__WINDOW", "24h"),
];

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
    let service = Posthaste::start(&ground, &FEW);
    let user = service.http.user();
    let ask = || service.http.get("/orders", Some(&user));
    let until_limited = |what: &str| until(what, SOON, || (ask().status == 429).then_some(()));
    let (fallback, open) = ("rate_limit_fallback_count_total", "rate_limit_fail_open_count_total");
    // A Redis that is slow for a moment opens the limit, too: what is judged is what comes of a script that fails.
    until("the bucket counts", SOON, || ask().header("ratelimit").map(drop));
    assert_eq!(metric(&service.http, fallback), 0.0);

    spoil(&ground, "bucket");
    until_limited("the policy still holds");
    assert!(metric(&service.http, fallback) >= 5.0, "four went through in the window, the fifth did not");
    assert_eq!(service.logged("bucket_failed").len(), 1, "told once, and not for each request");

    spoil(&ground, "window");
    let before = metric(&service.http, open);
    assert!((0..20).all(|_| ask().status == 200), "availability before policy");
    assert_eq!(metric(&service.http, open) - before, 20.0);

    ground.flush_redis();
    until_limited("the bucket counts again");
    assert!(metric(&service.http, "rate_limit_rejections_by_policy_total{policy=\"default\"}") >= 2.0);
}
