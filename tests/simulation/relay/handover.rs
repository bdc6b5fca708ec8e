//! Several services on one store: leases expire, partitions change their owner, and a late owner changes nothing.
use std::time::Duration;

use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::partitions::{InstanceId, PartitionLeases};
use tokio::time::Instant;

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{PUBLISHER, Process, TIMEOUT, TOPIC};
use crate::support::wake_hub::WakeHub;

pub async fn owned_by(process: &Process, name: &str) -> usize {
    let views = process.store.overview().await.expect("partitions can be read");
    views.iter().filter(|view| view.owner == Some(InstanceId(name.into()))).count()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_expires_while_the_broker_hangs_doubles_no_event() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    environment.script.always(Call::Publish, InjectedFault::Hang);
    let ids = ledger.create_orders(&process, 6).await;
    process.wait_until("batches hang", TIMEOUT, async || process.depth().await.in_flight > 0).await;

    process.bus().pause(PUBLISHER, "test").expect("the publisher exists");
    process.advance(Duration::from_secs(40)).await;
    environment.script.clear();
    process.advance(Duration::from_secs(1)).await;
    process.bus().resume(PUBLISHER, "test").expect("the publisher exists");
    ledger.change_status(&process, ids[0], Status::Processing).await;
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_resumes_after_a_takeover_of_its_partition_changes_nothing() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    environment.script.times(6, Call::Publish, InjectedFault::Hang);
    let ids = ledger.create_orders(&process, 6).await;
    process.wait_until("batches hang", TIMEOUT, async || process.depth().await.in_flight > 0).await;

    process.bus().pause(PUBLISHER, "test").expect("the publisher exists");
    let attempts_before = environment.record_faults.attempts().len();
    let _other = environment.join(&process, "other").await;
    process
        .wait_until("the other service took over", TIMEOUT * 2, async || owned_by(&process, "other").await == 4)
        .await;
    // The batches of the first service still hang; only now do they resume.
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;
    process.bus().resume(PUBLISHER, "test").expect("the publisher exists");
    ledger.change_status(&process, ids[0], Status::Processing).await;
    process.wait_until_drained(TIMEOUT).await;

    assert!(environment.record_faults.attempts().len() > attempts_before, "the other service sent them");
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_without_a_broker_leaves_all_partitions_to_the_others() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;

    let other = environment.join_without_broker(&process, "other").await;
    for _ in 0..4 {
        process.advance(environment.options.heartbeat).await;
        assert_eq!(owned_by(&process, "sim").await, 4);
    }
    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(TIMEOUT).await;

    process.run(other.stop(TIMEOUT)).await;
    assert_eq!(owned_by(&process, "sim").await, 4);
    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn two_services_share_the_partitions_and_one_takes_all_after_the_other_stops() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;

    let other = environment.join(&process, "other").await;
    process
        .wait_until("each has its share", TIMEOUT, async || {
            owned_by(&process, "sim").await == 2 && owned_by(&process, "other").await == 2
        })
        .await;
    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(TIMEOUT).await;
    let left = process.run(other.stop(TIMEOUT)).await.partitions_left;
    assert_eq!(left, 0);
    process
        .wait_until("the first service owns all again", TIMEOUT, async || owned_by(&process, "sim").await == 4)
        .await;
    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
    assert_eq!(process.records(TOPIC).await.len(), 24);
}

#[tokio::test(start_paused = true)]
async fn handovers_that_hang_are_counted_at_a_stop() {
    let environment = Environment::new();
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    environment.script.always(Call::Release, InjectedFault::Hang);

    assert_eq!(process.stop().await, 4);
}

#[tokio::test(start_paused = true)]
async fn releases_that_fail_for_a_moment_are_repeated_at_a_stop() {
    for fault in [InjectedFault::Unreachable, InjectedFault::UnknownDone, InjectedFault::UnknownNotDone] {
        let environment = Environment::new();
        let process = environment.start().await;
        process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
        environment.script.times(8, Call::Release, fault);
        let store = process.store.clone();

        assert_eq!(process.stop().await, 0, "{fault:?}");

        let views = store.overview().await.expect("partitions can be read");
        assert!(views.iter().all(|view| view.owner.is_none()), "the next owner need not wait: {views:?}");
    }
}

/// No batch is open here, because nothing was claimed yet.
#[tokio::test(start_paused = true)]
async fn leases_of_workers_that_wait_for_the_broker_are_released_at_a_stop() {
    for call in [Call::Watermark, Call::OpenSession] {
        let environment = Environment::new();
        environment.script.always(call, InjectedFault::Hang);
        let process = environment.start().await;
        process.wait_until("all leases are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
        process.advance(Duration::from_secs(1)).await;
        let store = process.store.clone();

        assert_eq!(process.stop().await, 0, "{call:?}");

        let views = store.overview().await.expect("partitions can be read");
        assert!(views.iter().all(|view| view.owner.is_none()), "the next owner need not wait: {views:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn worker_that_goes_on_after_the_release_of_its_lease_changes_nothing() {
    for call in [Call::Watermark, Call::OpenSession] {
        let (environment, mut ledger) = (Environment::new(), Ledger::default());
        let process = environment.start().await;
        process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
        ledger.create_orders(&process, 12).await;
        process.wait_until_drained(TIMEOUT).await;
        environment.script.times(2, call, InjectedFault::Hang);
        let other = environment.join(&process, "other").await;
        let both_wait = async || environment.script.injected().len() == 2;
        process.wait_until("its two workers wait for the broker", TIMEOUT, both_wait).await;

        let stopping = process.spawn(other.stop(TIMEOUT));
        process.wait_until("both are released", TIMEOUT, async || owned_by(&process, "other").await == 0).await;
        assert!(!stopping.is_finished(), "the workers still run");
        ledger.create_orders(&process, 12).await;
        environment.script.release();
        let report = process.run(stopping).await.expect("it stops");
        process.wait_until_drained(TIMEOUT).await;

        assert_eq!((report.partitions_left, owned_by(&process, "sim").await), (0, 4), "{call:?}");
        ledger.assert_guarantees(&process).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stop_without_a_store_is_delayed_by_few_repetitions_of_the_handover() {
    let environment = Environment::new();
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    environment.script.always(Call::Release, InjectedFault::Unreachable);
    let started = Instant::now();

    assert_eq!(process.stop().await, 4);

    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_acquired_without_a_reply_is_handed_over_at_a_stop() {
    let environment = Environment::new();
    environment.script.always(Call::Acquire, InjectedFault::UnknownDone);
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    // Later requests that the store never receives change nothing about it.
    environment.script.clear();
    environment.script.always(Call::Acquire, InjectedFault::Unreachable);
    process.advance(Duration::from_secs(5)).await;
    environment.script.clear();
    let store = process.store.clone();

    assert_eq!(process.stop().await, 0);

    let views = store.overview().await.expect("partitions can be read");
    assert!(views.iter().all(|view| view.owner.is_none()), "the next owner need not wait: {views:?}");
}

/// The death of an actor before them ends the publisher and its workers, which restart while the tree still runs.
#[tokio::test(start_paused = true)]
async fn publisher_that_dies_during_a_stop_hands_its_partitions_over_and_leaves() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    environment.script.times(4, Call::Publish, InjectedFault::Slow(Duration::from_secs(5)));
    ledger.create_orders(&process, 12).await;
    process.wait_until("batches are open", TIMEOUT, async || process.depth().await.in_flight > 0).await;
    let (bus, store) = (process.bus().clone(), process.store.clone());

    let panic = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bus.panic("/relay/retry-handler", "test").expect("it runs");
    };
    let (left, ()) = futures::join!(process.stop(), panic);

    let views = store.overview().await.expect("partitions can be read");
    assert!(views.iter().all(|view| view.owner.is_none()), "the next owner need not wait: {views:?}");
    assert_eq!(left, 0);
    let members = store.heartbeat(&InstanceId("other".into()), TIMEOUT).await.expect("the store works").live;
    assert_eq!(members, 1, "the instance has left");
}

#[tokio::test(start_paused = true)]
async fn services_that_compete_for_partitions_leave_none_without_an_owner() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.script.always(Call::Acquire, InjectedFault::Unreachable);
    let process = environment.start().await;
    let _other = environment.join(&process, "other").await;
    let _third = environment.join(&process, "third").await;
    process.advance(Duration::from_secs(10)).await;
    environment.script.clear();

    process
        .wait_until("all partitions are taken", Duration::from_secs(10), async || {
            let views = process.store.overview().await.expect("partitions can be read");
            views.iter().all(|view| view.owner.is_some())
        })
        .await;
    ledger.create_orders(&process, 24).await;
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn partitions_of_a_dead_process_are_shared_by_the_live_services() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    drop(process);

    environment.script.always(Call::Acquire, InjectedFault::Unreachable);
    let process = environment.start().await;
    let _other = environment.join(&process, "other").await;
    ledger.create_orders(&process, 24).await;
    process.advance(Duration::from_secs(10)).await;
    environment.script.clear();
    process
        .wait_until("each has its share", Duration::from_secs(10), async || {
            owned_by(&process, "sim").await == 2 && owned_by(&process, "other").await == 2
        })
        .await;
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_always_busy_is_handed_over() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.relay.batch = 1;
    environment.script.always(Call::Publish, InjectedFault::Slow(Duration::from_millis(250)));
    let process = environment.start().await;
    ledger.create_orders(&process, 400).await;

    let _other = environment.join(&process, "other").await;
    process
        .wait_until("each has its share", Duration::from_secs(10), async || {
            owned_by(&process, "sim").await == 2 && owned_by(&process, "other").await == 2
        })
        .await;
    assert!(process.depth().await.pending > 100, "under load");
    process.wait_until_drained(TIMEOUT * 4).await;

    ledger.assert_guarantees(&process).await;
}

/// A worker without a session that has to hand over must not leave a lease that the heartbeat renews for ever.
#[tokio::test(start_paused = true)]
async fn no_partition_stays_with_a_service_that_has_no_worker_for_it() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    // Workers are then without a session most of the time.
    environment.options.breaker.failures = u32::MAX;
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    environment.script.always(Call::Publish, InjectedFault::UnknownNotDone);
    ledger.create_orders(&process, 24).await;
    process.advance(Duration::from_secs(1)).await;

    let _other = environment.join(&process, "other").await;
    process
        .wait_until("each has its share", TIMEOUT, async || {
            owned_by(&process, "sim").await == 2 && owned_by(&process, "other").await == 2
        })
        .await;
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn wake_ups_reach_another_service_for_its_rows_and_for_free_partitions() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.wake_hub = Some(WakeHub::default());
    // Without wake-ups no service would scan for an hour.
    (environment.options.poll_interval, environment.options.heartbeat) =
        (Duration::from_secs(3_600), Duration::from_secs(5));
    let process = environment.start().await;
    let other = environment.join(&process, "other").await;
    process
        .wait_until("each has its share", TIMEOUT, async || {
            owned_by(&process, "sim").await == 2 && owned_by(&process, "other").await == 2
        })
        .await;

    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(Duration::from_secs(1)).await;
    process.run(other.stop(TIMEOUT)).await;
    process
        .wait_until("the first service owns all again", Duration::from_secs(1), async || {
            owned_by(&process, "sim").await == 4
        })
        .await;
    ledger.create_orders(&process, 12).await;
    process.wait_until_drained(Duration::from_secs(1)).await;

    ledger.assert_guarantees(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stops_during_a_broker_outage_releases_its_idle_partitions() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.script.always(Call::Watermark, InjectedFault::Unreachable);
    let process = environment.start().await;
    process
        .wait_until("leases are taken, and no session can begin", TIMEOUT, async || owned_by(&process, "sim").await > 0)
        .await;
    ledger.create_orders(&process, 6).await;
    let store = process.store.clone();

    assert_eq!(process.stop().await, 0, "every partition was released");

    let views = store.overview().await.expect("partitions can be read");
    assert!(views.iter().all(|view| view.owner.is_none()), "the next owner need not wait: {views:?}");
}
