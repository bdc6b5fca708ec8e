//! One match arm per broker.
use std::sync::Arc;

use actors::ProducerSlots;
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
    match (config.broker.kind, &held.store) {
        (BrokerKind::None, _) => Ok(None),
        (BrokerKind::Embedded, StoreHeld::Embedded(store)) => {
            create_topics(config, store).await;
            let log = Arc::new(store.clone());
            Ok(Some(BrokerPorts {
                broker: log.clone(),
                sources: log.clone(),
                topics: log,
                probe: Arc::new(BrokerProbe(store.clone())),
                // Lanes cost nothing here: one a partition, so that fencing one disturbs no other.
                lanes: ProducerSlots::Spread(config.outbox.partitions),
            }))
        }
        #[cfg(any(feature = "postgres", feature = "redis"))]
        (BrokerKind::Embedded, _) => {
            Err(StartError::Config("broker.kind = \"embedded\" needs store.kind = \"embedded\"".into()))
        }
        #[cfg(feature = "kafka")]
        (BrokerKind::Kafka, _) => {
            let options = super::options::kafka(config, instance, &held.installation, clock);
            let kafka = Arc::new(open_kafka(options)?);
            let probe = Arc::new(kafka::BrokerProbe((*kafka).clone()));
            let lanes = ProducerSlots::Shared(config.broker.lanes);
            Ok(Some(BrokerPorts { broker: kafka.clone(), sources: kafka.clone(), topics: kafka, probe, lanes }))
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
    #[cfg(not(feature = "kafka-tls"))]
    without_openssl(&options.security)?;
    kafka::Kafka::open(options).map_err(|error| StartError::Config(error.to_string()))
}

/// The client would only say that it does not know the protocol.
#[cfg(all(feature = "kafka", not(feature = "kafka-tls")))]
fn without_openssl(security: &kafka::Security) -> Result<(), StartError> {
    let scram = security.sasl.as_ref().filter(|sasl| sasl.mechanism.starts_with("SCRAM"));
    let asked = match scram {
        _ if security.tls => "broker.tls = true".to_owned(),
        Some(sasl) => format!("broker.sasl.mechanism = \"{}\"", sasl.mechanism),
        None => return Ok(()),
    };
    Err(StartError::Config(format!("{asked}: this program was built without it; build it with --features kafka-tls")))
}

/// Topics that are missing, so that whoever looks finds them all, also those that nothing was written to yet.
async fn create_topics(config: &Config, store: &embedded::Embedded) {
    if !config.broker.create_topics {
        return;
    }
    let names = outbox::topics::all_topics(&config.topic());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Err(error) = store.create_topics(&names).await {
        tracing::warn!(event = "topics_not_created", error = %error, "topics are made when they are first used");
    }
}

#[cfg(all(test, feature = "kafka", not(feature = "kafka-tls")))]
mod tests {
    use kafka::{Sasl, Security};

    use super::without_openssl;

    #[test]
    fn what_needs_openssl_is_refused_with_the_way_to_get_it() {
        let sasl = |mechanism: &str| {
            let sasl = Sasl { mechanism: mechanism.into(), username: "a".into(), password: "b".into() };
            Security { sasl: Some(sasl), ..Security::default() }
        };
        for security in [Security { tls: true, ..Security::default() }, sasl("SCRAM-SHA-512")] {
            let refused = without_openssl(&security).expect_err("it cannot work").to_string();
            assert!(refused.contains("--features kafka-tls") && refused.starts_with("broker."), "{refused}");
        }
        for security in [Security::default(), sasl("PLAIN")] {
            without_openssl(&security).expect("it needs no OpenSSL");
        }
    }
}
