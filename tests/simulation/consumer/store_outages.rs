//! A consumer without its store or its group: it joins again after each failure, and a new member has no partitions in its first polls.
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::log_capture::LogCapture;
use crate::support::process::{Process, TIMEOUT};
use crate::support::recording_handler::RecordingHandler;

fn has_no_series(process: &Process) -> bool {
    process.metrics.kafka_consumer_lag.members().is_empty()
}

/// The window in which the alert `ConsumerFails` counts failures.
const ALERT_WINDOW: Duration = Duration::from_secs(120);

/// Longer than a group takes to give the partitions of a member to others.
const TAKE_OVER_TIME: Duration = Duration::from_secs(60);

fn lag_ms(process: &Process) -> f64 {
    process.statistics("backpressure.kafka.lag.ms")[0]
}

#[tokio::test(start_paused = true)]
async fn consumer_that_has_joined_again_is_not_recovered_before_it_processes() {
    let handler = RecordingHandler::new(false, 0, |_| false);
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    (environment.consumes, environment.handlers) = (true, handler.for_all_types());
    environment.empty_polls = 2;
    environment.script.always(Call::Consume, InjectedFault::Unreachable);
    let log = LogCapture::start();
    let process = environment.start().await;
    ledger.create_order(&process).await;
    process.wait_until("the lag is known", TIMEOUT, async || lag_ms(&process) > 0.0).await;

    let mut least = lag_ms(&process);
    process
        .wait_until("it has failed seven times", 2 * TIMEOUT, async || {
            let lag = lag_ms(&process);
            assert!(lag >= least, "the message has waited for {least} ms, not {lag}");
            assert!(!has_no_series(&process), "the series stay");
            least = lag;
            handler.calls().len() == 7
        })
        .await;
    assert_eq!(log.fields("consumer_failing", ["member"]).len(), 1);
    assert_eq!(log.fields("consumer_recovered", ["member"]).len(), 0);
    let attempts: Vec<_> = handler.calls().iter().map(|call| call.at).collect();
    let pauses: Vec<Duration> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.is_sorted() && pauses[5] >= Duration::from_secs(5), "they grow: {pauses:?}");

    environment.script.clear();
    process.wait_until_consumed(TIMEOUT).await;

    let recovered = async || log.fields("consumer_recovered", ["member"]).len() == 1;
    process.wait_until("it has recovered", TIMEOUT, recovered).await;
    process.wait_until("the lag is gone", TIMEOUT, async || lag_ms(&process) == 0.0).await;
    assert_eq!(log.fields("consumer_failing", ["member"]).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn consumer_that_cannot_join_its_group_counts_its_failures() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.consumes = true;
    environment.refuses_members.store(true, Relaxed);
    let process = environment.start().await;
    ledger.create_order(&process).await;
    let failures = || process.metrics.kafka_consumer_poll_failures_total.get();

    for _ in 0..3 {
        let before = failures();
        process.advance(ALERT_WINDOW).await;
        assert!(failures() > before, "the alert sees a failure in each of its windows");
        assert!(has_no_series(&process), "nothing measures the lag");
    }

    environment.refuses_members.store(false, Relaxed);
    process.wait_until_consumed(TIMEOUT).await;
    process.wait_until("the lag is known", TIMEOUT, async || !has_no_series(&process)).await;
    let before = failures();
    process.advance(ALERT_WINDOW).await;
    assert_eq!(failures(), before);
}

/// The group has given its partitions to others, which measure their lag: this consumer must not refuse writes for a lag that it cannot see.
#[tokio::test(start_paused = true)]
async fn lag_of_a_consumer_that_cannot_join_ends_if_others_get_its_partitions() {
    for reassigns in [true, false] {
        let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
        (environment.consumes, environment.empty_polls) = (true, 2);
        environment.reassigns_partitions = reassigns;
        environment.script.always(Call::Consume, InjectedFault::Unreachable);
        let process = environment.start().await;
        ledger.create_order(&process).await;
        process.wait_until("the lag is known", TIMEOUT, async || lag_ms(&process) > 0.0).await;

        process.advance(TAKE_OVER_TIME).await;
        assert!(lag_ms(&process) > 0.0, "it receives its messages, so it has its partitions");
        environment.refuses_members.store(true, Relaxed);
        process.advance(TAKE_OVER_TIME).await;

        let lag = lag_ms(&process);
        assert_eq!(lag == 0.0, reassigns, "{lag} ms; other members get its partitions: {reassigns}");
        environment.script.clear();
        environment.refuses_members.store(false, Relaxed);
        process.wait_until_consumed(TIMEOUT).await;
        process.wait_until("the lag is gone", TIMEOUT, async || lag_ms(&process) == 0.0).await;
    }
}
