//! Cases of `GroupMember`: a paused partition delivers nothing until the pause ends.
use crate::backend::Backend;
use crate::conformance::consumer_groups::fixture::{keys_in_different_partitions, positions, sorted_values};
use crate::conformance::fixture::given::{HOUR, SECOND, given};

pub(super) async fn a_pause_stops_one_partition_until_it_ends<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append_rounds(&["a"], 1).await;
    let [held, free] = keys_in_different_partitions(&given).await;
    let member = given.join("g").await;
    let earlier = given.poll_all(&member, 1).await;
    given.acknowledge(&member, &positions(&earlier)).await;
    given.append_rounds(&[&held], 1).await;
    let first = given.poll_all(&member, 1).await;

    member.pause(&first[0].position, HOUR).await.expect("paused");

    given.append_rounds(&[&held, &free], 1).await;
    assert_eq!(sorted_values(&given.poll_all(&member, 1).await), [format!("{free}-000")]);
    given.advance(HOUR / 2).await;
    assert_eq!(given.poll_all(&member, 0).await, []);
    given.advance(HOUR / 2 + SECOND).await;
    assert_eq!(sorted_values(&given.poll_all(&member, 2).await), [format!("{held}-000"), format!("{held}-000")]);
}

pub(super) async fn a_paused_partition_resumes_at_the_given_position<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append_rounds(&["a"], 5).await;
    let member = given.join("g").await;
    let all = given.poll_all(&member, 5).await;
    given.acknowledge(&member, &positions(&all[..2])).await;

    member.pause(&all[2].position, HOUR).await.expect("paused");
    given.advance(HOUR + SECOND).await;

    assert_eq!(given.poll_all(&member, 3).await, all[2..]);
    assert_eq!(given.poll_all(&member, 0).await, [], "the messages are delivered once");
}
