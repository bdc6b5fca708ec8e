//! Deletion of topics that were created only to measure.
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

/// Deletes every topic of an installation: events, retries, dead letters and watermarks. Their records are lost, so call it only for
/// throwaway prefixes. Missing topics are not an error. Idempotent.
///
/// # Errors
/// The broker cannot be reached, or refuses; the error names the first topic that remains.
pub async fn delete_topics(options: &Options) -> Result<(), Error> {
    let action = "deleting topics";
    let mut config = client_config::metadata(options);
    config.set_log_level(RDKafkaLogLevel::Emerg);
    let context = ContactContext(Arc::new(BrokerContact::default()));
    let admin = AdminClient::from_config_and_context(&config, context).map_err(|error| map_err(&error, action))?;
    let names = options.all_topics();
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
