//! The root supervisor escalates: partitions and writes wait neither for a handler of a consumed event nor for the relay, if that is what failed.
use std::time::Duration;

use app::error::CommandError;
use kit::faults::{Call, InjectedFault};
use supervision::ActorState;
use tokio::time::Instant;

use super::handover::owned_by;
use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::process::{PUBLISHER, TIMEOUT};
use crate::support::recording_handler::RecordingHandler;
use crate::support::wake_hub::WakeHub;

#[tokio::test(start_paused = true)]
async fn root_that_escalates_frees_partitions_and_answers_writes_while_a_handler_runs() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    handler.set_delay(Duration::from_secs(600));
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;
    ledger.create_order(&process).await;
    process.wait_until("a handler runs", TIMEOUT, async || !handler.calls().is_empty()).await;

    while !process.escalated().await {
        // A manager that restarts at this moment is not affected.
        let _ = process.bus().panic("/failover-manager", "test");
        process.advance(Duration::from_millis(10)).await;
    }
    let started = Instant::now();
    process.advance(Duration::from_millis(500)).await;
    let written = process.create().await;

    assert!(matches!(written, Err(CommandError::ActorDown)), "{written:?}");
    assert!(started.elapsed() < Duration::from_secs(1), "it was answered after {:?}", started.elapsed());
    assert_eq!(owned_by(&process, "sim").await, 0);
    let consumer = process.bus().snapshot().into_iter().find(|row| row.path == "/consumer-0").expect("it exists");
    assert_eq!(consumer.state, ActorState::Running, "its handler still runs");
    assert_eq!(process.stop().await, 0, "no partition is left");
}

#[tokio::test(start_paused = true)]
async fn root_that_escalates_after_its_relay_failed_frees_partitions_too() {
    let environment = Environment::new();
    let process = environment.start().await;
    process.wait_until("all partitions are taken", TIMEOUT, async || owned_by(&process, "sim").await == 4).await;

    environment.script.times(8, Call::Release, InjectedFault::Unreachable);
    while !process.escalated().await {
        // A publisher that restarts at this moment is not affected.
        let _ = process.bus().panic("/relay/outbox-publisher", "test");
        process.advance(Duration::from_millis(10)).await;
    }
    process.advance(Duration::from_secs(2)).await;

    assert_eq!(owned_by(&process, "sim").await, 0);
    assert_eq!(process.stop().await, 0, "no partition is left");
}

#[tokio::test(start_paused = true)]
async fn another_service_takes_over_at_once_after_a_root_has_escalated() {
    let mut environment = Environment::new();
    environment.wake_hub = Some(WakeHub::default());
    (environment.options.poll_interval, environment.options.heartbeat) =
        (Duration::from_secs(3_600), Duration::from_secs(10));
    let process = environment.start().await;
    let failing = environment.join(&process, "failing").await;
    let each_has_its_share = async || owned_by(&process, "sim").await == 2 && owned_by(&process, "failing").await == 2;
    process.wait_until("each has its share", TIMEOUT, each_has_its_share).await;

    while process.run(tokio::time::timeout(Duration::ZERO, failing.escalated())).await.is_err() {
        // A publisher that restarts at this moment is not affected.
        let _ = failing.bus().panic(PUBLISHER, "test");
        process.advance(Duration::from_millis(10)).await;
    }

    let takes_all = async || owned_by(&process, "sim").await == 4;
    process.wait_until("the other service owns all", Duration::from_secs(1), takes_all).await;
    assert_eq!(process.run(failing.stop(TIMEOUT)).await.partitions_left, 0);
}
