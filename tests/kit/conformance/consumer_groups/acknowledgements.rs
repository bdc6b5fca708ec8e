//! Cases of `GroupMember`: acknowledgement, rewind, and the position a group resumes at.
use crate::backend::Backend;
use crate::conformance::consumer_groups::fixture::{positions, sorted_values};
use crate::conformance::fixture::backend::{MINUTE, fixture};
use crate::wait::until_answered;

pub(super) async fn a_group_resumes_after_its_last_acknowledgement<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a"], 5).await;
    let first = fixture.join("g").await;
    let all = fixture.poll_all(&first, 5).await;
    fixture.acknowledge(&first, &positions(&all[..2])).await;
    drop(first);

    let again = fixture.poll_all(&fixture.join("g").await, 3).await;

    assert_eq!(again, all[2..]);
}

pub(super) async fn the_next_member_receives_unacknowledged_messages<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a", "b", "c"], 2).await;
    let first = fixture.join("g").await;
    let all = fixture.poll_all(&first, 6).await;
    drop(first);

    let again = fixture.poll_all(&fixture.join("g").await, 6).await;

    assert_eq!(sorted_values(&again), sorted_values(&all));
}

pub(super) async fn the_highest_acknowledged_position_counts<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a"], 5).await;
    let first = fixture.join("g").await;
    let all = fixture.poll_all(&first, 5).await;
    let positions = [all[3].position.clone(), all[1].position.clone()];
    fixture.acknowledge(&first, &positions).await;
    drop(first);

    assert_eq!(fixture.poll_all(&fixture.join("g").await, 1).await, all[4..]);
}

pub(super) async fn an_acknowledgement_never_moves_back<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a"], 4).await;
    let first = fixture.join("g").await;
    let all = fixture.poll_all(&first, 4).await;
    fixture.acknowledge(&first, &positions(&all[2..3])).await;
    fixture.acknowledge(&first, &positions(&all[..1])).await;
    drop(first);

    assert_eq!(fixture.poll_all(&fixture.join("g").await, 1).await, all[3..]);
}

pub(super) async fn a_rewind_redelivers_unacknowledged_messages<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a"], 4).await;
    let member = fixture.join("g").await;
    let all = fixture.poll_all(&member, 4).await;
    fixture.acknowledge(&member, &positions(&all[..1])).await;

    for _ in 0..2 {
        member.rewind().await.expect("rewound");
        assert_eq!(fixture.poll_all(&member, 3).await, all[1..]);
    }
}

pub(super) async fn each_group_reads_every_message<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a", "b"], 2).await;
    let first = fixture.join("g").await;
    let all = fixture.poll_all(&first, 4).await;
    fixture.acknowledge(&first, &positions(&all)).await;

    assert_eq!(sorted_values(&fixture.poll_all(&fixture.join("h").await, 4).await), sorted_values(&all));
}

pub(super) async fn a_group_may_begin_at_the_end<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a", "b", "c"], 3).await;
    fixture.begin_at_end("g").await;
    fixture.begin_at_end("g").await;
    fixture.append_rounds(&["d", "e"], 1).await;

    let found = fixture.poll_all(&fixture.join("g").await, 2).await;

    assert_eq!(sorted_values(&found), ["d-000", "e-000"]);
}

pub(super) async fn a_group_that_has_begun_keeps_its_offsets<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a"], 4).await;
    let member = fixture.join("g").await;
    let all = fixture.poll_all(&member, 4).await;
    fixture.acknowledge(&member, &positions(&all[..2])).await;
    drop(member);

    fixture.begin_at_end("g").await;

    assert_eq!(fixture.poll_all(&fixture.join("g").await, 2).await, all[2..]);
}

pub(super) async fn kept_offsets_stay_as_they_are<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a", "b"], 2).await;
    let (groups, topics) = (backend.consumer_groups(), [fixture.topic().to_string()]);
    fixture.begin_at_end("g").await;

    for group in ["g", "h"] {
        until_answered(MINUTE, || groups.keep_offsets(group, &topics)).await.expect("the offsets are kept");
    }
    fixture.append_rounds(&["c"], 1).await;

    assert_eq!(sorted_values(&fixture.poll_all(&fixture.join("g").await, 1).await), ["c-000"]);
    assert_eq!(fixture.poll_all(&fixture.join("h").await, 5).await.len(), 5, "a group without offsets has none");
}
