//! Deletes the topics of a throwaway installation, after a benchmark or a chaos run.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::connection::broker_contact::{BrokerContact, ContactContext};
use crate::connection::client_config;
use crate::error::{map_code, map_err};
use crate::options::Options;

/// Longest wait for the controller to accept the deletion; the brokers delete the files later.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);

/// Deletes the topics of a throwaway installation: events, retries, dead letters and watermarks. Their records are lost. Topics whose names do
/// not begin with the installation's prefix belong to others and stay. Missing topics are not an error. Idempotent.
///
/// # Errors
/// The installation has no prefix, the broker cannot be reached, or it refuses; the error names the first topic that remains.
pub async fn delete_topics(options: &Options) -> Result<(), Error> {
    let action = "deleting topics";
    let mut config = client_config::metadata(options);
    config.set_log_level(RDKafkaLogLevel::Emerg);
    let context = ContactContext(Arc::new(BrokerContact::default()));
    let admin = AdminClient::from_config_and_context(&config, context).map_err(|error| map_err(&error, action))?;
    let names = prefixed_topics(options)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let limits = AdminOptions::new().operation_timeout(Some(DELETE_TIMEOUT)).request_timeout(Some(DELETE_TIMEOUT));
    let results = admin.delete_topics(&names, &limits).await.map_err(|error| map_err(&error, action))?;
    for result in results {
        match result {
            Ok(_) | Err((_, Code::UnknownTopicOrPartition | Code::UnknownTopic)) => {}
            Err((name, code)) => return Err(map_code(code, format!("deleting topic {name}: {code}"))),
        }
    }
    Ok(())
}

/// The installation's topics that begin with its prefix: the additional topics have their full names, with another prefix or none.
fn prefixed_topics(options: &Options) -> Result<Vec<String>, Error> {
    let prefix = options.topic_prefix.as_str();
    if prefix.is_empty() {
        return Err(Error::Rejected("topics are deleted only where they have a prefix of their own".into()));
    }
    Ok(options.all_topics().into_iter().filter(|name| name.starts_with(prefix)).collect())
}

#[cfg(test)]
mod tests {
    use kit::TestClock;
    use ports::partitions::InstanceId;

    use super::*;

    fn options(prefix: &str) -> Options {
        let mut options =
            Options::new("none", "installation", InstanceId("one".into()), Arc::new(TestClock::default()));
        options.topic_prefix = prefix.into();
        options.additional_topics = vec!["customers".into(), "invoices-dlt".into(), "bench_2.order.events".into()];
        options
    }

    #[test]
    fn topics_without_the_throwaway_prefix_are_never_deleted() {
        let names = prefixed_topics(&options("bench_1.")).expect("a prefix");

        assert!(names.iter().all(|name| name.starts_with("bench_1.")), "{names:?}");
        assert_eq!(names.len(), options("bench_1.").own_topics().len(), "all of its own");
    }

    #[test]
    fn installation_without_a_prefix_deletes_nothing() {
        assert!(matches!(prefixed_topics(&options("")), Err(Error::Rejected(_))));
    }
}
