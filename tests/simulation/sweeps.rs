//! Sent events expire from the outbox's archive and the broker's log; unsent events never do. Idempotency keys expire before both.
use std::time::Duration;

use app::dispatch::AcceptedEvent;
use domain::Status;
use kit::faults::{Call, InjectedFault};
use ports::broker::topics::TopicReader;

use crate::support::environment::Environment;
use crate::support::external_events::{CUSTOMERS, publish};
use crate::support::ledger::Ledger;
use crate::support::log_capture::LogCapture;
use crate::support::process::{Process, TIMEOUT, TOPIC};

const DAY: Duration = Duration::from_secs(86_400);

async fn records_in_log(process: &Process) -> u64 {
    let views = process.store.list().await.expect("topics can be listed");
    let topic = views.into_iter().find(|view| view.name == TOPIC).expect("the topic exists");
    topic.partitions.iter().map(|kept| kept.end - kept.start).sum()
}

/// The clock jumps, as after a machine's suspension; then the process runs for two minutes.
async fn suspend(process: &Process, time: Duration) {
    process.run(tokio::time::advance(time)).await;
    process.advance(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn archive_and_log_drop_events_a_week_after_they_were_sent() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.consumes = true;
    let process = environment.start().await;
    ledger.create_orders(&process, 20).await;
    process.wait_until_drained(TIMEOUT).await;
    process.advance(Duration::from_secs(5)).await;
    assert_eq!((process.depth().await.sent, records_in_log(&process).await), (20, 20));

    suspend(&process, DAY * 8).await;

    assert_eq!(process.depth().await.sent, 0, "the archive is empty");
    assert_eq!(records_in_log(&process).await, 0, "the log is empty");
}

#[tokio::test(start_paused = true)]
async fn an_unsent_event_never_expires() {
    let (environment, mut ledger) = (Environment::new(), Ledger::default());
    let process = environment.start().await;
    let id = ledger.create_order(&process).await;
    process.wait_until_drained(TIMEOUT).await;
    environment.script.always(Call::Publish, InjectedFault::Unreachable);
    ledger.change_status(&process, id, Status::Processing).await;
    let waiting = ledger.create_orders(&process, 10).await.len() as u64 + 1;

    suspend(&process, DAY * 400).await;
    assert_eq!(process.depth().await.pending, waiting);
    environment.script.clear();
    process.wait_until_drained(TIMEOUT).await;

    assert_eq!(process.depth().await.sent, waiting);
}

/// A sweep deletes a page, and the next page at once while pages are full: its pace is not that of its interval.
#[tokio::test(start_paused = true)]
async fn retention_keeps_up_with_the_relay() {
    let (mut environment, mut ledger) = (Environment::new(), Ledger::default());
    environment.options.sweep_page = 5;
    environment.options.retention = Duration::from_secs(60);
    let process = environment.start().await;

    // Each round writes ten pages, and lasts two intervals of the sweep.
    for round in 0..10 {
        ledger.create_orders(&process, 50).await;
        process.wait_until_drained(TIMEOUT).await;
        process.advance(environment.options.sweep_interval * 2).await;
        let sent = process.depth().await.sent;
        assert!(sent <= 5 * 50, "round {round}: {sent} rows are in the archive, those of at most 80 s");
    }
    process.advance(Duration::from_secs(90)).await;

    assert_eq!(process.depth().await.sent, 0);
}

#[tokio::test(start_paused = true)]
async fn key_that_has_expired_publishes_other_events_and_none_twice() {
    let environment = Environment::new();
    let process = environment.start().await;
    let first = publish(&process, "1", Some("daily")).await;

    suspend(&process, DAY + Duration::from_secs(1)).await;
    let other = publish(&process, "2", Some("daily")).await;
    suspend(&process, DAY + Duration::from_secs(1)).await;
    let repeated = publish(&process, "1", Some("daily")).await;
    process.wait_until_drained(TIMEOUT).await;

    assert_eq!((first.events[0].is_new, other.events[0].is_new), (true, true), "the key is free again");
    assert_eq!(
        (repeated.replayed, repeated.events),
        (false, vec![AcceptedEvent { is_new: false, ..first.events[0] }]),
        "it is in the archive"
    );
    let mut published: Vec<_> = process.records(CUSTOMERS).await.into_iter().map(|sent| sent.record.value).collect();
    published.sort();
    assert_eq!(published, [b"1".as_slice().into(), b"2".as_slice().into()]);
}

#[tokio::test(start_paused = true)]
async fn sweep_that_keeps_failing_is_counted_and_reported_once() {
    let (environment, logs) = (Environment::new(), LogCapture::start());
    let process = environment.start().await;
    let reported = |event: &str| logs.fields(event, ["what"]);
    let failures = || process.metrics.sweep_failures_total.with(["archive"]).get();
    assert_eq!(process.metrics.sweep_failures_total.members().len(), 5, "each sweep has its series from the start");

    environment.script.times(2, Call::SweepArchive, InjectedFault::Unreachable);
    process.advance(environment.options.sweep_interval * 4).await;
    assert_eq!((failures(), reported("sweep_failing").len()), (2, 0), "a short run of failures is counted only");
    environment.script.always(Call::SweepArchive, InjectedFault::Unreachable);
    process.advance(environment.options.sweep_interval * 20).await;
    let during = (reported("sweep_failing"), reported("sweep_recovered").len(), failures() >= 20);
    environment.script.clear();
    process.advance(environment.options.sweep_interval * 3).await;

    assert_eq!(during, (vec![["archive".to_owned()]], 0, true));
    assert_eq!((reported("sweep_failing").len(), reported("sweep_recovered")), (1, vec![["archive".to_owned()]]));
    assert_eq!(process.metrics.sweep_failures_total.with(["inbox"]).get(), 0);
}
