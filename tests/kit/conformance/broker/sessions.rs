//! Cases of `Broker`: producer sessions and their fences.
use std::collections::BTreeMap;

use ports::broker::PublishOutcome;
use ports::partitions::ProducerSessionId;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, P1, fixture};

pub(super) async fn sessions_of_different_slots_have_different_ids<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    let names = [fixture.session(0).await, fixture.session(1).await, fixture.session(0).await];

    assert_ne!(names[0], names[1]);
    assert_ne!(names[1], names[2]);
}

pub(super) async fn a_new_session_ends_the_former_session_of_its_slot<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let former = fixture.session(0).await;
    fixture.published(&former, fixture.batch(P0, 1, fixture.records([("a", "1")]))).await;
    let present = fixture.session(0).await;

    // A backend may give both sessions one id; then they are the same session, which may publish.
    if former != present {
        let late = fixture.result(&former, fixture.batch(P0, 2, fixture.records([("a", "late")]))).await;
        assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    }

    fixture.published(&present, fixture.batch(P0, 3, fixture.records([("a", "3")]))).await;
    assert_eq!(fixture.values().await, ["1", "3"]);
}

pub(super) async fn a_fence_does_not_end_sessions_of_other_slots<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (first, second) = (fixture.session(0).await, fixture.session(1).await);

    fixture.fence(&first).await;
    fixture.published(&second, fixture.batch(P0, 1, fixture.records([("a", "1")]))).await;
    let first = fixture.session(0).await;

    fixture.published(&second, fixture.batch(P0, 2, fixture.records([("a", "2")]))).await;
    fixture.published(&first, fixture.batch(P1, 1, fixture.records([("b", "3")]))).await;
}

pub(super) async fn a_fenced_session_cannot_publish<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    fixture.published(&session, fixture.batch(P0, 1, fixture.records([("a", "1")]))).await;

    fixture.fence(&session).await;

    for token in [2, 3] {
        let late = fixture.result(&session, fixture.batch(P0, token, fixture.records([("a", "late")]))).await;
        assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    }
    assert_eq!(fixture.values().await, ["1"]);
    assert_eq!(fixture.watermark(&session, P0).await, Some(1));
}

pub(super) async fn fencing_is_idempotent<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;

    for _ in 0..3 {
        fixture.fence(&session).await;
    }

    let next = fixture.session(0).await;
    fixture.published(&next, fixture.batch(P0, 1, fixture.records([("a", "1")]))).await;
}

pub(super) async fn a_session_of_an_earlier_process_can_be_fenced<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    let session = ProducerSessionId("of-a-stopped-instance-0".into());
    fixture.fence(&session).await;

    assert_eq!(fixture.watermark(&session, P0).await, None);
}

pub(super) async fn records_committed_before_the_fence_stay<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let session = fixture.session(0).await;
    fixture.published(&session, fixture.batch(P0, 4, fixture.records([("a", "1")]))).await;

    fixture.fence(&session).await;

    assert_eq!(fixture.values().await, ["1"]);
    assert_eq!(fixture.watermark(&session, P0).await, Some(4));
}

pub(super) async fn a_fence_of_all_sessions_ends_each_of_them<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let sessions = [fixture.session(0).await, fixture.session(1).await];
    fixture.published(&sessions[0], fixture.batch(P0, 1, fixture.records([("a", "1")]))).await;

    // The second session has published nothing yet.
    fixture.fence_all().await;

    for (token, session) in (2..).zip(&sessions) {
        let late = fixture.result(session, fixture.batch(P0, token, fixture.records([("a", "late")]))).await;
        assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    }
    let next = fixture.session(0).await;
    fixture.published(&next, fixture.batch(P0, 4, fixture.records([("a", "4")]))).await;
    assert_eq!(fixture.values().await, ["1", "4"]);
}

pub(super) async fn a_fence_of_all_sessions_returns_the_highest_token_of_each_partition<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let sessions = [fixture.session(0).await, fixture.session(1).await];
    for (session, partition, token) in [(0, P0, 3), (1, P0, 5), (0, P1, 2)] {
        fixture.published(&sessions[session], fixture.batch(partition, token, fixture.records([("a", "1")]))).await;
    }

    let watermarks = fixture.fence_all().await;

    assert_eq!(watermarks, BTreeMap::from([(P0, 5), (P1, 2)]));
}

pub(super) async fn a_fence_of_all_sessions_is_idempotent<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    assert_eq!(fixture.fence_all().await, BTreeMap::new(), "nothing to fence");
    let session = fixture.session(0).await;
    fixture.published(&session, fixture.batch(P0, 1, fixture.records([("a", "1")]))).await;

    for _ in 0..2 {
        assert_eq!(fixture.fence_all().await, BTreeMap::from([(P0, 1)]));
    }
}
