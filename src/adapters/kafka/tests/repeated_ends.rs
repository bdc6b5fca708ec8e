//! Requests that end a transaction and are sent again, because their response is lost: the first one may still arrive.
use kit::TestClock;
use ports::broker::{Batch, PublishOutcome};
use ports::partitions::Token;

use crate::proxy::{EndFault, Proxy};
use crate::support::{Installation, P0, batch, noise, opened, options, servers};

/// Two records of this size fill a Produce request, so that three need two requests.
const VALUE_BYTES: usize = 45_000;

async fn behind_proxy() -> (Proxy, Installation) {
    let proxy = Proxy::to(&servers());
    let options = kafka::Options { record_bytes_max: VALUE_BYTES, ..options(&proxy.address, &TestClock::default()) };
    (proxy, Installation::of(opened(options).await))
}

/// A batch of three records with these values, which takes two Produce requests.
fn of_two_rounds(installation: &Installation, token: Token, values: &[String; 3]) -> Batch {
    batch(P0, token, values.iter().map(|value| installation.factory.record("k", value)).collect())
}

fn three_values() -> [String; 3] {
    ["a", "b", "c"].map(|name| format!("{name}{}", noise(VALUE_BYTES - 1)))
}

#[tokio::test]
async fn commit_with_a_lost_response_is_repeated_and_done_once() {
    let (proxy, installation) = behind_proxy().await;
    let session = installation.session(0).await;
    proxy.fail_end(EndFault::LostResponse);

    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    installation.committed(&session, batch(P0, 2, installation.records(&[("a", "2")]))).await;

    assert_eq!(installation.by_key().await["a"], ["1", "2"]);
    assert_eq!(installation.watermark(&session, P0).await, Some(2));
}

/// The connection breaks, and the broker processes the request after it has answered the repetition.
#[tokio::test]
async fn late_commit_does_not_commit_a_part_of_the_next_transaction() {
    let (proxy, installation) = behind_proxy().await;
    let session = installation.session(0).await;
    let values = three_values();
    proxy.fail_end(EndFault::Late { before_write: 2 });
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;

    installation.committed(&session, of_two_rounds(&installation, 2, &values)).await;

    assert!(proxy.late_end_code().is_some_and(|code| code != 0), "{:?}", proxy.late_end_code());
    assert_eq!(installation.by_key().await["k"], values);
    assert_eq!(installation.watermark(&session, P0).await, Some(2));
}

#[tokio::test]
async fn late_commit_of_a_registration_does_not_commit_a_part_of_the_first_batch() {
    let (proxy, installation) = behind_proxy().await;
    let values = three_values();
    proxy.fail_end(EndFault::Late { before_write: 2 });
    let session = installation.session(0).await;

    installation.committed(&session, of_two_rounds(&installation, 1, &values)).await;

    assert!(proxy.late_end_code().is_some_and(|code| code != 0), "{:?}", proxy.late_end_code());
    assert_eq!(installation.by_key().await["k"], values);
}

/// The producer itself causes no such commit; whatever does, a confirmed abort would send the records again.
#[tokio::test]
async fn transaction_that_was_committed_before_its_abort_is_not_reported_as_aborted() {
    let (proxy, installation) = behind_proxy().await;
    let session = installation.session(0).await;
    let values = three_values();
    proxy.fail_end(EndFault::Repeated { before_write: 2 });
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;

    let result = installation.publish(&session, of_two_rounds(&installation, 2, &values)).await;

    assert_eq!(proxy.late_end_code(), Some(0), "the broker has committed the first round");
    assert!(matches!(result, PublishOutcome::Unknown(_)), "{result:?}");
    assert_eq!(installation.by_key().await["k"], values[..2]);
}
