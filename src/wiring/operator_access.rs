//! The configured store and broker, opened for an operator's command. It needs no running service and disturbs none.
use std::sync::Arc;

use app::health::SharedHealth;
use app::operators::dead_letters_by_topic::DeadLettersByTopic;
use app::operators::outbox::OutboxOperations;
use embedded::Embedded;
use memory::SystemClock;
use ports::broker::Broker;
use ports::broker::topics::TopicReader;
use ports::clock::Clock;

use super::backends::StorePorts;
use super::backends::running_tasks::RunningTasks;
use super::start_error::StartError;
use crate::config::{BrokerKind, Config, StoreKind};

/// The use cases behind the operator's commands.
pub struct OperatorAccess {
    /// Lists, explains, retries and parks outbox rows; lists partitions.
    pub operations: OutboxOperations,
    /// Topics; `None` where no broker is configured.
    pub topics: Option<Arc<dyn TopicReader>>,
    /// Dead letters by topic; `None` where no broker is configured.
    pub dead_letters: Option<DeadLettersByTopic>,
}

/// A store that is opened without an instance lease.
struct OperatorStore {
    ports: StorePorts,
    installation: Arc<str>,
    /// The broker of the embedded store; `None` for other stores.
    broker: Option<OperatorBroker>,
}

/// A broker that is opened without a transactional producer.
struct OperatorBroker {
    topics: Arc<dyn TopicReader>,
    broker: Arc<dyn Broker>,
}

impl OperatorBroker {
    fn new<B: TopicReader + Broker + 'static>(broker: B) -> Self {
        let broker = Arc::new(broker);
        Self { topics: broker.clone(), broker }
    }
}

/// Opens the configured store and broker for an operator's command. Acquires no instance lease and no partition, and creates no topic.
///
/// # Errors
/// The store does not exist or cannot be read, or the broker's settings cannot be used.
pub async fn open_for_operator(config: &Config) -> Result<OperatorAccess, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let OperatorStore { ports, installation, broker } = open_store(config, &clock).await?;
    let broker = match config.broker.kind {
        BrokerKind::Embedded => broker,
        BrokerKind::None => None,
        BrokerKind::Kafka => Some(kafka_broker(config, &installation)?),
    };
    let StorePorts { outbox, operators, redrives, leases, .. } = ports;
    let topics = broker.as_ref().map(|broker| Arc::clone(&broker.topics));
    let dead_letters = broker.map(|OperatorBroker { topics, broker }| {
        let spawn = RunningTasks::new().spawner();
        super::handlers::topics::dead_letters(config, (&topics, &broker), (&redrives, &spawn), &clock)
    });
    let operations = OutboxOperations::new(outbox, operators, leases, clock, SharedHealth::default());
    Ok(OperatorAccess { operations, topics, dead_letters })
}

async fn open_store(config: &Config, clock: &Arc<dyn Clock>) -> Result<OperatorStore, StartError> {
    match config.store.kind {
        StoreKind::Embedded => {
            let store = Embedded::open_for_operator(&config.store.path, Arc::clone(clock))
                .map_err(|error| StartError::Store(error.to_string()))?;
            let installation = store.installation().into();
            Ok(OperatorStore {
                ports: StorePorts::new(&store, super::store::memory_idempotency(clock)),
                installation,
                broker: Some(OperatorBroker::new(store)),
            })
        }
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => {
            let options = super::options::postgres_for_operator(config);
            let store =
                postgres::Postgres::open_for_operator(options).await.map_err(super::store::from_postgres_error)?;
            Ok(OperatorStore {
                ports: StorePorts::new(&store, Arc::new(store.clone())),
                installation: store.installation().into(),
                broker: None,
            })
        }
        #[cfg(not(feature = "postgres"))]
        StoreKind::Postgres => Err(super::store::feature_missing("store.kind", "postgres")),
        #[cfg(feature = "redis")]
        StoreKind::Redis => {
            let options = super::options::redis_store_for_operator(config);
            let store = Box::pin(redis::RedisStore::open_for_operator(options))
                .await
                .map_err(super::store::from_redis_error)?;
            Ok(OperatorStore {
                ports: StorePorts::new(&store, Arc::new(store.clone())),
                installation: store.installation().into(),
                broker: None,
            })
        }
        #[cfg(not(feature = "redis"))]
        StoreKind::Redis => Err(super::store::feature_missing("store.kind", "redis")),
    }
}

/// The installation's name, which the store keeps. Kafka's watermarks carry it.
#[cfg(feature = "kafka")]
pub(super) async fn installation(config: &Config) -> Result<Arc<str>, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Ok(open_store(config, &clock).await?.installation)
}

#[cfg(feature = "kafka")]
fn kafka_broker(config: &Config, installation: &Arc<str>) -> Result<OperatorBroker, StartError> {
    Ok(OperatorBroker::new(open_kafka(config, installation, false)?))
}

#[cfg(not(feature = "kafka"))]
fn kafka_broker(_: &Config, _: &Arc<str>) -> Result<OperatorBroker, StartError> {
    Err(super::store::feature_missing("broker.kind", "kafka"))
}

#[cfg(feature = "kafka")]
pub(super) fn open_kafka(
    config: &Config,
    installation: &Arc<str>,
    create_topics: bool,
) -> Result<kafka::Kafka, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut options = super::options::kafka(config, &super::options::operator_instance(), installation, &clock);
    options.create_topics = create_topics;
    super::broker::open_kafka(options)
}
