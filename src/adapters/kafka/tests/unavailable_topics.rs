//! Topics and topic partitions that take no records: only their own records wait, in the same transaction as those of other topics.
use std::time::{Duration, Instant};

use futures::future::join_all;
use kit::TestClock;
use kit::wait::{scaled, until_accepted};
use ports::broker::{Batch, Broker, PublishOutcome, Record};
use ports::partitions::{PartitionNo, ProducerSessionId, Token};
use ports::{Error, FaultClass};

use crate::proxy::Proxy;
use crate::support::{
    Installation, P0, P1, TIMEOUT, batch, create_topic, delete_topic, is_aborted_for_now, opened, options, servers,
};

/// How long two appends may take on an idle machine: they take milliseconds, and one that waits for the partition takes seconds.
const APPEND_MAX: Duration = Duration::from_secs(3);
/// How long a publication may take on an idle machine: one that waits for a leader takes three seconds.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// By this time after the first attempt, the count of replicas belongs to it.
const COUNTED_MAX: Duration = Duration::from_secs(7);

/// An installation behind a proxy, and the topic of another service.
async fn behind_proxy() -> (Proxy, Installation, String) {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let topic = installation.kafka.options().topic("customers");
    create_topic(&topic, 1, &[]).await;
    // The coordinator of transactions may learn of a new topic later than the client that created it.
    let records = installation.records(&[("k", "0")]);
    let first = || records.iter().map(|record| Record { topic: topic.as_str().into(), ..record.clone() }).collect();
    let started = Instant::now();
    while let Err(error) = installation.append_result(first()).await {
        assert!(started.elapsed() < scaled(TIMEOUT), "{error}");
    }
    (proxy, installation, topic)
}

/// Publishes an event of the installation's own topic and one of another topic in one transaction; returns both results.
async fn publish_both(
    installation: &Installation,
    session: &ProducerSessionId,
    topic: &str,
    (token, value): (Token, &str),
) -> (PublishOutcome, PublishOutcome) {
    let own = installation.records(&[("k", value)]);
    let other = own.iter().map(|record| Record { topic: topic.into(), ..record.clone() }).collect();
    let of = |partition: PartitionNo, records: Vec<Record>| Batch {
        expected_batches: 1,
        ..batch(partition, token, records)
    };
    let mut results = join_all([of(P0, own), of(P1, other)].map(|batch| installation.publish(session, batch))).await;
    let other = results.pop().expect("two results");
    (results.pop().expect("two results"), other)
}

/// Publishes both events, and the installation's own one is committed; returns the result of the other. Begins again after an attempt in which a busy
/// machine did not answer in time.
async fn commit_own(
    installation: &Installation,
    session: &ProducerSessionId,
    topic: &str,
    event: (Token, &str),
) -> PublishOutcome {
    let first = Instant::now();
    loop {
        let started = Instant::now();
        let (own, other) = publish_both(installation, session, topic, event).await;
        if matches!(own, PublishOutcome::Committed(_)) {
            return other;
        }
        let is_late = started.elapsed() > IDLE_MAX && is_aborted_for_now(&own) && is_aborted_for_now(&other);
        assert!(is_late && first.elapsed() < scaled(TIMEOUT), "{own:?}, {other:?}");
    }
}

/// The fault of the only refused record.
fn refusal(published: &PublishOutcome) -> FaultClass {
    match published {
        PublishOutcome::RowsRefused(refused) => refused.first().map(|(_, error)| error.fault()),
        _ => None,
    }
    .unwrap_or_else(|| panic!("a record is refused: {published:?}"))
}

/// Publishes both events, under this token and later ones, where the other topic refuses its own at once: within the longest time of a refusal
/// that waits for nothing. A busy machine may delay some of them. Returns the next token.
async fn refuse_at_once(installation: &Installation, session: &ProducerSessionId, topic: &str, first: Token) -> Token {
    let mut shortest = Duration::MAX;
    for token in first..first + 10 {
        let started = Instant::now();
        let other = commit_own(installation, session, topic, (token, "early")).await;
        assert_eq!(refusal(&other), FaultClass::Transient);
        shortest = shortest.min(started.elapsed());
        if shortest < Duration::from_secs(2) {
            return token + 1;
        }
    }
    panic!("the shortest refusal took {shortest:?}");
}

/// Publishes both events, under this token and later ones, until the other topic takes its own. Returns the next token.
async fn commit_both(installation: &Installation, session: &ProducerSessionId, topic: &str, first: Token) -> Token {
    let (started, before, mut token) = (Instant::now(), installation.values().await.len() as u64, first);
    loop {
        let other = commit_own(installation, session, topic, (token, "later")).await;
        if matches!(other, PublishOutcome::Committed(_)) {
            break;
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "the partition takes records again: {other:?}");
        token += 1;
    }
    let published = installation.values().await.len() as u64;
    assert_eq!(published, before + token - first + 1, "each event once");
    token + 1
}

/// The broker lists its own topics, and refuses transactions that write to them.
#[tokio::test]
async fn event_for_a_topic_of_the_broker_itself_is_refused_alone() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;

    let other = commit_own(&installation, &session, "__transaction_state", (1, "1")).await;

    assert_eq!(
        refusal(&other),
        FaultClass::SemiTransient,
        "it is tried again as often as the rules say, and then parked"
    );
    assert_eq!(installation.values().await, ["1"]);
}

/// The session has read the topic's metadata, so that the coordinator is the first to refuse it.
#[tokio::test]
async fn event_for_a_topic_that_was_deleted_is_refused_alone() {
    let installation = Installation::new().await;
    let session = installation.session(0).await;
    let topic = installation.kafka.options().topic("customers");
    create_topic(&topic, 1, &[]).await;
    let token = commit_both(&installation, &session, &topic, 1).await;
    let before = installation.values().await.len();

    delete_topic(&topic).await;
    let other = commit_own(&installation, &session, &topic, (token, "own")).await;

    assert_eq!(refusal(&other), FaultClass::SemiTransient);
    let values = installation.values().await;
    assert!(values.len() == before + 1 && values.contains(&"own".to_owned()), "{values:?}");
}

#[tokio::test]
async fn partition_without_enough_replicas_blocks_no_other_key() {
    let (proxy, installation, topic) = behind_proxy().await;
    let session = installation.session(0).await;
    proxy.refuse_records_of(Some(&topic));

    for (token, value) in [(1, "1"), (2, "2")] {
        let other = commit_own(&installation, &session, &topic, (token, value)).await;

        assert_eq!(refusal(&other), FaultClass::Transient);
    }

    assert_eq!(installation.values().await, ["1", "2"]);
    proxy.refuse_records_of(None);
    commit_both(&installation, &session, &topic, 3).await;
}

/// The broker cannot end a transaction with such a partition, so the partition never belongs to one.
#[tokio::test]
async fn partition_without_a_leader_blocks_no_other_key() {
    let (proxy, installation, topic) = behind_proxy().await;
    let session = installation.session(0).await;
    proxy.lose_leader_of(Some(&topic));

    for (token, value) in [(1, "1"), (2, "2")] {
        let other = commit_own(&installation, &session, &topic, (token, value)).await;

        assert_eq!(refusal(&other), FaultClass::Transient);
    }

    // The other session neither waits for the partition nor tries it.
    let second = installation.session(1).await;
    let next = refuse_at_once(&installation, &second, &topic, 3).await;
    proxy.lose_leader_of(None);
    commit_both(&installation, &session, &topic, next).await;
}

/// The leader of a partition moves, and its records share their request with those of a partition that has failed before.
#[tokio::test]
async fn partition_with_a_moving_leader_is_awaited_together_with_a_failed_one() {
    let (proxy, installation, topic) = behind_proxy().await;
    let own_topic = installation.kafka.options().topic("order.events");
    let session = installation.session(0).await;
    proxy.refuse_records_of(Some(&topic));
    let other = commit_own(&installation, &session, &topic, (1, "1")).await;
    assert_eq!(refusal(&other), FaultClass::Transient);

    proxy.show_in_sync_replicas();
    let (before, started) = (proxy.refusals(), Instant::now());
    for token in 2.. {
        proxy.move_leader_of(&own_topic);
        let other = commit_own(&installation, &session, &topic, (token, "2")).await;

        assert_eq!(refusal(&other), FaultClass::Transient);
        if proxy.refusals() > before {
            break;
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "the failed partition is tried again");
    }
}

/// No broker returns how many replicas are in sync when the leader refuses the records, which takes three seconds. The next transaction reads it. Each
/// attempt could use up a transactional id, so the partition is not tried again five seconds later.
#[tokio::test]
async fn partition_is_not_tried_again_once_its_replicas_are_counted() {
    let (proxy, installation, topic) = behind_proxy().await;
    let session = installation.session(0).await;
    let (first, mut token) = (Instant::now(), 1);

    let (begun, refusals) = loop {
        proxy.refuse_records_of(None);
        token = commit_both(&installation, &session, &topic, token).await;
        proxy.refuse_records_of(Some(&topic));
        proxy.lose_metadata(true);
        let begun = Instant::now();
        let uncounted = commit_own(&installation, &session, &topic, (token, "early")).await;
        assert_eq!(refusal(&uncounted), FaultClass::Transient);
        proxy.lose_metadata(false);
        let refusals = proxy.refusals();
        let counted = commit_own(&installation, &session, &topic, (token + 1, "early")).await;
        assert_eq!(refusal(&counted), FaultClass::Transient);
        token += 2;
        if begun.elapsed() < COUNTED_MAX {
            break (begun, refusals);
        }
        assert!(first.elapsed() < scaled(TIMEOUT), "the machine is too busy: {:?}", begun.elapsed());
    };
    while begun.elapsed() < COUNTED_MAX * 2 {
        let other = commit_own(&installation, &session, &topic, (token, "early")).await;
        assert_eq!(refusal(&other), FaultClass::Transient);
        assert_eq!(proxy.refusals(), refusals, "it was tried again after {:?}", begun.elapsed());
        token += 1;
    }

    proxy.refuse_records_of(None);
    commit_both(&installation, &session, &topic, token).await;
}

/// The broker aborts the transaction, and cannot end it before the partition has its replicas again. The session is over, and nothing waits for it.
#[tokio::test]
async fn transaction_that_the_broker_cannot_end_ends_only_its_own_session() {
    let (proxy, installation, topic) = behind_proxy().await;
    let other_session = installation.session(1).await;
    proxy.lose_replicas_of(Some(&topic));

    let (started, mut slot) = (Instant::now(), 2);
    let (session, own, other) = loop {
        let session = installation.session(slot).await;
        let (own, other) = publish_both(&installation, &session, &topic, (1, "1")).await;
        // On a busy machine the transaction may end without the broker's answer. Its session may be over then.
        let is_unanswered = matches!(&other, PublishOutcome::Aborted { .. });
        if !is_unanswered || started.elapsed() > scaled(TIMEOUT) {
            break (session, own, other);
        }
        slot += 1;
    };

    assert_eq!(refusal(&other), FaultClass::Transient);
    let is_returned = matches!(&own, PublishOutcome::Aborted { reached: false, .. });
    assert!(is_returned, "{own:?}");
    let late = installation.publish(&session, batch(P0, 2, installation.records(&[("k", "late")]))).await;
    assert!(matches!(late, PublishOutcome::SessionLost(_)), "{late:?}");
    installation.fence(&session).await;
    assert_eq!(installation.watermark(&session, P0).await, None);
    // The partition is not tried again before more of its replicas are in sync. Where a busy machine did not answer how many are, it is tried once
    // more, which ends that session too.
    let (mut session, mut token, mut slots) = (other_session, 3, slot + 1..slot + 4);
    while let (own, PublishOutcome::RowsRefused(_) | PublishOutcome::Aborted { .. } | PublishOutcome::SessionLost(_)) =
        publish_both(&installation, &session, &topic, (token, "early")).await
        && !matches!(own, PublishOutcome::Committed(_))
    {
        let next_slot = slots.next().unwrap_or_else(|| panic!("the partition is tried again and again: {own:?}"));
        (session, token) = (installation.session(next_slot).await, token + 1);
    }
    let next = refuse_at_once(&installation, &session, &topic, token + 1).await;

    proxy.lose_replicas_of(None);
    let session = installation.session(0).await;
    commit_both(&installation, &session, &topic, next).await;
}

/// The session that appends is over after the broker could not end its transaction. The next one has another transactional id, and refuses the records
/// of the partition.
#[tokio::test]
async fn append_to_a_partition_without_replicas_blocks_no_other_append() {
    let (proxy, installation, topic) = behind_proxy().await;
    let own = |value: &str| installation.records(&[("k", value)]);
    let other = || own("other").into_iter().map(|record| Record { topic: topic.as_str().into(), ..record }).collect();
    installation.append(own("1")).await;
    proxy.lose_replicas_of(Some(&topic));
    installation.kafka.append(other()).await.expect_err("it has too few replicas");

    // A busy machine may delay some rounds; an append that waits for the partition would delay all.
    let (mut values, mut shortest) = (vec!["1".to_owned()], Duration::MAX);
    while values.len() < 3 || (values.len() < 8 && shortest > APPEND_MAX) {
        let (started, value) = (Instant::now(), (values.len() + 1).to_string());
        installation.append(own(&value)).await;
        installation.kafka.append(other()).await.expect_err("it is not tried again");
        shortest = shortest.min(started.elapsed());
        values.push(value);
    }
    assert!(shortest < APPEND_MAX, "{shortest:?}");
    assert_eq!(installation.values().await, values);

    // A restart does not know which transactional ids the broker refuses. Concurrent appends wait for each once. On a busy machine the first failure
    // may not show its reason: then the partition was tried twice.
    let mut options = installation.kafka.options().clone();
    options.delivery_timeout = scaled(Duration::from_secs(2));
    let restarted = opened(options).await;
    let blocked_ids = proxy.blocked_transactional_ids();
    assert!(blocked_ids > 0, "the broker cannot end the transaction");
    for _ in 0..blocked_ids {
        let started = Instant::now();
        let results = join_all(["refused"; 3].map(|value| restarted.append(own(value)))).await;
        assert!(results.iter().all(|result| matches!(result, Err(Error::Unreachable(_)))), "{results:?}");
        assert!(started.elapsed() < scaled(Duration::from_secs(4)), "{:?}", started.elapsed());
    }
    until_accepted(TIMEOUT, || restarted.append(own("last"))).await.expect("the next transactional id");
    values.push("last".into());

    proxy.lose_replicas_of(None);
    restarted.append(other()).await.expect("the partition takes records again");
    assert_eq!(installation.values().await, values);
}

/// Whether a record was refused because its partition has no leader: on a busy machine the session may not learn the leader in time.
fn is_leaderless(published: &PublishOutcome) -> bool {
    let PublishOutcome::RowsRefused(refused) = published else { return false };
    refused
        .iter()
        .any(|(_, error)| ["LeaderNotAvailable", "no leader"].iter().any(|text| error.to_string().contains(text)))
}

/// A leader that cannot ask the coordinator about the transaction answers with the code for too few replicas.
#[tokio::test]
async fn topic_with_an_unverified_transaction_is_not_refused_later() {
    let (proxy, installation, topic) = behind_proxy().await;
    let session = installation.session(0).await;
    // On a busy machine the session may not find the leader of a new topic in time.
    let token = commit_both(&installation, &session, &topic, 1).await;
    proxy.fail_verification_of(Some(&topic));

    let (started, mut tokens) = (Instant::now(), token..);
    let mut publish = async |value| {
        let token = tokens.next().expect("there is always another token");
        publish_both(&installation, &session, &topic, (token, value)).await.1
    };
    let failed = loop {
        let failed = publish("1").await;
        if !is_leaderless(&failed) || started.elapsed() > scaled(TIMEOUT) {
            break failed;
        }
    };
    proxy.fail_verification_of(None);
    let started = Instant::now();
    let next = loop {
        match publish("2").await {
            // No record is refused: the broker was too slow.
            PublishOutcome::Aborted { .. } if started.elapsed() < scaled(TIMEOUT) => {}
            next => break next,
        }
    };

    assert!(matches!(failed, PublishOutcome::Aborted { .. }), "the failure is the broker's: {failed:?}");
    assert!(matches!(next, PublishOutcome::Committed(_)), "{next:?}");
}
