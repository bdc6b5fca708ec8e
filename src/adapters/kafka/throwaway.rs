//! Topics made for measuring, taken away again.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::contact::{Contact, Ears};
use crate::options::Options;
use crate::{client, error};

/// A broker that is there begins to delete at once; the rest is its own business.
const DELETE_WITHIN: Duration = Duration::from_secs(10);

/// Deletes every topic of an installation: events, retries, dead letters and watermarks. Only for throwaway prefixes: what is lost is
/// lost. Topics that are not there are no error; may be called twice.
///
/// # Errors
/// The broker cannot be reached, or forbids it; names the first topic that stays.
pub async fn delete_topics(options: &Options) -> Result<(), Error> {
    let mut config = client::asking(options);
    config.set_log_level(RDKafkaLogLevel::Emerg);
    let admin = AdminClient::from_config_and_context(&config, Ears(Arc::new(Contact::default())));
    let admin = admin.map_err(|error| error::of(&error, "deleting topics"))?;
    let names: Vec<String> = options.event_topics().into_iter().chain([options.watermarks()]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let limits = AdminOptions::new().operation_timeout(Some(DELETE_WITHIN)).request_timeout(Some(DELETE_WITHIN));
    let answers = admin.delete_topics(&names, &limits).await.map_err(|error| error::of(&error, "deleting topics"))?;
    for answer in answers {
        match answer {
            Ok(_) | Err((_, Code::UnknownTopicOrPartition | Code::UnknownTopic)) => {}
            Err((name, code)) => return Err(error::of_code(code, format!("deleting topic {name}: {code}"))),
        }
    }
    Ok(())
}
