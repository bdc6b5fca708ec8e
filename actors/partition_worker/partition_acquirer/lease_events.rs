//! The live events and log lines about the leases of this instance: one acquired, given back, or lost to another instance.
use ports::outbox::BatchOutcome;
use ports::partitions::{AcquireReason, Epoch, InstanceId, LeaseFence, PartitionNo, Token};
use supervision::SupervisionBus;

/// The instance holds a lease under a new epoch.
pub fn report_acquired(events: &SupervisionBus, partition: PartitionNo, epoch: Epoch, reason: AcquireReason) {
    let reason = match reason {
        AcquireReason::Unowned => "unowned",
        AcquireReason::WorkerDied => "worker_died",
        AcquireReason::OutcomeUnknown => "outcome_unknown",
    };
    tracing::debug!(
        event = "lease_acquired",
        partition = partition.0,
        epoch,
        reason,
        "partition {partition} was acquired under epoch {epoch}"
    );
    publish(events, "lease_acquired", partition, [("epoch", epoch.to_string()), ("reason", reason.to_owned())]);
}

/// The instance gave a lease back, so that another one need not wait until it expires.
pub fn report_released(events: &SupervisionBus, partition: PartitionNo, epoch: Epoch) {
    tracing::debug!(
        event = "lease_released",
        partition = partition.0,
        epoch,
        "the lease on partition {partition} was given back"
    );
    publish(events, "lease_released", partition, [("epoch", epoch.to_string())]);
}

/// Another instance took a lease that this one held. `owner` is the new one, where it is known.
pub fn report_lost(events: &SupervisionBus, partition: PartitionNo, owner: Option<&InstanceId>) {
    let owner = owner.map(|owner| owner.0.to_string());
    tracing::debug!(
        event = "lease_lost",
        partition = partition.0,
        owner,
        "the lease on partition {partition} was lost to another instance"
    );
    publish(events, "lease_lost", partition, owner.map(|owner| ("owner", owner)));
}

/// A batch that an earlier claim left open was resolved. The caller logs it.
pub fn report_resolved(events: &SupervisionBus, fence: &LeaseFence, token: Token, outcome: BatchOutcome) {
    let fields =
        [("epoch", fence.epoch.to_string()), ("token", token.to_string()), ("verdict", format!("{outcome:?}"))];
    publish(events, "batch_resolved", fence.partition, fields);
}

/// The broker has committed a batch of the partition that the store does not contain. The caller logs it.
pub fn report_rewind(events: &SupervisionBus, fence: &LeaseFence, watermark: Option<Token>) {
    let fields = [("epoch", fence.epoch.to_string()), ("counter", fence.counter.to_string())];
    let watermark = watermark.map(|watermark| ("watermark", watermark.to_string()));
    publish(events, "store_rewound", fence.partition, fields.into_iter().chain(watermark));
}

fn publish(
    events: &SupervisionBus,
    event: &'static str,
    partition: PartitionNo,
    fields: impl IntoIterator<Item = (&'static str, String)>,
) {
    let fields = [("partition", partition.to_string())].into_iter().chain(fields);
    events.publish_external(event, fields.collect());
}
