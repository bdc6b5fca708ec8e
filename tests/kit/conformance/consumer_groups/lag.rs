//! Cases of `GroupMember`: the lag counts unacknowledged messages and their age.
use std::time::Duration;

use crate::backend::Backend;
use crate::conformance::consumer_groups::fixture::positions;
use crate::conformance::fixture::backend::{HOUR, SECOND, fixture};

pub(super) async fn the_lag_counts_unacknowledged_messages<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a", "b", "c"], 3).await;
    let member = fixture.join("g").await;
    let all = fixture.poll_all(&member, 9).await;

    assert_eq!(fixture.lag_when(&member, 9).await, 9, "a delivered message is not acknowledged");
    for lag in member.lag().await.expect("the lag is read").iter().filter(|lag| lag.messages > 0) {
        let delivered = all.iter().filter(|message| message.position.partition == lag.partition);
        assert_eq!((lag.topic.as_str(), lag.messages), (&*fixture.topic(), delivered.count() as u64));
    }
    fixture.acknowledge(&member, &positions(&all)).await;
    assert_eq!(fixture.lag_when(&member, 0).await, 0);
}

pub(super) async fn the_lag_has_the_age_of_the_oldest_unacknowledged_message<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.append_rounds(&["a"], 2).await;
    let member = fixture.join("g").await;
    let all = fixture.poll_all(&member, 2).await;
    let age = async || member.lag().await.expect("the lag is read").iter().map(|lag| lag.age).max().unwrap_or_default();

    let at_first = age().await;
    fixture.advance(HOUR).await;
    let later = age().await;

    assert!((later - at_first).abs_diff(HOUR) < SECOND * 120, "{at_first:?}, then {later:?}");
    fixture.acknowledge(&member, &positions(&all)).await;
    assert_eq!(age().await, Duration::ZERO);
}
