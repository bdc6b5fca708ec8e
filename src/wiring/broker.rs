//! Opens the configured broker, with one match arm per broker.
use std::sync::Arc;

use actors::ProducerSlots;
use embedded::BrokerProbe;
use ports::clock::Clock;
use ports::partitions::InstanceId;

use super::backends::{BackendHandles, BrokerPorts, StoreHandle};
use super::start_error::StartError;
use crate::config::{BrokerKind, Config};

/// Opens the configured broker without connecting to it: while it is unavailable the service runs, and events wait in the outbox.
///
/// # Errors
/// The broker's settings cannot be used, or this program was built without it.
pub(super) async fn open(
    config: &Config,
    instance: &InstanceId,
    clock: &Arc<dyn Clock>,
    handles: &BackendHandles,
) -> Result<Option<BrokerPorts>, StartError> {
    match (config.broker.kind, &handles.store) {
        (BrokerKind::None, _) => Ok(None),
        (BrokerKind::Embedded, StoreHandle::Embedded(store)) => {
            create_topics(config, store).await;
            let log = Arc::new(store.clone());
            Ok(Some(BrokerPorts {
                broker: log.clone(),
                consumer_groups: log.clone(),
                topics: log.clone(),
                log: Some(log),
                probe: Arc::new(BrokerProbe(store.clone())),
                // A producer costs nothing here. With one for each partition, fencing a producer affects no other partition.
                producer_slots: ProducerSlots::Spread(config.outbox.partitions),
            }))
        }
        #[cfg(any(feature = "postgres", feature = "redis"))]
        (BrokerKind::Embedded, _) => {
            Err(StartError::Config("broker.kind = \"embedded\" needs store.kind = \"embedded\"".into()))
        }
        #[cfg(feature = "kafka")]
        (BrokerKind::Kafka, _) => {
            let options = super::options::kafka(config, instance, &handles.installation, clock);
            let kafka = Arc::new(open_kafka(options)?);
            let probe = Arc::new(kafka::KafkaProbe((*kafka).clone()));
            Ok(Some(BrokerPorts {
                broker: kafka.clone(),
                consumer_groups: kafka.clone(),
                topics: kafka,
                log: None,
                probe,
                producer_slots: ProducerSlots::Shared(config.broker.lanes),
            }))
        }
        #[cfg(not(feature = "kafka"))]
        (BrokerKind::Kafka, _) => {
            let _ = (instance, clock);
            Err(super::store::feature_missing("broker.kind", "kafka"))
        }
    }
}

/// Checks the broker's settings with its own parser, and starts nothing.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    match config.broker.kind {
        BrokerKind::None | BrokerKind::Embedded => Ok(()),
        #[cfg(feature = "kafka")]
        BrokerKind::Kafka => {
            let clock: Arc<dyn Clock> = Arc::new(memory::SystemClock::new());
            // The check sends no record, so it needs no installation name.
            let options = super::options::kafka(config, &super::options::operator_instance(), &"".into(), &clock);
            kafka::Kafka::check(&options).map_err(|error| StartError::Config(error.to_string()))
        }
        #[cfg(not(feature = "kafka"))]
        BrokerKind::Kafka => Err(super::store::feature_missing("broker.kind", "kafka")),
    }
}

#[cfg(feature = "kafka")]
pub(super) fn open_kafka(options: kafka::Options) -> Result<kafka::Kafka, StartError> {
    kafka::Kafka::open(options).map_err(|error| StartError::Config(error.to_string()))
}

/// Creates missing topics, so that `topic list` shows all of them before the first record is written.
async fn create_topics(config: &Config, store: &embedded::Embedded) {
    if !config.broker.create_topics {
        return;
    }
    let names = config.all_topics();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Err(error) = store.create_topics(&names).await {
        tracing::warn!(event = "topics_not_created", error = %error, "the topics could not be created; each is created with its first record");
    }
}
