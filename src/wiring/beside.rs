//! The configured store and broker, opened beside running services: for looking, and for operators' statements.
use std::sync::Arc;

use app::health::HealthBoard;
use app::operators::dead_letters::DeadLetters;
use app::operators::outbox::Operations;
use embedded::Embedded;
use memory::SystemClock;
use ports::broker::Broker;
use ports::broker::topics::TopicReader;
use ports::clock::Clock;

use super::backends::StorePorts;
use super::start_error::StartError;
use crate::config::{BrokerKind, Config, StoreKind};

/// What operators work with at the command line.
pub struct Beside {
    /// Rows, why, partitions, retry, park.
    pub operations: Operations,
    /// Topics; `None` where no broker is configured.
    pub topics: Option<Arc<dyn TopicReader>>,
    /// Dead letters; `None` where no broker is configured.
    pub dead_letters: Option<DeadLetters>,
}

/// A store beside the services that run on it.
struct Store {
    ports: StorePorts,
    installation: Arc<str>,
    /// The embedded one is a broker, too.
    log: Option<Log>,
}

/// A broker beside the services that publish to it.
struct Log {
    topics: Arc<dyn TopicReader>,
    broker: Arc<dyn Broker>,
}

impl Log {
    fn of<B: TopicReader + Broker + 'static>(broker: B) -> Self {
        let broker = Arc::new(broker);
        Self { topics: broker.clone(), broker }
    }
}

/// Opens the configured store for looking and for operators' statements.
///
/// # Errors
/// It is not there, or cannot be read.
pub async fn beside(config: &Config) -> Result<Beside, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let Store { ports, installation, log } = store(config, &clock).await?;
    let log = match config.broker.kind {
        BrokerKind::Embedded => log,
        BrokerKind::None => None,
        BrokerKind::Kafka => Some(kafka_log(config, &installation)?),
    };
    let StorePorts { outbox, operators, redrives, leases, .. } = ports;
    let topics = log.as_ref().map(|log| Arc::clone(&log.topics));
    let letters =
        |Log { topics, broker }| DeadLetters::new(&config.topic(), topics, broker, redrives, Arc::clone(&clock));
    let dead_letters = log.map(letters);
    let operations = Operations::new(outbox, operators, leases, clock, HealthBoard::default());
    Ok(Beside { operations, topics, dead_letters })
}

async fn store(config: &Config, clock: &Arc<dyn Clock>) -> Result<Store, StartError> {
    match config.store.kind {
        StoreKind::Embedded => {
            let store = Embedded::open_for_operator(&config.store.path, Arc::clone(clock))
                .map_err(|error| StartError::Store(error.to_string()))?;
            let installation = store.installation().into();
            Ok(Store {
                ports: StorePorts::of(&store, super::store::in_memory(clock)),
                installation,
                log: Some(Log::of(store)),
            })
        }
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => {
            let options = super::options::postgres_beside(config);
            let store = postgres::Postgres::open_for_operator(options).await.map_err(super::store::of_postgres)?;
            Ok(Store {
                ports: StorePorts::of(&store, Arc::new(store.clone())),
                installation: store.installation().into(),
                log: None,
            })
        }
        #[cfg(not(feature = "postgres"))]
        StoreKind::Postgres => Err(super::store::not_built("store.kind", "postgres")),
        #[cfg(feature = "redis")]
        StoreKind::Redis => {
            let options = super::options::redis_beside(config);
            let store =
                Box::pin(redis::RedisStore::open_for_operator(options)).await.map_err(super::store::of_redis)?;
            Ok(Store {
                ports: StorePorts::of(&store, Arc::new(store.clone())),
                installation: store.installation().into(),
                log: None,
            })
        }
        #[cfg(not(feature = "redis"))]
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
fn kafka_log(config: &Config, installation: &Arc<str>) -> Result<Log, StartError> {
    // Whoever works beside a service makes no topics.
    Ok(Log::of(kafka(config, installation, false)?))
}

#[cfg(not(feature = "kafka"))]
fn kafka_log(_: &Config, _: &Arc<str>) -> Result<Log, StartError> {
    Err(super::store::not_built("broker.kind", "kafka"))
}

#[cfg(feature = "kafka")]
pub(super) fn kafka(config: &Config, installation: &Arc<str>, create_topics: bool) -> Result<kafka::Kafka, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut options = super::options::kafka(config, &super::options::operator(), installation, &clock);
    options.create_topics = create_topics;
    super::broker::open_kafka(options)
}
