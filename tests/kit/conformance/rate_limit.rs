//! The suite of `RateLimiter`. The cases count tokens per hour, so that the time a real backend takes changes no figure.
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, HOUR, SECOND, fixture};

suite! { $ rate_limit:
    a_bucket_holds_a_quarter_more_than_its_capacity,
    a_refused_request_takes_no_token,
    a_bucket_is_refilled_evenly,
    a_bucket_never_exceeds_its_size,
    the_time_until_the_next_token_is_returned,
    buckets_are_independent,
    concurrent_requests_share_one_bucket,
    throttling_reduces_the_size,
    throttling_reduces_the_refill,
    a_throttle_of_zero_allows_nothing,
    a_small_capacity_allows_its_whole_number,
    a_throttle_makes_requests_of_a_capacity_of_one_rarer,
}

/// 8 tokens in 8 hours: the bucket's size is 10, and it gains one token an hour.
fn policy() -> RateLimitPolicy {
    RateLimitPolicy { name: Arc::from("default"), capacity: 8, window: HOUR * 8 }
}

impl<B: Backend> Fixture<'_, B> {
    async fn take(&self, bucket: &str, throttle: f64) -> RateLimitDecision {
        self.backend.rate_limit().take(bucket, &policy(), throttle).await.expect("the call succeeds")
    }

    /// Takes tokens until a request is refused; returns how many were allowed.
    async fn take_until_refused(&self, bucket: &str, throttle: f64) -> u32 {
        let mut allowed = 0;
        while self.take(bucket, throttle).await.allowed {
            allowed += 1;
            assert!(allowed <= 1_000, "no request is refused");
        }
        allowed
    }
}

fn close(duration: Duration, to: Duration) -> bool {
    duration.abs_diff(to) <= SECOND * 120
}

async fn a_bucket_holds_a_quarter_more_than_its_capacity<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    for left in (0..10).rev() {
        let decision = fixture.take("ann", 1.0).await;
        assert_eq!((decision.allowed, decision.remaining), (true, left));
    }

    let refused = fixture.take("ann", 1.0).await;
    assert_eq!((refused.allowed, refused.remaining), (false, 0));
}

async fn a_refused_request_takes_no_token<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.take_until_refused("ann", 1.0).await;
    for _ in 0..20 {
        assert!(!fixture.take("ann", 1.0).await.allowed);
    }

    fixture.advance(HOUR + SECOND).await;

    assert!(fixture.take("ann", 1.0).await.allowed);
    assert!(!fixture.take("ann", 1.0).await.allowed);
}

async fn a_bucket_is_refilled_evenly<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.take_until_refused("ann", 1.0).await;

    fixture.advance(HOUR / 2).await;
    assert!(!fixture.take("ann", 1.0).await.allowed, "half a token is not enough");
    fixture.advance(HOUR / 2 + SECOND).await;
    assert!(fixture.take("ann", 1.0).await.allowed, "a refused request takes no token");
    fixture.advance(HOUR * 3).await;
    assert_eq!(fixture.take_until_refused("ann", 1.0).await, 3);
}

async fn a_bucket_never_exceeds_its_size<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.take_until_refused("ann", 1.0).await;

    fixture.advance(HOUR * 100).await;

    assert_eq!(fixture.take_until_refused("ann", 1.0).await, 10);
}

async fn the_time_until_the_next_token_is_returned<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let first = fixture.take("ann", 1.0).await;
    assert!(close(first.next_in, HOUR), "{first:?}");
    fixture.take_until_refused("ann", 1.0).await;

    let at_once = fixture.take("ann", 1.0).await;
    fixture.advance(HOUR / 4).await;
    let later = fixture.take("ann", 1.0).await;

    assert!(close(at_once.next_in, HOUR), "{at_once:?}");
    assert!(close(later.next_in, HOUR / 4 * 3), "{later:?}");
}

async fn buckets_are_independent<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.take_until_refused("ann", 1.0).await;

    assert_eq!(fixture.take("bob", 1.0).await.remaining, 9);
    assert!(!fixture.take("ann", 1.0).await.allowed);
}

async fn concurrent_requests_share_one_bucket<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    let results = join_all((0..32).map(|_| fixture.take("ann", 1.0))).await;

    assert_eq!(results.iter().filter(|decision| decision.allowed).count(), 10);
}

async fn throttling_reduces_the_size<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    assert_eq!(fixture.take_until_refused("fresh", 0.5).await, 5);
    fixture.take("full", 1.0).await;
    assert_eq!(fixture.take_until_refused("full", 0.5).await, 5, "tokens above the reduced size are dropped");
}

async fn throttling_reduces_the_refill<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.take_until_refused("ann", 0.5).await;
    let refused = fixture.take("ann", 0.5).await;
    assert!(close(refused.next_in, HOUR * 2), "{refused:?}");

    fixture.advance(HOUR + SECOND).await;
    assert!(!fixture.take("ann", 0.5).await.allowed);
    fixture.advance(HOUR).await;
    assert!(fixture.take("ann", 0.5).await.allowed);
}

async fn a_throttle_of_zero_allows_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    let decision = fixture.take("ann", 0.0).await;

    assert_eq!((decision.allowed, decision.remaining), (false, 0));
    assert!(decision.next_in > HOUR, "{decision:?}");
}

async fn a_small_capacity_allows_its_whole_number<B: Backend>(backend: &B) {
    let small = RateLimitPolicy { name: "small".into(), capacity: 3, window: HOUR * 3 };
    let mut passed = 0;

    while backend.rate_limit().take("ann", &small, 1.0).await.expect("the call succeeds").allowed {
        passed += 1;
        assert!(passed <= 3, "3 + 3 / 4 whole tokens are 3");
    }

    assert_eq!(passed, 3);
}

async fn a_throttle_makes_requests_of_a_capacity_of_one_rarer<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let one = RateLimitPolicy { name: "one".into(), capacity: 1, window: HOUR };
    let limiter = backend.rate_limit();
    let is_allowed = async || limiter.take("ann", &one, 0.5).await.expect("the call succeeds").allowed;

    assert!(is_allowed().await);
    assert!(!is_allowed().await);
    fixture.advance(HOUR + SECOND).await;
    assert!(!is_allowed().await, "half a token is not enough");
    fixture.advance(HOUR).await;
    assert!(is_allowed().await);
}
