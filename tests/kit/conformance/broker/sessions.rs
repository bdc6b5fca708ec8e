//! Cases of `Broker`: producer sessions and their fences.
use std::collections::BTreeMap;

use ports::broker::Published;
use ports::partitions::ProducerSessionId;

use crate::backend::Backend;
use crate::conformance::fixture::given::{P0, P1, given};

pub(super) async fn sessions_of_different_slots_have_different_ids<B: Backend>(backend: &B) {
    let given = given(backend);

    let names = [given.session(0).await, given.session(1).await, given.session(0).await];

    assert_ne!(names[0], names[1]);
    assert_ne!(names[1], names[2]);
}

pub(super) async fn a_new_session_ends_the_former_session_of_its_slot<B: Backend>(backend: &B) {
    let given = given(backend);
    let former = given.session(0).await;
    given.published(&former, given.batch(P0, 1, given.records([("a", "1")]))).await;
    let present = given.session(0).await;

    // A backend may give both sessions one id; then they are the same session, which may publish.
    if former != present {
        let late = given.result(&former, given.batch(P0, 2, given.records([("a", "late")]))).await;
        assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    }

    given.published(&present, given.batch(P0, 3, given.records([("a", "3")]))).await;
    assert_eq!(given.values().await, ["1", "3"]);
}

pub(super) async fn a_fence_does_not_end_sessions_of_other_slots<B: Backend>(backend: &B) {
    let given = given(backend);
    let (first, second) = (given.session(0).await, given.session(1).await);

    given.fence(&first).await;
    given.published(&second, given.batch(P0, 1, given.records([("a", "1")]))).await;
    let first = given.session(0).await;

    given.published(&second, given.batch(P0, 2, given.records([("a", "2")]))).await;
    given.published(&first, given.batch(P1, 1, given.records([("b", "3")]))).await;
}

pub(super) async fn a_fenced_session_cannot_publish<B: Backend>(backend: &B) {
    let given = given(backend);
    let session = given.session(0).await;
    given.published(&session, given.batch(P0, 1, given.records([("a", "1")]))).await;

    given.fence(&session).await;

    for token in [2, 3] {
        let late = given.result(&session, given.batch(P0, token, given.records([("a", "late")]))).await;
        assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    }
    assert_eq!(given.values().await, ["1"]);
    assert_eq!(given.watermark(&session, P0).await, Some(1));
}

pub(super) async fn fencing_is_idempotent<B: Backend>(backend: &B) {
    let given = given(backend);
    let session = given.session(0).await;

    for _ in 0..3 {
        given.fence(&session).await;
    }

    let next = given.session(0).await;
    given.published(&next, given.batch(P0, 1, given.records([("a", "1")]))).await;
}

pub(super) async fn a_session_of_an_earlier_process_can_be_fenced<B: Backend>(backend: &B) {
    let given = given(backend);

    let session = ProducerSessionId("of-a-stopped-instance-0".into());
    given.fence(&session).await;

    assert_eq!(given.watermark(&session, P0).await, None);
}

pub(super) async fn records_committed_before_the_fence_stay<B: Backend>(backend: &B) {
    let given = given(backend);
    let session = given.session(0).await;
    given.published(&session, given.batch(P0, 4, given.records([("a", "1")]))).await;

    given.fence(&session).await;

    assert_eq!(given.values().await, ["1"]);
    assert_eq!(given.watermark(&session, P0).await, Some(4));
}

pub(super) async fn a_fence_of_all_sessions_ends_each_of_them<B: Backend>(backend: &B) {
    let given = given(backend);
    let sessions = [given.session(0).await, given.session(1).await];
    given.published(&sessions[0], given.batch(P0, 1, given.records([("a", "1")]))).await;

    // The second session has published nothing yet.
    given.fence_all().await;

    for (token, session) in (2..).zip(&sessions) {
        let late = given.result(session, given.batch(P0, token, given.records([("a", "late")]))).await;
        assert!(matches!(late, Published::SessionLost(_)), "{late:?}");
    }
    let next = given.session(0).await;
    given.published(&next, given.batch(P0, 4, given.records([("a", "4")]))).await;
    assert_eq!(given.values().await, ["1", "4"]);
}

pub(super) async fn a_fence_of_all_sessions_returns_the_highest_token_of_each_partition<B: Backend>(backend: &B) {
    let given = given(backend);
    let sessions = [given.session(0).await, given.session(1).await];
    for (session, partition, token) in [(0, P0, 3), (1, P0, 5), (0, P1, 2)] {
        given.published(&sessions[session], given.batch(partition, token, given.records([("a", "1")]))).await;
    }

    let watermarks = given.fence_all().await;

    assert_eq!(watermarks, BTreeMap::from([(P0, 5), (P1, 2)]));
}

pub(super) async fn a_fence_of_all_sessions_is_idempotent<B: Backend>(backend: &B) {
    let given = given(backend);
    assert_eq!(given.fence_all().await, BTreeMap::new(), "nothing to fence");
    let session = given.session(0).await;
    given.published(&session, given.batch(P0, 1, given.records([("a", "1")]))).await;

    for _ in 0..2 {
        assert_eq!(given.fence_all().await, BTreeMap::from([(P0, 1)]));
    }
}
