//! The configured store and broker, opened beside running services: for looking, and for operators' statements.
use std::sync::Arc;

use app::operate::Operations;
use app::vitals::Vitals;
use embedded::{Embedded, SystemClock};
use ports::clock::Clock;
use ports::topics::Topics;

use super::StartError;
use super::backends::StorePorts;
use crate::config::{BrokerKind, Config, StoreKind};

/// What operators work with at the command line.
pub struct Beside {
    /// Rows, why, partitions, retry, park.
    pub operations: Operations,
    /// Topics; `None` where no broker is configured.
    pub topics: Option<Arc<dyn Topics>>,
}

/// A store beside the services that run on it.
struct Store {
    ports: StorePorts,
    installation: Arc<str>,
    /// The embedded one has topics of its own.
    topics: Option<Arc<dyn Topics>>,
}

/// Opens the configured store for looking and for operators' statements.
///
/// # Errors
/// It is not there, or cannot be read.
pub async fn beside(config: &Config) -> Result<Beside, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let Store { ports, installation, topics } = store(config, &clock).await?;
    let topics = match config.broker_kind {
        BrokerKind::Embedded => topics,
        BrokerKind::None => None,
        BrokerKind::Kafka => Some(kafka_topics(config, &installation)?),
    };
    let StorePorts { outbox, operators, leases, .. } = ports;
    let operations = Operations::new(outbox, operators, leases, clock, Vitals::default());
    Ok(Beside { operations, topics })
}

async fn store(config: &Config, clock: &Arc<dyn Clock>) -> Result<Store, StartError> {
    match config.store_kind {
        StoreKind::Embedded => {
            let store = Embedded::open_beside(&config.store_path, Arc::clone(clock))
                .map_err(|error| StartError::Store(error.to_string()))?;
            let installation = store.installation().into();
            Ok(Store { ports: StorePorts::of(&store), installation, topics: Some(Arc::new(store)) })
        }
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => {
            let options = super::options::postgres_beside(config);
            let store = postgres::Postgres::open_beside(options).await.map_err(super::store::of_postgres)?;
            Ok(Store { ports: StorePorts::of(&store), installation: store.installation().into(), topics: None })
        }
        #[cfg(not(feature = "postgres"))]
        StoreKind::Postgres => Err(super::store::not_built("store.kind", "postgres")),
        StoreKind::Redis => Err(super::store::not_built("store.kind", "redis")),
    }
}

/// The installation's name.
#[cfg(feature = "kafka")]
pub(super) async fn installation(config: &Config) -> Result<Arc<str>, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Ok(store(config, &clock).await?.installation)
}

#[cfg(feature = "kafka")]
fn kafka_topics(config: &Config, installation: &Arc<str>) -> Result<Arc<dyn Topics>, StartError> {
    // Whoever looks makes nothing.
    Ok(Arc::new(kafka(config, installation, false)?))
}

#[cfg(not(feature = "kafka"))]
fn kafka_topics(_: &Config, _: &Arc<str>) -> Result<Arc<dyn Topics>, StartError> {
    Err(super::store::not_built("broker.kind", "kafka"))
}

#[cfg(feature = "kafka")]
pub(super) fn kafka(config: &Config, installation: &Arc<str>, create_topics: bool) -> Result<kafka::Kafka, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut options = super::options::kafka(config, &super::options::operator(), installation, &clock);
    options.create_topics = create_topics;
    super::broker::open_kafka(options)
}
