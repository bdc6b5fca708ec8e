//! Token buckets whose script fails, and policies as operators write them.
use std::time::Duration;

use ports::rate_limit::{RateLimitPolicy, RateLimiter};
use redis::Redis;

use crate::server::Server;
use crate::support::{command, opened, options, prefix, url};

fn policy() -> RateLimitPolicy {
    RateLimitPolicy { name: "default".into(), capacity: 8, window: Duration::from_secs(8 * 3_600) }
}

async fn take_all(redis: &Redis, bucket: &str) -> u32 {
    let mut taken = 0;
    while redis.take(bucket, &policy(), 1.0).await.unwrap().allowed {
        taken += 1;
        assert!(taken < 100, "no request is refused");
    }
    taken
}

#[tokio::test]
async fn a_sliding_window_counts_where_the_bucket_script_fails() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let () = command(&url(), &["SET", &format!("{prefix}bucket:spoilt"), "no hash"]).await;

    // A window may end during the test: then the former one still counts for nearly all its requests.
    let taken = take_all(&redis, "spoilt").await;

    assert!((7..=9).contains(&taken), "{taken}");
    assert!(!redis.take("spoilt", &policy(), 1.0).await.unwrap().allowed, "a refused request changes no counter");
    assert_eq!(take_all(&redis, "sound").await, 10);
}

#[tokio::test]
async fn a_sliding_window_counts_where_scripts_are_forbidden() {
    let server = Server::start().await;
    let () = command(&server.url(), &["ACL", "SETUSER", "plain", "on", ">secret", "~*", "+@all", "-@scripting"]).await;
    let address = server.url().replace("redis://", "redis://plain:secret@");
    let redis = Redis::open(options(&address, &prefix(), "one")).unwrap();

    let taken = take_all(&redis, "ann").await;

    assert!((7..=9).contains(&taken), "{taken}");
}

#[tokio::test]
async fn a_policy_needs_only_one_of_its_keys_and_invalid_values_are_ignored() {
    let prefix = prefix();
    let redis = opened(options(&url(), &prefix, "one")).await;
    let key = |tier: &str, field: &str| format!("{prefix}rate_limit:config:{tier}:write:{field}");
    let cases = [
        ("gold", Some("600"), Some("1000"), Some((600, 1_000))),
        ("half", Some("600"), None, Some((600, 60_000))),
        ("other", None, Some("1000"), Some((120, 1_000))),
        ("zero", Some("0"), Some("1000"), Some((120, 1_000))),
        ("words", Some("many"), None, None),
        ("huge", Some("99999999999"), Some("1"), None),
        ("none", None, None, None),
    ];
    for (tier, capacity, window, expected) in cases {
        for (field, value) in [("capacity", capacity), ("windowMs", window)] {
            if let Some(value) = value {
                let () = command(&url(), &["SET", &key(tier, field), value]).await;
            }
        }
        let found = redis.policy(tier, "write").await.unwrap();
        let found = found.map(|policy| (policy.capacity, policy.window.as_millis() as u64));
        assert_eq!(found, expected, "{tier}");
    }
    assert_eq!(redis.policy(&"x".repeat(65), "write").await.unwrap(), None);
}
