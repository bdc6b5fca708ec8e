//! A user of Kafka that lacks a permission: the error names it, and the adapter continues once it is granted.
use std::time::Instant;

use kafka::{Kafka, Sasl, Security};
use kit::wait::{scaled, until_answered};
use ports::Error;
use ports::broker::topics::TopicReader;

use crate::support::acls::{AclOperation, AclResource, permit};
use crate::support::listeners::listener;
use crate::support::{Installation, P0, TIMEOUT, batch};

/// The user whose permissions these tests restrict, with its password.
const LIMITED: (&str, &str) = ("limited", "limited-secret");

/// An installation of this user with its topics.
async fn installation() -> Installation {
    let sasl = Sasl { mechanism: "PLAIN".into(), username: LIMITED.0.into(), password: LIMITED.1.into() };
    let security = Security { sasl: Some(sasl), ..Security::default() };
    Installation::with(|options| (options.bootstrap_servers, options.security) = (listener("sasl"), security)).await
}

#[tokio::test]
async fn missing_permission_to_read_settings_is_named() {
    let installation = installation().await;
    let topic = installation.kafka.options().topic("relay-watermarks");
    let permitted = [AclOperation::Read, AclOperation::Write, AclOperation::Describe];
    permitted.into_iter().for_each(|operation| permit(LIMITED.0, AclResource::Topic(&topic), operation));

    // The brokers apply permissions a moment after they were granted, and may be too slow to answer.
    let text = repeated(&installation, |result| match result {
        Err(Error::Broken(text)) => Some(text),
        Ok(()) | Err(_) => None,
    })
    .await;
    assert!(text.contains("DescribeConfigs") && text.contains(&topic), "{text}");

    permit(LIMITED.0, AclResource::Topic(&topic), AclOperation::DescribeConfigs);
    repeated(&installation, Result::ok).await;
}

#[tokio::test]
async fn topics_are_read_without_permission_for_any_group() {
    let installation = installation().await;
    let session = installation.session(0).await;
    installation.committed(&session, batch(P0, 1, installation.records(&[("a", "1")]))).await;
    permit("another", AclResource::Groups(&installation.kafka.options().topic_prefix), AclOperation::Read);
    let topic = installation.kafka.options().topic("order.events");
    let started = Instant::now();
    // The broker refuses groups a moment after the permission was granted.
    while installation.kafka.group_offsets("group", &topic).await.is_ok() {
        assert!(started.elapsed() < scaled(TIMEOUT), "the group is not refused");
    }

    // A service that starts, or a command.
    let reader = Kafka::open(installation.kafka.options().clone()).expect("the options are legal");
    for partition in 0..2 {
        until_answered(TIMEOUT, || reader.read(&topic, partition, 0, 10)).await.expect("read");
    }
}

/// Opens the installation again, as a service that starts, until the result of its first check is the expected one.
async fn repeated<T>(installation: &Installation, expected: impl Fn(Result<(), Error>) -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        let kafka = Kafka::open(installation.kafka.options().clone()).expect("the options are legal");
        let result = kafka.ensure_topics(&[]).await;
        let text = format!("{result:?}");
        if let Some(value) = expected(result) {
            return value;
        }
        assert!(started.elapsed() < scaled(TIMEOUT), "{text}");
    }
}
