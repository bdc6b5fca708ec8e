//! The suite of `RateLimit`. Cases count in tokens per hour, so that the time a real backend takes changes no figure.
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy};

use super::given::{Given, HOUR, SECOND, given};
use crate::backend::Backend;

suite! { $ rate_limit:
    a_bucket_holds_a_quarter_more_than_its_capacity,
    a_refused_request_takes_nothing,
    a_bucket_is_refilled_evenly,
    a_bucket_is_never_fuller_than_full,
    the_time_until_the_next_token_is_told,
    buckets_are_kept_apart,
    concurrent_requests_share_one_bucket,
    throttling_narrows_the_size,
    throttling_narrows_the_refill,
    throttled_to_nothing_lets_nothing_pass,
    a_small_capacity_lets_at_least_its_own_number_pass,
    a_policy_is_found_where_one_is_set_aside,
}

/// Eight an hour each of eight hours: the bucket holds ten, and a token comes every hour.
fn policy() -> RateLimitPolicy {
    RateLimitPolicy { name: Arc::from("default"), capacity: 8, window: HOUR * 8 }
}

impl<B: Backend> Given<'_, B> {
    async fn take(&self, bucket: &str, throttle: f64) -> RateLimitDecision {
        self.backend.rate_limit().take(bucket, &policy(), throttle).await.expect("answered")
    }

    /// Takes until refused: how many passed.
    async fn empty(&self, bucket: &str, throttle: f64) -> u32 {
        let mut passed = 0;
        while self.take(bucket, throttle).await.allowed {
            passed += 1;
            assert!(passed <= 1_000, "nothing is ever refused");
        }
        passed
    }
}

fn close(duration: Duration, to: Duration) -> bool {
    duration.abs_diff(to) <= SECOND * 30
}

async fn a_bucket_holds_a_quarter_more_than_its_capacity<B: Backend>(backend: &B) {
    let given = given(backend);

    for left in (0..10).rev() {
        let taken = given.take("ann", 1.0).await;
        assert_eq!((taken.allowed, taken.remaining), (true, left));
    }

    let refused = given.take("ann", 1.0).await;
    assert_eq!((refused.allowed, refused.remaining), (false, 0));
}

async fn a_refused_request_takes_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    given.empty("ann", 1.0).await;
    for _ in 0..20 {
        assert!(!given.take("ann", 1.0).await.allowed);
    }

    given.advance(HOUR + SECOND).await;

    assert!(given.take("ann", 1.0).await.allowed);
    assert!(!given.take("ann", 1.0).await.allowed);
}

async fn a_bucket_is_refilled_evenly<B: Backend>(backend: &B) {
    let given = given(backend);
    given.empty("ann", 1.0).await;

    given.advance(HOUR / 2).await;
    assert!(!given.take("ann", 1.0).await.allowed, "half a token");
    given.advance(HOUR / 2 + SECOND).await;
    assert!(given.take("ann", 1.0).await.allowed, "asking in between cost nothing");
    given.advance(HOUR * 3).await;
    assert_eq!(given.empty("ann", 1.0).await, 3);
}

async fn a_bucket_is_never_fuller_than_full<B: Backend>(backend: &B) {
    let given = given(backend);
    given.empty("ann", 1.0).await;

    given.advance(HOUR * 100).await;

    assert_eq!(given.empty("ann", 1.0).await, 10);
}

async fn the_time_until_the_next_token_is_told<B: Backend>(backend: &B) {
    let given = given(backend);
    let first = given.take("ann", 1.0).await;
    assert!(close(first.next_in, HOUR), "{first:?}");
    given.empty("ann", 1.0).await;

    let at_once = given.take("ann", 1.0).await;
    given.advance(HOUR / 4).await;
    let later = given.take("ann", 1.0).await;

    assert!(close(at_once.next_in, HOUR), "{at_once:?}");
    assert!(close(later.next_in, HOUR / 4 * 3), "{later:?}");
}

async fn buckets_are_kept_apart<B: Backend>(backend: &B) {
    let given = given(backend);
    given.empty("ann", 1.0).await;

    assert_eq!(given.take("bob", 1.0).await.remaining, 9);
    assert!(!given.take("ann", 1.0).await.allowed);
}

async fn concurrent_requests_share_one_bucket<B: Backend>(backend: &B) {
    let given = given(backend);

    let answers = join_all((0..32).map(|_| given.take("ann", 1.0))).await;

    assert_eq!(answers.iter().filter(|taken| taken.allowed).count(), 10);
}

async fn throttling_narrows_the_size<B: Backend>(backend: &B) {
    let given = given(backend);

    assert_eq!(given.empty("fresh", 0.5).await, 5);
    given.take("full", 1.0).await;
    assert_eq!(given.empty("full", 0.5).await, 5, "what is above the narrowed size is gone");
}

async fn throttling_narrows_the_refill<B: Backend>(backend: &B) {
    let given = given(backend);
    given.empty("ann", 0.5).await;
    let refused = given.take("ann", 0.5).await;
    assert!(close(refused.next_in, HOUR * 2), "{refused:?}");

    given.advance(HOUR + SECOND).await;
    assert!(!given.take("ann", 0.5).await.allowed);
    given.advance(HOUR).await;
    assert!(given.take("ann", 0.5).await.allowed);
}

async fn throttled_to_nothing_lets_nothing_pass<B: Backend>(backend: &B) {
    let given = given(backend);

    let taken = given.take("ann", 0.0).await;

    assert_eq!((taken.allowed, taken.remaining), (false, 0));
    assert!(taken.next_in > HOUR, "{taken:?}");
}

async fn a_small_capacity_lets_at_least_its_own_number_pass<B: Backend>(backend: &B) {
    let small = RateLimitPolicy { name: "small".into(), capacity: 3, window: HOUR * 3 };
    let mut passed = 0;

    while backend.rate_limit().take("ann", &small, 1.0).await.expect("answered").allowed {
        passed += 1;
        assert!(passed <= 3, "3 + 3 / 4 whole tokens are 3");
    }

    assert_eq!(passed, 3);
}

async fn a_policy_is_found_where_one_is_set_aside<B: Backend>(backend: &B) {
    let find = async |tier: &str, class: &str| backend.rate_limit().policy(tier, class).await.expect("answered");
    assert_eq!(find("gold", "write").await, None);
    let gold = RateLimitPolicy { name: "gold".into(), capacity: 600, window: Duration::from_secs(60) };

    if backend.set_policy("gold", "write", &gold).await {
        let found = find("gold", "write").await.expect("it was set aside");
        assert_eq!((found.capacity, found.window), (gold.capacity, gold.window));
        assert_eq!(find("gold", "read").await, None);
        assert_eq!(find("silver", "write").await, None);
    }
}
