//! Timestamps that the broker refuses: more than an hour ahead.
use std::time::Instant;

use kit::TestClock;
use kit::wait::scaled;
use ports::broker::PublishOutcome;
use ports::{Error, FaultClass};

use crate::support::{Installation, P0, TIMEOUT, batch, opened, options, servers};

/// In the year 2096.
const FAR_AHEAD: domain::Timestamp = domain::Timestamp::from_millis(4_000_000_000_000);

#[tokio::test]
async fn event_of_a_clock_that_was_ahead_is_published() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    let mut records = installation.records(&[("k", "1"), ("k", "2"), ("k", "3")]);
    records[1].timestamp = FAR_AHEAD;

    installation.committed(&session, batch(P0, 1, records)).await;

    assert_eq!(installation.by_key().await["k"], ["1", "2", "3"]);
}

#[tokio::test]
async fn instance_with_a_clock_that_is_ahead_tries_its_records_again() {
    let clock = TestClock::default();
    let installation = Installation::of(opened(options(&servers(), &clock)).await);
    let session = installation.session(0).await;
    // The leaders of new topics take no records in their first moment.
    installation.committed(&session, batch(P0, 1, installation.records(&[("k", "1")]))).await;
    clock.set(FAR_AHEAD);
    let mut records = installation.records(&[("k", "1")]);
    records[0].timestamp = FAR_AHEAD;

    let started = Instant::now();
    let errors = loop {
        let result = installation.publish(&session, batch(P0, 2, records.clone())).await;
        let errors: Vec<Error> = match result {
            PublishOutcome::RowsRefused(refused) => refused.into_iter().map(|(_, error)| error).collect(),
            PublishOutcome::Aborted { cause, .. } => vec![cause.error],
            other => panic!("{other:?}"),
        };
        // The broker was too slow to refuse the record.
        let is_late = !errors.is_empty() && errors.iter().all(|error| error.fault() == FaultClass::Transient);
        if !is_late || started.elapsed() > scaled(TIMEOUT) {
            break errors;
        }
    };
    assert!(!errors.is_empty() && errors.iter().all(|error| error.fault() == FaultClass::SemiTransient), "{errors:?}");
}
