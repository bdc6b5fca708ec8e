//! Brokers that are unreachable, fail and return: no call blocks for long, no record is lost, and publishing resumes within seconds.
mod first_contact;
mod watermark_reads;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka::{DeliveryGuarantee, Kafka, KafkaProbe};
use kit::TestClock;
use kit::wait::{scaled, until, until_answered};
use outbox::topics::WATERMARK_TOPIC;
use ports::Error;
use ports::broker::consumer_groups::{ConsumerGroups, GroupMember};
use ports::broker::topics::TopicReader;
use ports::broker::{Broker, PublishOutcome};
use ports::probe::Probe;

use crate::proxy::Proxy;
use crate::support::{Installation, P0, TIMEOUT, batch, opened, options, servers};

/// Longest call without a reachable broker.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

async fn reopen_session(installation: &Installation) -> ports::partitions::ProducerSessionId {
    let started = Instant::now();
    loop {
        match installation.kafka.open_session(0).await {
            Ok(session) => return session,
            Err(error) => assert!(started.elapsed() < scaled(TIMEOUT), "no session can be opened: {error}"),
        }
    }
}

#[tokio::test]
async fn adapter_opens_without_a_broker_and_creates_the_topics_later() {
    let proxy = Proxy::to(&servers());
    proxy.cut();
    let started = Instant::now();
    let installation = Installation::of(Kafka::open(options(&proxy.address, &TestClock::default())).expect("opened"));
    assert!(started.elapsed() < installation.kafka.options().connect_timeout, "opening does not wait for a broker");

    let refused = installation.kafka.open_session(0).await;
    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    assert!(matches!(installation.kafka.watermark(P0, None).await, Err(Error::Unreachable(_))));
    assert!(matches!(installation.kafka.append(installation.records(&[("a", "1")])).await, Err(Error::Unreachable(_))));
    assert!(installation.kafka.join("g", &["t".into()], 0, 1).await.is_err());
    assert!(KafkaProbe(installation.kafka.clone()).check().await.is_err());
    assert!(started.elapsed() < scaled(CALL_TIMEOUT * 3), "{:?}", started.elapsed());

    proxy.mend();
    let session = reopen_session(&installation).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    let probe = KafkaProbe(installation.kafka.clone());
    until_answered(TIMEOUT, || probe.check()).await.expect("the probe succeeds again");
}

/// As a stopped process does: its system accepts connections.
#[tokio::test]
async fn sessions_open_while_the_first_bootstrap_server_hangs() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let list = format!("{},{}", silent.local_addr().expect("bound"), servers());
    let installation = Installation::of(opened(options(&list, &TestClock::default())).await);

    // Each begins with another server.
    let sessions = [installation.session(0).await, installation.session(1).await];

    for session in sessions {
        installation.fence(&session).await;
    }
}

#[tokio::test]
async fn batch_that_never_reached_a_broker_is_reported_as_unreached() {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    proxy.cut();
    // A failed probe proves that the client has noticed the outage.
    assert!(KafkaProbe(installation.kafka.clone()).check().await.is_err());
    let started = Instant::now();

    let result = installation.publish(&session, batch(P0, 2, installation.records(&[("a", "2")]))).await;

    match result {
        PublishOutcome::Aborted { reached, .. } => assert!(!reached),
        other => panic!("no record can have reached the broker: {other:?}"),
    }
    assert!(started.elapsed() < scaled(CALL_TIMEOUT), "{:?}", started.elapsed());
    proxy.mend();
    let started = Instant::now();
    loop {
        match installation.publish(&session, batch(P0, 2, installation.records(&[("a", "2")]))).await {
            PublishOutcome::Committed(_) => break,
            // The first transaction after the outage may still fail.
            PublishOutcome::Aborted { .. } => {}
            other => panic!("{other:?}"),
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "no batch was committed");
    }
    assert!(started.elapsed() < scaled(Duration::from_secs(5)), "committed after {:?}", started.elapsed());
    assert_eq!(installation.values().await, ["1", "2"]);
}

#[tokio::test]
async fn return_of_the_broker_is_shown_without_a_call() {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;

    forget_former_returns(&installation).await;
    proxy.cut();
    assert!(KafkaProbe(installation.kafka.clone()).check().await.is_err());
    let early = tokio::time::timeout(Duration::from_millis(200), installation.kafka.recovered()).await;
    assert!(early.is_err(), "the broker is still away");
    proxy.mend();

    tokio::time::timeout(scaled(TIMEOUT), installation.kafka.recovered()).await.expect("the broker is back");
}

/// On a busy machine the broker may have been away already, while the installation was opened.
async fn forget_former_returns(installation: &Installation) {
    drop(tokio::time::timeout(Duration::ZERO, installation.kafka.recovered()).await);
}

/// No connection is closed, so no client reports an outage.
#[tokio::test]
async fn broker_that_hangs_and_goes_on_is_shown_as_a_return() {
    let proxy = Proxy::to(&servers());
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;

    forget_former_returns(&installation).await;
    proxy.hold_replies(true);
    // A client may receive during the first one what the proxy has forwarded before: then it shows no silence.
    for _ in 0..2 {
        assert!(KafkaProbe(installation.kafka.clone()).check().await.is_err());
    }
    proxy.hold_replies(false);

    tokio::time::timeout(scaled(TIMEOUT), installation.kafka.recovered()).await.expect("the broker answers again");
}

/// The metadata of a broker that has just started may list no brokers; librdkafka's clients then lose all brokers for good (#5301).
#[tokio::test(flavor = "multi_thread")]
async fn clients_are_replaced_after_metadata_without_brokers() {
    for guarantee in [DeliveryGuarantee::ExactlyOnce, DeliveryGuarantee::AtLeastOnce] {
        let proxy = Proxy::to(&servers());
        let mut options = options(&proxy.address, &TestClock::default());
        options.guarantee = guarantee;
        let installation = Installation::of(opened(options).await);
        let mut session = installation.session(0).await;
        installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
        let mut member = join(&installation).await;
        assert_eq!(received(&installation, &mut member).await, "1");
        assert_eq!(installation.values().await, ["1"]);

        proxy.hide_brokers(true);
        proxy.cut();
        proxy.mend();
        let started = Instant::now();
        while proxy.connections_without_brokers() < CLIENTS {
            let reads = async { tokio::join!(installation.kafka.list(), installation.kafka.watermark(P0, None)) };
            // A client without brokers blocks until its timeout.
            drop(tokio::time::timeout(Duration::from_millis(200), reads).await);
            assert!(
                started.elapsed() < scaled(TIMEOUT),
                "only {} clients received such metadata",
                proxy.connections_without_brokers()
            );
        }
        proxy.hide_brokers(false);

        eventually("the broker results its probe", async || KafkaProbe(installation.kafka.clone()).check().await.ok())
            .await;
        let mut token = 1;
        eventually("a batch is published", async || {
            // As the service does: a session has failed only if other clients reach a broker.
            drop(KafkaProbe(installation.kafka.clone()).check().await);
            token += 1;
            match installation.publish(&session, batch(P0, token, installation.records(&[("a", "2")]))).await {
                PublishOutcome::Committed(_) => return Some(()),
                PublishOutcome::SessionLost(_) => session = reopen_session(&installation).await,
                PublishOutcome::Aborted { .. } => {}
                other => panic!("no record can have reached the broker: {other:?}"),
            }
            None
        })
        .await;
        assert_eq!(received(&installation, &mut member).await, "2");
        eventually("the watermark is read", async || installation.kafka.watermark(P0, None).await.ok()).await;
        eventually("topics are listed", async || installation.kafka.list().await.ok()).await;
        assert_eq!(installation.values().await, ["1", "2"]);
    }
}

/// A client of librdkafka without acknowledgements has failed itself when other clients reach the brokers.
#[tokio::test(flavor = "multi_thread")]
async fn at_least_once_session_with_a_failed_client_ends_and_the_next_one_publishes() {
    let (proxy, installation) = behind_a_proxy(DeliveryGuarantee::AtLeastOnce).await;
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;

    proxy.cut_producers();
    let mut token = 1;
    eventually("the session ends", async || {
        token += 1;
        let unacknowledged = batch(P0, token, installation.records(&[("a", "unacknowledged")]));
        match installation.publish(&session, unacknowledged).await {
            PublishOutcome::SessionLost(_) => Some(()),
            other => unreached(&other),
        }
    })
    .await;

    proxy.mend();
    let next = reopen_session(&installation).await;
    installation.committed(&next, batch(P0, token + 1, installation.records(&[("a", "2")]))).await;
    assert_eq!(installation.values().await, ["1", "2"]);
}

/// A transactional session connects again by itself: an outage costs no session, no fence and no attempt.
#[tokio::test(flavor = "multi_thread")]
async fn transactional_session_survives_the_loss_of_its_connections() {
    let (proxy, installation) = behind_a_proxy(DeliveryGuarantee::ExactlyOnce).await;
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;

    proxy.cut_producers();
    for token in 2..=3 {
        let unsent = batch(P0, token, installation.records(&[("a", "unsent")]));
        assert_eq!(unreached(&installation.publish(&session, unsent).await), None);
    }
    proxy.mend();

    installation.committed(&session, batch(P0, 4, installation.records(&[("a", "2")]))).await;
    assert_eq!(installation.values().await, ["1", "2"]);
}

/// A leader that loses its partition while it waits for the replicas has appended the records, and answers NOT_LEADER_OR_FOLLOWER.
#[tokio::test(flavor = "multi_thread")]
async fn batch_that_one_leader_refused_and_the_next_never_received_is_aborted() {
    let (proxy, installation) = behind_a_proxy(DeliveryGuarantee::ExactlyOnce).await;
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;
    // A transaction that fails as late as this is not repeated.
    proxy.delay_writes(Duration::from_secs(1));
    proxy.move_leaders_away(&["order.events", WATERMARK_TOPIC].map(|topic| installation.kafka.options().topic(topic)));

    let started = Instant::now();
    let result = loop {
        match installation.publish(&session, batch(P0, 2, installation.records(&[("a", "2")]))).await {
            // The transaction ended before its records were sent.
            PublishOutcome::Aborted { reached: false, .. } if started.elapsed() < scaled(TIMEOUT) => {}
            result => break result,
        }
    };

    assert!(
        matches!(result, PublishOutcome::RowsRefused(_) | PublishOutcome::Aborted { reached: true, .. }),
        "{result:?}"
    );
    assert_eq!(other.values().await, ["1"]);
}

async fn behind_a_proxy(guarantee: DeliveryGuarantee) -> (Proxy, Installation) {
    let proxy = Proxy::to(&servers());
    let mut options = options(&proxy.address, &TestClock::default());
    (options.guarantee, options.delivery_timeout) = (guarantee, scaled(Duration::from_secs(4)));
    let installation = Installation::of(opened(options).await);
    (proxy, installation)
}

/// Checks that no record of a batch can have reached the broker.
fn unreached(result: &PublishOutcome) -> Option<()> {
    match result {
        PublishOutcome::Aborted { reached: false, .. } => None,
        other => panic!("a record may have reached the broker: {other:?}"),
    }
}

/// Clients of an adapter in full use: the producer, the group member, and two each for the cluster, the watermarks and the operators' reads.
const CLIENTS: u64 = 8;

async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(done) = attempt().await {
            return done;
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "it never happened: {what}");
    }
}

async fn join(installation: &Installation) -> Arc<dyn GroupMember> {
    let topic = installation.kafka.options().topic("order.events");
    eventually("a member joins", async || installation.kafka.join("g", std::slice::from_ref(&topic), 0, 1).await.ok())
        .await
}

/// The next value that the group receives. Joins again after an error, as the consumer actors do.
async fn received(installation: &Installation, member: &mut Arc<dyn GroupMember>) -> String {
    eventually("a message arrives", async || match member.poll(1, Duration::from_millis(500)).await {
        Ok(messages) => {
            let message = messages.first()?;
            member.acknowledge(std::slice::from_ref(&message.position)).await.ok()?;
            Some(String::from_utf8_lossy(&message.record.value).into_owned())
        }
        Err(_) => {
            *member = join(installation).await;
            None
        }
    })
    .await
}

#[tokio::test]
async fn published_values_and_watermark_agree_after_outages_during_publishing() {
    let proxy = Proxy::to(&servers());
    let mut options = options(&proxy.address, &TestClock::default());
    // A session confirms no abort during an outage, and gives up after this time.
    options.connect_timeout = Duration::from_secs(5);
    let installation = Installation::of(opened(options).await);
    let mut session = installation.session(0).await;
    let (mut token, mut committed) = (0, 0);
    for writes in [1, 6, 13] {
        // Publishes batch after batch until the connection is cut during the writes of one of them.
        proxy.cut_after(writes);
        let is_unknown = loop {
            token += 1;
            let value = token.to_string();
            match installation
                .publish(&session, batch(P0, token, installation.records(&[("k", &value), ("k", &value)])))
                .await
            {
                PublishOutcome::Committed(_) => committed += 1,
                PublishOutcome::RowsRefused(_) | PublishOutcome::Aborted { .. } => break false,
                PublishOutcome::Unknown(_) | PublishOutcome::SessionLost(_) => break true,
                other @ PublishOutcome::Partial { .. } => panic!("{other:?}"),
            }
        };
        proxy.mend();
        if is_unknown {
            let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;
            other.fence(&session).await;
            committed += usize::from(other.watermark(&session, P0).await == Some(token));
        }
        session = reopen_session(&installation).await;
    }

    let values = &installation.by_key().await["k"];
    assert_eq!(values.len(), committed * 2);
    let numbers: Vec<u64> = values.iter().map(|value| value.parse().expect("a number")).collect();
    assert!(numbers.is_sorted() && numbers.chunks(2).all(|pair| pair[0] == pair[1]), "{numbers:?}");
}

/// The former leader reported the end of the watermark partition; the present one does not have the last batch yet.
#[tokio::test(flavor = "multi_thread")]
async fn watermark_is_read_to_the_end_that_a_former_leader_reported() {
    let proxy = Arc::new(Proxy::to(&servers()));
    let installation = Installation::of(opened(options(&proxy.address, &TestClock::default())).await);
    let other = installation.other_instance(DeliveryGuarantee::ExactlyOnce).await;
    let session = other.session(0).await;
    other.committed(&session, batch(P0, 1, other.records(&[("a", "1")]))).await;
    assert_eq!(installation.watermark(&session, P0).await, Some(1));
    let topic = installation.kafka.options().topic(WATERMARK_TOPIC);
    let views = other.topics().await;
    let view = views.iter().find(|view| view.name == topic).expect("the topic exists");
    let end = view.partitions.iter().map(|kept| kept.end as i64).max().expect("it has partitions");

    // The next batch adds its watermark and the marker of its transaction. The third response is the one with the end to read to.
    proxy.raise_end(end, end + 2);
    let (reader, reported, id) = (installation.kafka.clone(), Arc::clone(&proxy), session.clone());
    let read = tokio::spawn(async move {
        loop {
            match reader.watermark(P0, Some(&id)).await {
                // The broker was too slow to report the end while the reader waits.
                Err(Error::Unreachable(_)) if reported.raised_ends() < 3 => {}
                read => return read,
            }
        }
    });
    until("the broker to report the end", TIMEOUT, || (proxy.raised_ends() >= 3).then_some(()));
    other.committed(&session, batch(P0, 2, other.records(&[("a", "2")]))).await;

    let read = read.await.expect("it does not panic");
    assert!(matches!(read, Ok(Some(2)) | Err(Error::Unreachable(_))), "{read:?}");
    assert_eq!(installation.watermark(&session, P0).await, Some(2));
}
