//! The live stream shows which partitions an instance acquires, hands over and loses, what becomes of the batches left open, and a rewound store.
use kit::faults::{Call, InjectedFault};
use supervision::{FieldValue, SupervisionBus};

use crate::relay::handover::owned_by;
use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{PUBLISHER, TIMEOUT};

/// The value of a field in each event of this name on the live stream.
fn field_of_events(bus: &SupervisionBus, event: &str, field: &str) -> Vec<String> {
    let (backlog, _) = bus.subscribe_after(Some(0));
    let fields = backlog.into_iter().filter(|entry| entry.event == event).flat_map(|entry| entry.fields);
    let text = |value: FieldValue| if let FieldValue::Text(text) = value { text } else { panic!("{value:?}") };
    fields.filter(|(name, _)| *name == field).map(|(_, value)| text(value)).collect()
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort_unstable();
    texts
}

#[tokio::test(start_paused = true)]
async fn a_rebalance_shows_which_partitions_move() {
    let environment = Environment::new();
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    assert_eq!(sorted(field_of_events(process.bus(), "lease_acquired", "partition")), ["0", "1", "2", "3"]);
    assert_eq!(field_of_events(process.bus(), "lease_acquired", "reason"), ["unowned"; 4]);

    let other = environment.join(&process, "other").await;
    process.wait_until("each has its share", TIMEOUT, async || owned_by(&process, "other").await == 2).await;

    let released = sorted(field_of_events(process.bus(), "lease_released", "partition"));
    assert_eq!((released.len(), sorted(field_of_events(other.bus(), "lease_acquired", "partition"))), (2, released));
    assert_eq!(field_of_events(process.bus(), "lease_lost", "partition"), [""; 0]);
    let is_counted =
        async || field_of_events(process.bus(), "partitions_owned", "owned").last().is_some_and(|last| last == "2");
    process.wait_until("the stream shows the new number", TIMEOUT, is_counted).await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_shows_the_lost_leases_and_the_resolved_batches() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    environment.script.times(6, Call::Publish, InjectedFault::Hang);
    ledger.create_orders(&process, 6).await;
    process.wait_until("batches hang", TIMEOUT, async || process.depth().await.in_flight > 0).await;

    process.bus().pause(PUBLISHER, "test").expect("the publisher exists");
    let other = environment.join(&process, "other").await;
    process.wait_until("the other took over", TIMEOUT * 2, async || owned_by(&process, "other").await == 4).await;
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;
    process.bus().resume(PUBLISHER, "test").expect("the publisher exists");
    let is_lost = async || !field_of_events(process.bus(), "lease_lost", "partition").is_empty();
    process.wait_until("the first service has noticed", TIMEOUT, is_lost).await;

    let verdicts = field_of_events(other.bus(), "batch_resolved", "verdict");
    assert!(!verdicts.is_empty() && verdicts.iter().all(|verdict| verdict == "ClaimerDied"), "{verdicts:?}");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_rewound_store_and_a_relay_that_fails_are_on_the_live_stream() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.record_faults.raise_watermarks(100);
    let process = environment.start().await;
    environment.script.times(1, Call::Publish, InjectedFault::Unreachable);
    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(TIMEOUT).await;

    let rewound = field_of_events(process.bus(), "store_rewound", "partition");
    assert_eq!(rewound.len() as u64, process.metrics.outbox_store_rewound_total.get(), "{rewound:?}");
    assert_eq!(field_of_events(process.bus(), "relay_failing", "error").len(), 1);
    ledger.assert_guarantees(&process).await;
}
