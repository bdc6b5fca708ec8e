//! A consumer without its store: it joins again after each failure, and a new member has no partitions in its first polls.
use std::time::Duration;

use kit::faults::{Call, InjectedFault};

use crate::support::environment::Environment;
use crate::support::ledger::Ledger;
use crate::support::log_capture::LogCapture;
use crate::support::process::{Process, TIMEOUT};
use crate::support::recording_handler::RecordingHandler;

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
            assert!(!process.statistics("kafka_consumer_lag").is_empty(), "the series stay");
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
