//! Authentication and encryption on a real broker, by both clients of the adapter: its own producer, and librdkafka for all else.
mod permissions;

use std::fmt::Debug;
use std::time::Instant;

use kafka::{Kafka, Sasl, Security};
use kit::TestClock;
use kit::wait::{scaled, until_answered};
use ports::Error;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topics::TopicReader;

use crate::support::listeners::listener;
use crate::support::{Installation, P0, TIMEOUT, batch, options};

const PLAIN: &str = "PLAIN";
/// The user and the password that the broker of the tests knows for PLAIN.
const PLAIN_USER: (&str, &str) = ("posthaste", "plain-secret");

fn credentials(mechanism: &str, (username, password): (&str, &str)) -> Option<Sasl> {
    Some(Sasl { mechanism: mechanism.into(), username: username.into(), password: password.into() })
}

/// A record that was sent in a transaction and one that was sent without are read, also by a member of a group.
async fn assert_publishes_and_consumes(listener_name: &str, security: Security) {
    let installation = Installation::with(|options| {
        (options.bootstrap_servers, options.security) = (listener(listener_name), security);
    })
    .await;

    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    installation.append(installation.records(&[("a", "2")])).await;

    let topic = installation.kafka.options().topic("order.events");
    let group = installation.kafka.options().topic("group");
    let join = || installation.kafka.join(&group, std::slice::from_ref(&topic), 0, 1);
    let member = until_answered(TIMEOUT, join).await.expect("joined");
    let (started, mut values) = (Instant::now(), Vec::new());
    while values.len() < 2 {
        for message in member.poll(10, TIMEOUT).await.expect("polled") {
            values.push(String::from_utf8_lossy(&message.record.value).into_owned());
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "{values:?}");
    }
    assert_eq!(values, ["1", "2"]);
    assert_eq!(installation.values().await, ["1", "2"]);
}

/// Both clients fail, and their errors contain the reason.
async fn assert_refused(listener_name: &str, security: Security, reason: &str) {
    let mut options = options(&listener(listener_name), &TestClock::default());
    options.security = security;
    let kafka = Kafka::open(options).expect("the options are legal");

    assert_fails(reason, || kafka.open_session(0)).await;
    assert_fails(reason, || kafka.ensure_topics(&[])).await;
    assert_fails(reason, || kafka.list()).await;
}

/// The call fails until its error contains the reason: a handshake may last longer than the call, which then reports a time-out.
async fn assert_fails<T: Debug, F: Future<Output = Result<T, Error>>>(reason: &str, call: impl Fn() -> F) {
    let started = Instant::now();
    loop {
        match call().await {
            Err(Error::Unreachable(text)) if text.contains(reason) => return,
            Err(Error::Unreachable(_) | Error::Unknown(_)) if started.elapsed() < scaled(TIMEOUT) => {}
            other => panic!("the error does not contain {reason}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn plain_credentials_are_accepted() {
    let security = Security { sasl: credentials(PLAIN, PLAIN_USER), ..Security::default() };
    assert_publishes_and_consumes("sasl", security).await;
}

#[tokio::test]
async fn a_wrong_password_is_reported_as_such() {
    let security = Security { sasl: credentials(PLAIN, (PLAIN_USER.0, "wrong")), ..Security::default() };
    assert_refused("sasl", security, "uthentication").await;
}

#[cfg(feature = "tls")]
mod encrypted {
    use std::process::Command;

    use super::*;
    use crate::support::listeners::broker_file;

    /// The comma and the equals sign are escaped in SCRAM's messages.
    const SCRAM_USER: (&str, &str) = ("post,haste=", "scram-secret");

    fn encrypted(sasl: Option<Sasl>) -> Security {
        Security { tls: true, ca_file: Some(broker_file("authority.pem")), sasl }
    }

    /// Creates the user with Kafka's own tool, and waits until the broker accepts it.
    async fn create_scram_user(mechanism: &str) {
        let read = |name| std::fs::read_to_string(broker_file(name)).expect("a file of the broker");
        let output = Command::new(read("java").trim())
            .args([
                "-XX:TieredStopAtLevel=1",
                "-cp",
                &format!("{}/*", read("jars").trim()),
                "kafka.admin.ConfigCommand",
            ])
            .args(["--bootstrap-server", &crate::support::servers(), "--alter", "--entity-type", "users"])
            .args(["--entity-name", SCRAM_USER.0])
            .args(["--add-config", &format!("{mechanism}=[iterations=4096,password={}]", SCRAM_USER.1)])
            .output()
            .expect("java runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut options = options(&listener("tls"), &TestClock::default());
        options.security = encrypted(credentials(mechanism, SCRAM_USER));
        let kafka = Kafka::open(options).expect("the options are legal");
        let started = Instant::now();
        while let Err(error) = kafka.open_session(0).await {
            assert!(started.elapsed() < scaled(TIMEOUT), "{error}");
        }
    }

    #[tokio::test]
    async fn scram_credentials_are_accepted_over_tls_and_without() {
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            create_scram_user(mechanism).await;
            assert_publishes_and_consumes("tls", encrypted(credentials(mechanism, SCRAM_USER))).await;
        }
        let security = Security { sasl: credentials("SCRAM-SHA-512", SCRAM_USER), ..Security::default() };
        assert_publishes_and_consumes("sasl", security).await;
    }

    #[tokio::test]
    async fn an_unknown_scram_user_is_refused() {
        assert_refused("tls", encrypted(credentials("SCRAM-SHA-512", ("unknown", "any"))), "uthentication").await;
    }

    #[tokio::test]
    async fn plain_credentials_are_accepted_over_tls() {
        assert_publishes_and_consumes("tls", encrypted(credentials(PLAIN, PLAIN_USER))).await;
    }

    #[tokio::test]
    async fn a_certificate_of_an_unknown_authority_is_refused() {
        let security = Security { ca_file: None, ..encrypted(credentials(PLAIN, PLAIN_USER)) };
        assert_refused("tls", security, "ertificate").await;
    }
}
