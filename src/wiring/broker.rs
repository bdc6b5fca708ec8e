//! One match arm per broker.
use std::sync::Arc;

use embedded::BrokerProbe;
use ports::clock::Clock;
use ports::partitions::InstanceId;

use super::StartError;
use super::backends::{BrokerPorts, Held, StoreHeld};
use crate::config::{BrokerKind, Config};

/// Opens the configured broker. One that is not there yet is no reason not to start: events wait.
pub(super) async fn open(
    config: &Config,
    instance: &InstanceId,
    clock: &Arc<dyn Clock>,
    held: &Held,
) -> Result<Option<BrokerPorts>, StartError> {
    match (config.broker_kind, &held.store) {
        (BrokerKind::None, _) => Ok(None),
        (BrokerKind::Embedded, StoreHeld::Embedded(store)) => {
            create_topics(config, store).await;
            let log = Arc::new(store.clone());
            Ok(Some(BrokerPorts {
                broker: log.clone(),
                sources: log,
                probe: Arc::new(BrokerProbe(store.clone())),
                // Lanes cost nothing here: one a partition, so that fencing one disturbs no other.
                lanes: config.outbox_partitions,
            }))
        }
        #[cfg(feature = "postgres")]
        (BrokerKind::Embedded, _) => {
            Err(StartError::Config("broker.kind = \"embedded\" needs store.kind = \"embedded\"".into()))
        }
        #[cfg(feature = "kafka")]
        (BrokerKind::Kafka, _) => {
            let options = super::options::kafka(config, instance, &held.installation, clock);
            let kafka = Arc::new(open_kafka(options)?);
            let probe = Arc::new(kafka::BrokerProbe((*kafka).clone()));
            Ok(Some(BrokerPorts { broker: kafka.clone(), sources: kafka, probe, lanes: config.broker_lanes }))
        }
        #[cfg(not(feature = "kafka"))]
        (BrokerKind::Kafka, _) => {
            let _ = (instance, clock);
            Err(super::store::not_built("broker.kind", "kafka"))
        }
    }
}

#[cfg(feature = "kafka")]
pub(super) fn open_kafka(options: kafka::Options) -> Result<kafka::Kafka, StartError> {
    kafka::Kafka::open(options).map_err(|error| StartError::Config(error.to_string()))
}

/// Topics that are missing, so that whoever looks finds them all, also those that nothing was written to yet.
async fn create_topics(config: &Config, store: &embedded::Embedded) {
    if !config.broker_create_topics {
        return;
    }
    let names = app::intake::all_topics(&config.topic());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Err(error) = store.create_topics(&names).await {
        tracing::warn!(event = "topics_not_created", error = %error, "topics are made when they are first used");
    }
}
