//! Helpers of the lease cases: heartbeats, acquisitions of P0, a worker with an open batch.
use std::time::Duration;

use ports::partitions::{AcquireReason, Acquisition, InstanceId, InstanceRank, LeaseFence, LeaseSurvey, Token};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{Fixture, P0, instance};
use crate::conformance::fixture::worker::{ALL, Worker, acquire_free};

/// A lease time that no case outlives.
pub(super) const LONG: Duration = Duration::from_secs(86_400);
/// The age of the last heartbeat from which a member counts as dead.
pub(super) const MEMBER_DEAD_AFTER: Duration = Duration::from_secs(15 * 60);

/// Sends a heartbeat and returns the live members in the order of their ids. The heartbeat's counts must agree with them.
pub(super) async fn heartbeat<B: Backend>(backend: &B, name: &str) -> Vec<InstanceId> {
    let rank = backend.leases().heartbeat(&instance(name), MEMBER_DEAD_AFTER).await.expect("the heartbeat is stored");
    let live: Vec<InstanceId> = survey(backend, name).await.members.into_iter().map(|member| member.instance).collect();
    let position = live.iter().position(|member| *member == instance(name)).expect("the caller is alive");
    assert_eq!(rank, InstanceRank { rank: position as u32, live: live.len() as u32 }, "{live:?}");
    live
}

pub(super) async fn survey<B: Backend>(backend: &B, name: &str) -> LeaseSurvey {
    backend.leases().survey(&instance(name)).await.expect("the survey is read")
}

pub(super) async fn acquire<B: Backend>(
    backend: &B,
    name: &str,
    reason: AcquireReason,
    watermark: Option<Token>,
) -> Acquisition {
    let result = backend.leases().acquire(P0, &instance(name), reason, watermark, LONG).await;
    result.expect("the acquisition returns")
}

pub(super) fn fence(acquisition: Acquisition) -> LeaseFence {
    match acquisition {
        Acquisition::Acquired(acquired) => acquired.fence,
        refused => panic!("{refused:?}"),
    }
}

/// A worker that owns P0 and has one claimed batch open, and the batch's token.
pub(super) async fn worker_with_open_batch<'b, B: Backend>(
    fixture: &Fixture<'b, B>,
    name: &str,
    ttl: Duration,
) -> (Worker<'b, B>, Token) {
    fixture.place_order(P0).await;
    let mut worker = Worker::of(fixture.backend, acquire_free(fixture.backend, name, P0, ttl).await.fence);
    heartbeat(fixture.backend, name).await;
    let token = worker.claim(ALL).await.token;
    (worker, token)
}
