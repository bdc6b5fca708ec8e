//! Token buckets whose script fails, and policies as operators write them.
use std::time::Duration;

use ports::rate_limit::{RateLimitPolicy, RateLimiter, StoredLimits};
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
        ("gold", Some("600"), Some("1000"), (Some(600), Some(1_000))),
        ("half", Some("600"), None, (Some(600), None)),
        ("other", None, Some("1000"), (None, Some(1_000))),
        ("zero", Some("0"), Some("1000"), (None, Some(1_000))),
        ("words", Some("many"), None, (None, None)),
        ("huge", Some("99999999999"), Some("1"), (None, None)),
        ("none", None, None, (None, None)),
    ];
    for (tier, capacity, window, expected) in cases {
        for (field, value) in [("capacity", capacity), ("windowMs", window)] {
            if let Some(value) = value {
                let () = command(&url(), &["SET", &key(tier, field), value]).await;
            }
        }
        let (capacity, window) = (expected.0, expected.1.map(Duration::from_millis));
        assert_eq!(redis.stored_limits(tier, "write").await.unwrap(), StoredLimits { capacity, window }, "{tier}");
        assert_eq!(redis.stored_limits(tier, "read").await.unwrap(), StoredLimits::default(), "{tier}");
    }
    assert_eq!(redis.stored_limits(&"x".repeat(65), "write").await.unwrap(), StoredLimits::default());
}
