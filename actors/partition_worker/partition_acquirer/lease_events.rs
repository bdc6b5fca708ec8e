//! The live events and log lines about the leases of this instance: one acquired, released, or lost to another instance.
use ports::outbox::BatchOutcome;
use ports::partitions::{AcquireReason, Epoch, InstanceId, LeaseFence, PartitionNo, Token};
use supervision::SupervisionBus;

/// The instance holds a lease under a new epoch.
pub fn report_acquired(bus: &SupervisionBus, partition: PartitionNo, epoch: Epoch, reason: AcquireReason) {
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
    publish(bus, "lease_acquired", partition, [("epoch", epoch.to_string()), ("reason", reason.to_owned())]);
}

/// The instance released a lease, so that another one need not wait until it expires.
pub fn report_released(bus: &SupervisionBus, partition: PartitionNo, epoch: Epoch) {
    tracing::debug!(
        event = "lease_released",
        partition = partition.0,
        epoch,
        "the lease on partition {partition} was released"
    );
    publish(bus, "lease_released", partition, [("epoch", epoch.to_string())]);
}

/// Another instance took a lease that this one held. `owner` is the new one, where it is known.
pub fn report_lost(bus: &SupervisionBus, partition: PartitionNo, owner: Option<&InstanceId>) {
    let owner = owner.map(|owner| owner.0.to_string());
    tracing::debug!(
        event = "lease_lost",
        partition = partition.0,
        owner,
        "the lease on partition {partition} was lost to another instance"
    );
    publish(bus, "lease_lost", partition, owner.map(|owner| ("owner", owner)));
}

/// A batch that an earlier claim left open was resolved. The caller logs it.
pub fn report_resolved(bus: &SupervisionBus, fence: &LeaseFence, token: Token, outcome: BatchOutcome) {
    let fields =
        [("epoch", fence.epoch.to_string()), ("token", token.to_string()), ("verdict", format!("{outcome:?}"))];
    publish(bus, "batch_resolved", fence.partition, fields);
}

/// The broker has committed a batch of the partition that the store does not contain. The caller logs it.
pub fn report_rewind(bus: &SupervisionBus, fence: &LeaseFence, watermark: Option<Token>) {
    let fields = [("epoch", fence.epoch.to_string()), ("counter", fence.counter.to_string())];
    let watermark = watermark.map(|watermark| ("watermark", watermark.to_string()));
    publish(bus, "store_rewound", fence.partition, fields.into_iter().chain(watermark));
}

fn publish(
    bus: &SupervisionBus,
    event: &'static str,
    partition: PartitionNo,
    fields: impl IntoIterator<Item = (&'static str, String)>,
) {
    let fields = [("partition", partition.to_string())].into_iter().chain(fields);
    bus.publish_external(event, fields.collect());
}
