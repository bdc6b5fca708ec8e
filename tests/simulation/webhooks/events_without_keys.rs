//! Records without a key, as other services write them: they have no order, so none waits for a retried one.
use std::time::Duration;

use kit::clock::START_TIME;
use ports::broker::{Broker, NULL_KEY, Record};
use ports::inbox::Inbox;

use super::HOUR;
use super::fixture::{start, webhook};
use crate::support::external_events::{CUSTOMERS, publish};
use crate::support::process::{Process, TIMEOUT};
use crate::support::scripted_endpoint::ScriptedEndpoint;

/// Appends records without a key.
async fn append(process: &Process, values: &[&str]) {
    let record = |value: &&str| Record {
        topic: CUSTOMERS.into(),
        key: "".into(),
        headers: [(NULL_KEY, "")].into_iter().collect(),
        value: value.as_bytes().into(),
        timestamp: START_TIME,
    };
    process.run(process.store.append(values.iter().map(record).collect())).await.expect("appended");
}

#[tokio::test(start_paused = true)]
async fn records_without_a_key_do_not_wait_for_a_retried_one() {
    let endpoint = ScriptedEndpoint::new(|body| Ok(if body == "refused" { 500 } else { 200 }));
    let (_environment, process) = start(&endpoint, true).await;
    publish(&process, "first", None).await;
    process.wait_until("the webhook delivers", TIMEOUT, async || endpoint.accepted() == ["first"]).await;

    append(&process, &["refused", "of its poll"]).await;
    let delivered = async || endpoint.accepted() == ["first", "of its poll"];
    process.wait_until("the next record is delivered", Duration::from_secs(2), delivered).await;
    append(&process, &["of a later poll"]).await;
    let delivered = async || endpoint.accepted() == ["first", "of its poll", "of a later poll"];
    process.wait_until("the later record is delivered", Duration::from_secs(2), delivered).await;

    let retry_route = async || process.store.retry_route(&webhook(1, true).group(), &format!("{CUSTOMERS} ")).await;
    assert_eq!(retry_route().await.expect("retry routes can be read"), None, "none waits behind it");
    endpoint.set(|_| Ok(200));
    process.wait_until("its retry is delivered", 2 * HOUR, async || endpoint.accepted().len() == 4).await;
    process.advance(TIMEOUT).await;
    assert_eq!(endpoint.received().iter().filter(|body| *body == "refused").count(), 2);
    assert_eq!(retry_route().await.expect("retry routes can be read"), None);
}
