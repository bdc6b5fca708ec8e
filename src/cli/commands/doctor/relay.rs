//! `doctor`: checks whether events wait too long, and whether each partition has an owner.
use app::contract::rfc3339;
use app::health::UNSENT_AGE_NOTABLE;
use app::port_types::{PartitionView, RowCounts};
use posthaste::config::BrokerKind;
use posthaste::{Config, OperatorAccess};

use super::finding::Finding;

pub(super) async fn outbox(config: &Config, access: &OperatorAccess) -> Finding {
    match access.operations.depth().await {
        Ok(depth) => outbox_finding(config.broker.kind, &depth),
        Err(error) => Finding::failed("outbox", error),
    }
}

/// Parked rows and old events are faults. Without a broker, events grow old as configured.
fn outbox_finding(broker: BrokerKind, depth: &RowCounts) -> Finding {
    let waiting = depth.pending + depth.failed;
    let age = depth.oldest_unsent.unwrap_or_default();
    let is_old = broker != BrokerKind::None && age > UNSENT_AGE_NOTABLE;
    let parked = match depth.parked {
        0 => "0 parked".to_owned(),
        parked => format!("{parked} parked: see `posthaste outbox list --status PARKED`"),
    };
    let mut detail = format!("{waiting} waiting (oldest {} s), {} in flight, {parked}", age.as_secs(), depth.in_flight);
    if is_old {
        let limit = UNSENT_AGE_NOTABLE.as_secs();
        detail += &format!(
            "; the oldest waits longer than {limit} s: `posthaste outbox why ID` explains one that `outbox list` shows"
        );
    }
    Finding::new("outbox", depth.parked == 0 && !is_old, detail)
}

pub(super) async fn partitions(config: &Config, access: &OperatorAccess, is_ready: bool) -> Finding {
    match access.operations.partitions().await {
        Ok(views) => partitions_finding(config.broker.kind, config.outbox.partitions, &views, is_ready),
        Err(error) => Finding::failed("partitions", error),
    }
}

/// Partitions without an owner are a fault while others have one, and while a service is ready that should own them.
fn partitions_finding(broker: BrokerKind, configured: u32, views: &[PartitionView], is_ready: bool) -> Finding {
    let installed = views.len();
    if installed != configured as usize {
        let detail = format!(
            "outbox.partitions is {configured}, and the store was created with {installed}: set it to {installed}"
        );
        return Finding::new("partitions", false, detail);
    }
    let without_owner: Vec<String> =
        views.iter().filter(|view| view.owner.is_none()).map(|view| view.partition.to_string()).collect();
    let unowned = without_owner.len();
    let (ok, detail) = match (broker, unowned == installed, is_ready) {
        (BrokerKind::None, true, _) => {
            (true, "none is owned: no broker is configured, so no event is sent".to_owned())
        }
        (_, true, false) => (true, "none is owned: no instance runs on this store".to_owned()),
        (_, true, true) => (
            false,
            "none is owned: an instance runs but takes no partition: check its outbox.publisher.enabled and broker.kind, \
             and that it uses this store"
                .to_owned(),
        ),
        (_, false, _) => {
            let names =
                if unowned == 0 { String::new() } else { format!(", without owner: {}", without_owner.join(", ")) };
            let first_expiry = views.iter().filter_map(|view| view.expires_at).min().map(rfc3339).unwrap_or_default();
            let owned = installed - unowned;
            (unowned == 0, format!("{owned} of {installed} owned{names}, first lease expires at {first_expiry}"))
        }
    };
    Finding::new("partitions", ok, detail)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use app::port_types::{InstanceId, PartitionNo};

    use super::*;

    fn depth(parked: u64, oldest_s: u64) -> RowCounts {
        RowCounts { pending: 3, parked, oldest_unsent: Some(Duration::from_secs(oldest_s)), ..RowCounts::default() }
    }

    fn views(owners: [Option<&str>; 2]) -> Vec<PartitionView> {
        let view = |(number, owner): (u32, Option<&str>)| PartitionView {
            partition: PartitionNo(number),
            owner: owner.map(|owner| InstanceId(owner.into())),
            epoch: 0,
            counter: 0,
            open_batch: None,
            expires_at: None,
            depth: 0,
        };
        (0..).zip(owners).map(view).collect()
    }

    #[test]
    fn events_that_wait_too_long_and_parked_rows_are_faults() {
        let cases = [
            (BrokerKind::Embedded, depth(0, 60), true, "3 waiting (oldest 60 s), 0 in flight, 0 parked"),
            (BrokerKind::Embedded, depth(0, 61), false, "the oldest waits longer than 60 s"),
            (BrokerKind::None, depth(0, 3_600), true, "3 waiting (oldest 3600 s)"),
            (BrokerKind::None, depth(1, 3_600), false, "1 parked: see"),
        ];
        for (broker, depth, ok, part) in cases {
            let finding = outbox_finding(broker, &depth);
            assert!(finding.ok == ok && finding.detail.contains(part), "{broker:?} {depth:?}: {}", finding.detail);
        }
    }

    #[test]
    fn partitions_without_an_owner_are_a_fault_while_an_instance_runs() {
        let cases = [
            (BrokerKind::Kafka, [None, None], false, true, "no instance runs on this store"),
            (BrokerKind::Kafka, [None, None], true, false, "check its outbox.publisher.enabled"),
            (BrokerKind::None, [None, None], true, true, "no broker is configured"),
            (BrokerKind::Kafka, [Some("a"), None], false, false, "1 of 2 owned, without owner: 1,"),
            (BrokerKind::Kafka, [Some("a"), Some("b")], true, true, "2 of 2 owned, first"),
        ];
        for (broker, owners, is_ready, ok, part) in cases {
            let finding = partitions_finding(broker, 2, &views(owners), is_ready);
            assert!(finding.ok == ok && finding.detail.contains(part), "{owners:?} {is_ready}: {}", finding.detail);
        }
        assert!(!partitions_finding(BrokerKind::Kafka, 7, &views([None, None]), false).ok);
    }
}
