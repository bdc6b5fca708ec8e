//! Cases of `GroupMember`: a paused partition delivers nothing until the pause ends.
use crate::backend::Backend;
use crate::conformance::consumer_groups::fixture::{keys_in_different_partitions, positions, sorted_values};
use crate::conformance::fixture::backend::{HOUR, SECOND, fixture};

pub(super) async fn a_pause_stops_one_partition_until_it_ends<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a"], 1).await;
    let [held, free] = keys_in_different_partitions(&fixture).await;
    let member = fixture.join("g").await;
    let earlier = fixture.poll_all(&member, 1).await;
    fixture.acknowledge(&member, &positions(&earlier)).await;
    fixture.append_rounds(&[&held], 1).await;
    let first = fixture.poll_all(&member, 1).await;

    member.pause(&first[0].position, HOUR).await.expect("paused");

    fixture.append_rounds(&[&held, &free], 1).await;
    assert_eq!(sorted_values(&fixture.poll_all(&member, 1).await), [format!("{free}-000")]);
    fixture.advance(HOUR / 2).await;
    assert_eq!(fixture.poll_all(&member, 0).await, []);
    fixture.advance(HOUR / 2 + SECOND).await;
    assert_eq!(sorted_values(&fixture.poll_all(&member, 2).await), [format!("{held}-000"), format!("{held}-000")]);
}

pub(super) async fn a_paused_partition_resumes_at_the_given_position<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a"], 5).await;
    let member = fixture.join("g").await;
    let all = fixture.poll_all(&member, 5).await;
    fixture.acknowledge(&member, &positions(&all[..2])).await;

    member.pause(&all[2].position, HOUR).await.expect("paused");
    fixture.advance(HOUR + SECOND).await;

    assert_eq!(fixture.poll_all(&member, 3).await, all[2..]);
    assert_eq!(fixture.poll_all(&member, 0).await, [], "the messages are delivered once");
}
