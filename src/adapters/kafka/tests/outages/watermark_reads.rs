//! Watermarks while the broker is away: the partitions that an instance acquires fail together, and are acquired together afterwards.
use std::time::{Duration, Instant};

use futures::future::join_all;
use kafka::Kafka;
use kit::TestClock;
use kit::wait::{pause, scaled};
use ports::Error;
use ports::broker::Broker;
use ports::partitions::{PartitionNo, Token};

use super::CALL_TIMEOUT;
use crate::proxy::Proxy;
use crate::support::{Installation, P0, opened, options, servers};

/// The partitions that are acquired while a read for another one lasts.
const WAITING: u32 = 7;
/// How long that read has lasted.
const HEAD_START: Duration = Duration::from_secs(1);

type Reading = (Result<Option<Token>, Error>, Instant);

/// Reads the watermark of one partition, and those of the others while that read lasts.
async fn read_all(kafka: &Kafka) -> (Reading, Vec<Reading>) {
    let read = |partition: u32| {
        let kafka = kafka.clone();
        tokio::spawn(async move { (kafka.watermark(PartitionNo(partition), None).await, Instant::now()) })
    };
    let first = read(0);
    pause(HEAD_START);
    let waiting = join_all((1..=WAITING).map(read)).await;
    let unwrap = |reading: Result<Reading, _>| reading.expect("it does not panic");
    (unwrap(first.await), waiting.into_iter().map(unwrap).collect())
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

async fn behind_a_proxy() -> (Proxy, Installation) {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    assert_eq!(installation.present_watermark(P0).await, None);
    (proxy, installation)
}

async fn assert_all_are_read(installation: &Installation) {
    for partition in 0..=WAITING {
        assert_eq!(installation.present_watermark(PartitionNo(partition)).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_wait_for_a_read_of_a_silent_broker_fail_with_it() {
    let (proxy, installation) = behind_a_proxy().await;
    proxy.hold_replies(true);

    let ((first, failed_at), waiting) = read_all(&installation.kafka).await;

    assert!(matches!(first, Err(Error::Unreachable(_))), "{first:?}");
    for (result, ended_at) in waiting {
        assert_eq!(result.map_err(text), first.as_ref().map(|token| *token).map_err(text));
        let later = ended_at.saturating_duration_since(failed_at);
        assert!(later < scaled(Duration::from_secs(1)), "it failed {later:?} after the first");
    }
    proxy.hold_replies(false);
    assert_all_are_read(&installation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watermarks_fail_after_one_timeout_while_every_client_is_cut_off() {
    let (proxy, installation) = behind_a_proxy().await;
    proxy.cut();
    let started = Instant::now();

    let (first, waiting) = read_all(&installation.kafka).await;

    for (result, ended_at) in waiting.into_iter().chain([first]) {
        assert!(matches!(result, Err(Error::Unreachable(_))), "{result:?}");
        assert!(ended_at - started < scaled(CALL_TIMEOUT), "{:?}", ended_at - started);
    }
    proxy.mend();
    assert_all_are_read(&installation).await;
}
