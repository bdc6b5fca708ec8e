//! A store that was rewound behind the broker's watermarks: what it still has unsent is published, and operators are warned.
use std::sync::Arc;
use std::time::Duration;

use domain::{OrderId, Status};
use kit::Factory;
use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::log_capture::LogCapture;
use crate::support::process::{TIMEOUT, TOPIC};
use crate::support::record_faults::RecordFault;

/// A token that no batch of these tests reaches.
const AHEAD: u64 = 1_000;

/// A process publishes the events of twelve new orders and ends. Then the store is on a new timeline. Returns the orders.
async fn fail_over_after_twelve_events(environment: &Environment, ledger: &mut Ledger) -> Vec<OrderId> {
    let process = environment.start().await;
    let ids = ledger.create_orders(&process, 12).await;
    process.wait_until_drained(TIMEOUT).await;
    drop(process);
    environment.script.change_timeline();
    ids
}

#[tokio::test(start_paused = true)]
async fn open_batch_below_the_watermark_is_published_and_the_rewind_is_counted() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    let ids = ledger.create_orders(&process, 12).await;
    process.wait_until_drained(TIMEOUT).await;
    assert_eq!(process.metrics.outbox_store_rewound_total.get(), 0);

    environment.record_faults.raise_watermarks(AHEAD);
    environment.script.times(3, Call::Publish, InjectedFault::UnknownNotDone);
    for id in &ids {
        ledger.change_status(&process, *id, Status::Processing).await;
    }
    process.wait_until_drained(TIMEOUT).await;

    assert_eq!(environment.script.injected().len(), 3);
    assert!(process.metrics.outbox_store_rewound_total.get() > 0);
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn every_acquisition_behind_its_watermark_is_counted_and_loses_nothing() {
    // The first acquisition of a partition raises its counter to 1.
    for ahead in [1, AHEAD] {
        let (environment, mut ledger) = (Environment::new(), Ledger::default());
        environment.record_faults.raise_watermarks(ahead);
        let process = environment.start().await;

        ledger.create_orders(&process, 12).await;
        process.wait_until_drained(TIMEOUT).await;

        let partitions = process.metrics.outbox_store_rewound_total.get();
        assert!(partitions > 0, "every acquired partition is counted that is {ahead} behind");
        ledger.assert_guarantees(&process).await;
    }
}

/// A process that is frozen between an acquisition and its watermark sees that of the partition's next owner.
#[tokio::test(start_paused = true)]
async fn acquisition_that_was_overtaken_reports_no_rewound_store() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let partitions = environment.options.partitions as usize;
    environment.script.times(partitions, Call::Watermark, InjectedFault::Hang);
    let process = environment.start().await;
    let all_wait = async || environment.script.injected().len() == partitions;
    process.wait_until("every acquisition waits", TIMEOUT, all_wait).await;
    process.bus().pause("/relay/outbox-publisher", "frozen").expect("it runs");
    let _other = environment.join(&process, "other").await;
    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(2 * TIMEOUT).await;

    environment.script.always(Call::FenceAll, InjectedFault::Unreachable);
    environment.script.release();
    process.advance(Duration::from_secs(5)).await;

    assert_eq!(process.metrics.outbox_store_rewound_total.get(), 0);
    assert_eq!(environment.script.injected().len(), partitions, "no session is fenced");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_on_a_new_timeline_before_every_session_is_fenced() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    fail_over_after_twelve_events(&environment, &mut ledger).await;
    environment.script.always(Call::FenceAll, InjectedFault::Unreachable);
    let process = environment.start().await;
    ledger.create_orders(&process, 12).await;
    process.advance(Duration::from_secs(10)).await;
    assert!(environment.script.injected().contains(&(Call::FenceAll, InjectedFault::Unreachable)));
    assert_eq!((process.depth().await.pending, environment.script.is_timeline_accepted()), (12, false));

    environment.script.clear();
    process.wait_until_drained(2 * TIMEOUT).await;

    assert!(environment.script.is_timeline_accepted());
    assert_eq!(process.metrics.outbox_store_rewound_total.get(), 0, "the broker has nothing that the store lacks");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn partitions_behind_a_new_timeline_are_counted_once_and_lose_nothing() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let ids = fail_over_after_twelve_events(&environment, &mut ledger).await;
    environment.record_faults.raise_watermarks(AHEAD);
    environment.script.once(Call::AcceptTimeline, InjectedFault::UnknownNotDone);
    let process = environment.start().await;
    for id in &ids {
        ledger.change_status(&process, *id, Status::Processing).await;
    }
    process.wait_until_drained(2 * TIMEOUT).await;

    let partitions = u64::from(environment.options.partitions);
    assert_eq!(process.metrics.outbox_store_rewound_total.get(), partitions);
    ledger.assert_guarantees(&process).await;
}

/// Each cached order may have a version that the store has lost, and a later change of the order gets the same version number.
#[tokio::test(start_paused = true)]
async fn a_rewound_store_empties_the_cache() {
    for has_timelines in [true, false] {
        let (environment, mut ledger) = (Environment::new(), Ledger::default());
        let process = environment.start().await;
        ledger.create_orders(&process, 1).await;
        process.wait_until_drained(TIMEOUT).await;
        drop(process);

        environment.record_faults.raise_watermarks(AHEAD);
        if has_timelines {
            environment.script.change_timeline();
        }
        environment.script.always(Call::Acquire, InjectedFault::Unreachable);
        let process = environment.start().await;
        let lost = Factory::seeded(1, "lost".into()).placed("ann").0;
        let cached = || process.run(process.cache.get(lost.id));
        process.run(process.cache.put(Arc::new(lost.clone()), Duration::ZERO)).await.expect("cached");
        environment.script.clear();
        ledger.create_orders(&process, 12).await;
        process.wait_until_drained(2 * TIMEOUT).await;

        assert!(process.metrics.outbox_store_rewound_total.get() > 0);
        assert_eq!(cached().await.expect("the cache works"), None, "with timelines: {has_timelines}");
    }
}

/// The store goes back to a moment before the exclusion, and the rest of the batch is published under the token that the exclusion gave.
/// Under the token of the whole batch, the excluded row would be settled as sent.
#[tokio::test(start_paused = true)]
async fn an_exclusion_that_the_store_lost_loses_no_row() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.script.always(Call::Acquire, InjectedFault::Unreachable);
    let process = environment.start().await;
    ledger.create_orders(&process, 24).await;
    environment.script.clear();
    environment.script.once(Call::Exclude, InjectedFault::LostByStore);
    environment.record_faults.add(1, RecordFault::RefuseTransient, |_| true);
    process.wait_until_drained(2 * TIMEOUT).await;

    assert!(environment.script.injected().contains(&(Call::Exclude, InjectedFault::LostByStore)));
    let repeated = process.records(TOPIC).await.len() - ledger.orders.len();
    assert!(repeated > 0, "the rest of the batch was published before the store went back");
    assert_eq!(process.metrics.outbox_store_rewound_total.get(), 1);
    ledger.assert_at_least_once(&process).await;
}

/// The reply is lost after the store has accepted the timeline, and the repetition fails once more: no acquisition finds the change.
#[tokio::test(start_paused = true)]
async fn an_acceptance_with_a_lost_reply_is_reported_once() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    fail_over_after_twelve_events(&environment, &mut ledger).await;
    environment.record_faults.raise_watermarks(AHEAD);
    environment.script.once(Call::AcceptTimeline, InjectedFault::UnknownDone);
    environment.script.once(Call::AcceptTimeline, InjectedFault::Unreachable);
    let process = environment.start().await;
    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(2 * TIMEOUT).await;

    assert_eq!(environment.script.injected().len(), 2);
    let partitions = u64::from(environment.options.partitions);
    assert_eq!(process.metrics.outbox_store_rewound_total.get(), partitions);
    ledger.assert_guarantees(&process).await;
}

/// The store accepts the timeline, and every worker dies before the reply: no acquisition finds the change.
#[tokio::test(start_paused = true)]
async fn acceptance_is_reported_once_and_empties_the_cache_after_its_worker_died() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let log = LogCapture::start();
    fail_over_after_twelve_events(&environment, &mut ledger).await;
    environment.record_faults.raise_watermarks(AHEAD);
    environment.script.once(Call::AcceptTimeline, InjectedFault::SlowReply(Duration::from_secs(5)));
    let process = environment.start().await;
    let lost = Factory::seeded(1, "lost".into()).placed("ann").0;
    let cached = || process.run(process.cache.get(lost.id));
    process.run(process.cache.put(Arc::new(lost.clone()), Duration::ZERO)).await.expect("cached");
    process.wait_until("it is accepted", TIMEOUT, async || environment.script.is_timeline_accepted()).await;

    for partition in 0..environment.options.partitions {
        process.bus().panic(&format!("/relay/partition-worker-{partition}"), "test").expect("it runs");
    }
    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(2 * TIMEOUT).await;

    let partitions = u64::from(environment.options.partitions);
    assert_eq!(process.metrics.outbox_store_rewound_total.get(), partitions);
    assert_eq!(log.fields("store_rewound", ["timeline"]), [["1"]]);
    assert_eq!(cached().await.expect("the cache works"), None);
    ledger.assert_guarantees(&process).await;
}

/// The cache may be slow or unreachable, and the process may die meanwhile: the store does not return the finding again.
#[tokio::test(start_paused = true)]
async fn rewound_store_is_reported_before_the_cache_is_empty() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    fail_over_after_twelve_events(&environment, &mut ledger).await;
    environment.record_faults.raise_watermarks(AHEAD);
    environment.script.once(Call::EvictAll, InjectedFault::Hang);
    let process = environment.start().await;

    let partitions = u64::from(environment.options.partitions);
    let reported = async || process.metrics.outbox_store_rewound_total.get() == partitions;
    process.wait_until("the rewound store is reported", TIMEOUT, reported).await;
    assert_eq!(environment.script.injected(), [(Call::EvictAll, InjectedFault::Hang)], "the cache is not empty yet");
}

#[tokio::test(start_paused = true)]
async fn instance_logs_a_timeline_that_another_instance_has_accepted() {
    let environment = Environment::new();
    let log = LogCapture::start();
    environment.script.change_timeline();
    // Both have found the change before one of them accepts it.
    environment.script.times(2, Call::AcceptTimeline, InjectedFault::Slow(Duration::from_secs(5)));
    let process = environment.start().await;
    let other = environment.join(&process, "other").await;
    process
        .wait_until("one instance logs it", TIMEOUT, async || {
            !log.fields("store_timeline_accepted_elsewhere", []).is_empty()
        })
        .await;

    assert_eq!(log.fields("store_timeline_accepted_elsewhere", ["timeline"]), [["1"]]);
    assert_eq!(log.fields("store_timeline_changed", ["timeline"]), [["1"]]);
    drop(other);
}
