//! The Kafka adapter: opened without waiting for a broker, shared by clones, closed when the last clone is dropped.
use std::sync::Arc;

use parking_lot::Mutex;
use ports::Error;

use crate::cluster::replicas::Replicas;
use crate::cluster::watcher::{BrokerWatcher, ClusterRequest};
use crate::connection::broker_contact::BrokerContact;
use crate::connection::client_config;
use crate::connection::open_error::KafkaOpenError;
use crate::options::Options;
use crate::producer::registry::SessionRegistry;
use crate::producer::registry::append_session::AppendSession;
use crate::protocol::settings::ConnectionSettings;
use crate::topics::query_thread::QueryThread;

/// Apache Kafka as the broker. Clones share one set of connections.
#[derive(Clone)]
pub struct Kafka {
    pub(crate) inner: Arc<KafkaInner>,
}

pub(crate) struct KafkaInner {
    pub(crate) options: Arc<Options>,
    pub(crate) contact: Arc<BrokerContact>,
    pub(crate) sessions: SessionRegistry,
    /// The session that appends records without a watermark; opened by the first append.
    pub(crate) append_session: Arc<tokio::sync::Mutex<AppendSession>>,
    pub(crate) watcher: BrokerWatcher,
    /// Reads watermarks. Separate from `topic_queries`: an operator's read of a long topic must not delay an acquisition.
    pub(crate) watermark_queries: QueryThread,
    /// Reads topics for operators; started by the first such read.
    topic_queries: Mutex<Option<Arc<QueryThread>>>,
}

impl Kafka {
    /// Opens the adapter without connecting. Until a broker is reached, every call returns [`Error::Unreachable`]. When one is first
    /// reached, the adapter creates and checks the installation's topics.
    ///
    /// # Errors
    /// Only options that can never work, or a thread that cannot be started.
    pub fn open(options: Options) -> Result<Self, KafkaOpenError> {
        let settings = parse(&options)?;
        let options = Arc::new(options);
        let contact = Arc::new(BrokerContact::default());
        let inner = KafkaInner {
            sessions: SessionRegistry::new(Arc::clone(&options), settings, Arc::clone(&contact)),
            append_session: Arc::default(),
            watcher: BrokerWatcher::start(Arc::clone(&options), Arc::clone(&contact))?,
            watermark_queries: QueryThread::start(Arc::clone(&options), Arc::clone(&contact), "kafka-watermarks")?,
            topic_queries: Mutex::default(),
            options,
            contact,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Checks the options as [`Kafka::open`] does, and starts nothing.
    ///
    /// # Errors
    /// [`KafkaOpenError::Options`] names the option that cannot be used.
    pub fn check(options: &Options) -> Result<(), KafkaOpenError> {
        parse(options).map(drop)
    }

    /// The options that the adapter was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Creates missing topics with the partitions and the retention of the options, and checks existing ones. `names` are full names; an
    /// empty list means all topics of the installation. Idempotent. A service need not call it: the adapter does so when it first
    /// reaches a broker.
    ///
    /// # Errors
    /// [`Error::Broken`] names the topic and the remedy when a topic is missing and may not be created, or has the wrong settings.
    pub async fn ensure_topics(&self, names: &[&str]) -> Result<(), Error> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.inner.watcher.request(|reply| ClusterRequest::EnsureTopics { names, reply }).await
    }

    /// Full names of the topics that this adapter has created since it was opened.
    pub fn created_topics(&self) -> Vec<String> {
        self.inner.watcher.created_topics()
    }

    /// The number of brokers, and the replication of each topic of the installation. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when no broker answers.
    pub async fn replicas(&self) -> Result<Replicas, Error> {
        self.inner.watcher.request(|reply| ClusterRequest::Replicas { reply }).await
    }
}

/// The settings of connections from the options, if they can be used.
fn parse(options: &Options) -> Result<Arc<ConnectionSettings>, KafkaOpenError> {
    // Without this call OpenSSL frees its state when `main` returns, while threads of librdkafka still use it: the process ends with SIGSEGV.
    #[cfg(feature = "tls")]
    openssl_sys::init();
    let config = client_config::metadata(options);
    config.create_native_config().map_err(|error| KafkaOpenError::Options(error.to_string()))?;
    ConnectionSettings::new(options).map_err(KafkaOpenError::Options)
}

impl KafkaInner {
    /// The thread that reads topics for operators. The first call starts it, because most services never need its connections.
    pub(crate) fn topic_queries(&self) -> Result<Arc<QueryThread>, Error> {
        let mut running = self.topic_queries.lock();
        if let Some(thread) = &*running {
            return Ok(Arc::clone(thread));
        }
        let thread = QueryThread::start(Arc::clone(&self.options), Arc::clone(&self.contact), "kafka-topics")
            .map_err(|error| Error::Overloaded(error.to_string()))?;
        Ok(Arc::clone(running.insert(Arc::new(thread))))
    }
}
