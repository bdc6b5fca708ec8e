//! Requests about the cluster: metadata, settings, the controller. The installation's topics are in `topic_creation`.
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ports::Error;
use ports::probe::ProbeReport;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{IsError, KafkaError, KafkaResult, RDKafkaErrorCode as Code};

use crate::cluster::existing_topics::ExistingTopics;
use crate::cluster::partition_warnings::PartitionWarnings;
use crate::cluster::replicas::Replicas;
use crate::connection::broker_contact::{BrokerContact, ContactContext};
use crate::connection::client_config;
use crate::error::map_code;
use crate::options::Options;

/// A reachable broker answers within milliseconds, and a probe may take two seconds at most.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Clients for metadata and administration, and what they need.
pub(crate) struct ClusterClient {
    pub(crate) options: Arc<Options>,
    pub(crate) partition_warnings: PartitionWarnings,
    pub(crate) contact: Arc<BrokerContact>,
    clients: Clients,
    created: CreatedTopics,
    existing_topics: Mutex<ExistingTopics>,
}

/// The name of a topic that was created, or of one that was refused with the reason.
pub(crate) type CreationResult = Result<String, (String, Code)>;

/// Full names of the topics that a client has created, in the order of their creation.
pub(crate) type CreatedTopics = Arc<Mutex<Vec<String>>>;

struct Clients {
    /// A consumer, because a metadata request of a producer may create the topic.
    metadata: BaseConsumer<ContactContext>,
    admin: AdminClient<ContactContext>,
}

impl Clients {
    fn new(options: &Options, contact: &Arc<BrokerContact>) -> KafkaResult<Self> {
        let config = client_config::metadata(options);
        let metadata = BaseConsumer::from_config_and_context(&config, ContactContext(Arc::clone(contact)))?;
        // rdkafka's admin client never reads its log queue, so librdkafka must not fill it.
        let mut silent = config;
        silent.set_log_level(RDKafkaLogLevel::Emerg);
        let admin = AdminClient::from_config_and_context(&silent, ContactContext(Arc::clone(contact)))?;
        Ok(Self { metadata, admin })
    }
}

/// A topic's partitions as the cluster's metadata describes them.
pub(crate) struct TopicLayout {
    pub(crate) partitions: usize,
    /// Replicas of the least replicated partition.
    pub(crate) replicas: usize,
    /// Whether every partition has a leader.
    pub(crate) has_leaders: bool,
}

impl ClusterClient {
    pub(crate) fn new(options: Arc<Options>, contact: Arc<BrokerContact>) -> KafkaResult<Self> {
        let clients = Clients::new(&options, &contact)?;
        let (partition_warnings, created) = (PartitionWarnings::default(), CreatedTopics::default());
        Ok(Self { options, contact, clients, created, partition_warnings, existing_topics: Mutex::default() })
    }

    /// The topics that this client has created so far, also while it goes on.
    pub(crate) fn created_topics(&self) -> CreatedTopics {
        Arc::clone(&self.created)
    }

    pub(crate) fn record_created(&self, topic: &str) {
        self.created.lock().push(topic.to_owned());
    }

    /// Replaces both clients by new ones.
    pub(crate) fn replace_clients(&mut self) -> KafkaResult<()> {
        self.clients = Clients::new(&self.options, &self.contact)?;
        Ok(())
    }

    /// Serves the callbacks (logs and errors) that librdkafka has queued, without waiting.
    pub(crate) fn serve_events(&self) {
        while self.clients.metadata.poll(Duration::ZERO).is_some() {}
    }

    fn map_err(&self, error: &KafkaError, action: &str) -> Error {
        self.serve_events();
        self.contact.map_err(error, action)
    }

    /// The replication of the installation's topics that exist.
    pub(crate) fn replicas(&self) -> Result<Replicas, Error> {
        let mut topics = Vec::new();
        for name in self.options.all_topics() {
            if let Some(layout) = self.topic_layout(&name)? {
                topics.push((name, layout.replicas));
            }
        }
        Ok(Replicas { brokers: self.broker_ids()?.len(), topics })
    }

    /// Checks metadata, the leaders of the event and watermark topics, and the controller. [`DeletionChecks`] finds the other topics that are missing:
    /// with a request for each of them, the probe of a slow broker would take longer than it may.
    ///
    /// [`DeletionChecks`]: crate::cluster::deleted_topics::DeletionChecks
    pub(crate) async fn probe(&self) -> Result<ProbeReport, Error> {
        let started = Instant::now();
        for name in self.options.led_topics() {
            match self.topic_layout(&name)? {
                Some(layout) if layout.has_leaders => {}
                Some(_) => return Err(Error::Unreachable(format!("a partition of topic {name} has no leader"))),
                None => return Err(Error::Broken(format!("topic {name} is missing"))),
            }
        }
        self.check_controller(&self.options.first_topic()).await?;
        Ok(ProbeReport { latency: started.elapsed() })
    }

    /// Asks the controller to validate the creation of a topic that exists: its refusal proves that it responds.
    async fn check_controller(&self, topic: &str) -> Result<(), Error> {
        let existing = [NewTopic::new(topic, 1, TopicReplication::Fixed(1))];
        let options = AdminOptions::new().validate_only(true).request_timeout(Some(REQUEST_TIMEOUT));
        match self.create_topics(&existing, &options, "asking the controller").await?.pop() {
            None | Some(Ok(_)) => Ok(()),
            Some(Err((
                _,
                Code::TopicAlreadyExists | Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed,
            ))) => Ok(()),
            Some(Err((_, code))) => Err(map_code(code, format!("asking the controller: {code}"))),
        }
    }

    /// The ids of the registered brokers.
    pub(crate) fn broker_ids(&self) -> Result<Vec<i32>, Error> {
        let metadata = self.clients.metadata.fetch_metadata(Some(&self.options.first_topic()), REQUEST_TIMEOUT);
        let metadata = metadata.map_err(|error| self.map_err(&error, "reading the list of brokers"))?;
        Ok(metadata.brokers().iter().map(rdkafka::metadata::MetadataBroker::id).collect())
    }

    /// A topic's layout; `None` when the topic does not exist. Where it was deleted, makes its members join again: otherwise they
    /// would continue at the offsets of the deleted topic once any instance has created it.
    pub(crate) fn topic_layout(&self, name: &str) -> Result<Option<TopicLayout>, Error> {
        let mut layout = self.read_layout(name)?;
        if layout.is_none() && self.existing_topics.lock().contains(name) {
            // A broker whose metadata is behind does not list a topic that others list.
            layout = self.read_layout(name)?;
        }
        if self.existing_topics.lock().record(name, layout.is_some()) {
            self.contact.record_deletion(name);
        }
        Ok(layout)
    }

    fn read_layout(&self, name: &str) -> Result<Option<TopicLayout>, Error> {
        let action = format!("reading the metadata of topic {name}");
        let metadata = match self.clients.metadata.fetch_metadata(Some(name), REQUEST_TIMEOUT) {
            Ok(metadata) => metadata,
            Err(KafkaError::MetadataFetch(Code::UnknownTopicOrPartition | Code::UnknownTopic)) => return Ok(None),
            Err(error) => return Err(self.map_err(&error, &action)),
        };
        self.contact.record_response();
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else { return Ok(None) };
        match topic.error().filter(IsError::is_error).map(Code::from) {
            None | Some(Code::LeaderNotAvailable) => {}
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => return Ok(None),
            Some(code) => return Err(map_code(code, format!("{action}: {code}"))),
        }
        let partitions = topic.partitions();
        let has_leaders = partitions.iter().all(|partition| partition.leader() >= 0);
        let replicas = partitions.iter().map(|partition| partition.replicas().len()).min().unwrap_or(0);
        Ok(Some(TopicLayout { partitions: partitions.len(), replicas, has_leaders }))
    }

    /// The value of a setting of a broker or a topic; empty if it has none.
    ///
    /// # Errors
    /// Also if the broker returns no such setting: librdkafka's wrapper drops the error of a refused resource, and returns it without settings.
    pub(crate) async fn setting(&self, resource: &ResourceSpecifier<'_>, name: &str) -> Result<String, Error> {
        let owner = match resource {
            ResourceSpecifier::Topic(topic) => format!("topic {topic}"),
            ResourceSpecifier::Group(group) => format!("group {group}"),
            ResourceSpecifier::Broker(id) => format!("broker {id}"),
        };
        let action = format!("reading {name} of {owner} (needs the permission DescribeConfigs)");
        let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT));
        let results = self.clients.admin.describe_configs([resource], &options).await;
        let config: ConfigResource = match results.map_err(|error| self.map_err(&error, &action))?.pop() {
            Some(Ok(config)) => config,
            Some(Err(code)) => return Err(map_code(code, format!("{action}: {code}"))),
            None => return Err(Error::Broken(action)),
        };
        match config.get(name) {
            Some(entry) => Ok(entry.value.clone().unwrap_or_default()),
            None => Err(Error::Broken(format!("{action}: the broker does not return it"))),
        }
    }

    /// Sends one request that creates topics; one result for each.
    pub(crate) async fn create_topics(
        &self,
        topics: &[NewTopic<'_>],
        options: &AdminOptions,
        action: &str,
    ) -> Result<Vec<CreationResult>, Error> {
        let results = self.clients.admin.create_topics(topics, options).await;
        results.map_err(|error| self.map_err(&error, action))
    }
}
