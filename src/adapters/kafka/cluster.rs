//! The cluster's side of things: topics that must be there, and a sign of life that needs the controller.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use ports::probe::ProbeReport;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{IsError, KafkaError, KafkaResult, RDKafkaErrorCode as Code};

use crate::contact::{Contact, Ears};
use crate::options::Options;
use crate::replicas::{self, Replicas};
use crate::{client, error};

/// A question to a broker that is there is answered in milliseconds; a probe waits two seconds at most.
const ASK_WITHIN: Duration = Duration::from_secs(2);
/// Making topics is the controller's work, and their leaders come a moment later.
const MAKE_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at whether a new topic has its leaders.
const LEADERS_EVERY: Duration = Duration::from_millis(20);
/// How many brokers Kafka itself waits for before groups work.
const BROKERS_WANTED: &str = "offsets.topic.replication.factor";

/// Clients that ask.
pub(crate) struct Cluster {
    options: Arc<Options>,
    contact: Arc<Contact>,
    clients: Clients,
}

struct Clients {
    /// A consumer, because asking about a topic through a producer may make it.
    asker: BaseConsumer<Ears>,
    admin: AdminClient<Ears>,
}

impl Clients {
    fn new(options: &Options, contact: &Arc<Contact>) -> KafkaResult<Self> {
        let config = client::asking(options);
        let asker = BaseConsumer::from_config_and_context(&config, Ears(Arc::clone(contact)))?;
        // The wrapper never reads this client's log, so there must be none.
        let mut silent = config;
        silent.set_log_level(RDKafkaLogLevel::Emerg);
        let admin = AdminClient::from_config_and_context(&silent, Ears(Arc::clone(contact)))?;
        Ok(Self { asker, admin })
    }
}

/// A topic as the cluster shows it.
struct Seen {
    partitions: usize,
    /// Of the partition that has the fewest.
    replicas: usize,
    leaders: bool,
}

impl Cluster {
    pub(crate) fn new(options: Arc<Options>, contact: Arc<Contact>) -> KafkaResult<Self> {
        let clients = Clients::new(&options, &contact)?;
        Ok(Self { options, contact, clients })
    }

    /// Asks through new clients from now on.
    pub(crate) fn renew(&mut self) -> KafkaResult<()> {
        self.clients = Clients::new(&self.options, &self.contact)?;
        Ok(())
    }

    /// Hears what the client has to say by itself.
    pub(crate) fn listen(&self) {
        while self.clients.asker.poll(Duration::ZERO).is_some() {}
    }

    /// The port's error, with why no connection came about where that is known: whoever reads it wants to know about a wrong password.
    fn told(&self, error: &KafkaError, doing: &str) -> Error {
        self.listen();
        match self.contact.why() {
            Some(why) => error::of(error, &format!("{doing} ({why})")),
            None => error::of(error, doing),
        }
    }

    /// Makes the topics that are missing and checks those that are there; all of the installation when none is named. None is made while
    /// brokers are missing: replicas are counted when a topic is made, and stay as few.
    pub(crate) async fn ensure(&self, names: &[String]) -> Result<(), Error> {
        let names = if names.is_empty() { self.all() } else { names.to_vec() };
        let mut missing = Vec::new();
        for name in &names {
            match self.seen(name)? {
                Some(seen) => self.check(name, &seen).await?,
                None => missing.push(name.as_str()),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let brokers = self.brokers()?;
        if self.options.create_topics && brokers.len() < replicas::MOST {
            self.all_are_there(&missing, &brokers).await?;
        }
        self.make(&missing, brokers.len()).await
    }

    /// The names of the installation's topics.
    fn all(&self) -> Vec<String> {
        self.options.event_topics().into_iter().chain([self.options.watermarks()]).collect()
    }

    /// How often each topic of the installation that is there is kept.
    pub(crate) fn replicas(&self) -> Result<Replicas, Error> {
        let mut topics = Vec::new();
        for name in self.all() {
            if let Some(seen) = self.seen(&name)? {
                topics.push((name, seen.replicas));
            }
        }
        Ok(Replicas { brokers: self.brokers()?.len(), topics })
    }

    /// A cluster that is still starting shows the first of its brokers alone. How many there will be stands nowhere; how many Kafka's own
    /// topics wait for does, and fewer carry neither groups nor transactions.
    async fn all_are_there(&self, missing: &[&str], brokers: &[i32]) -> Result<(), Error> {
        let Some(first) = brokers.first().copied() else {
            return Err(Error::Unreachable("no broker is registered yet".into()));
        };
        let wanted = match self.setting(&ResourceSpecifier::Broker(first), BROKERS_WANTED).await {
            Ok(value) => value.parse().unwrap_or(1),
            Err(error @ (Error::Unreachable(_) | Error::Unknown(_))) => return Err(error),
            // Without the right to look nobody can say.
            Err(_) => 1,
        };
        let there = brokers.len();
        if there >= replicas::MOST.min(wanted) {
            return Ok(());
        }
        Err(Error::Broken(format!(
            "{there} of at least {wanted} brokers are there ({BROKERS_WANTED}): the missing topics are made once the others are; to go on with fewer, make them yourself: {}",
            missing.join(", ")
        )))
    }

    /// Metadata, the leaders of our topics, and the controller.
    pub(crate) async fn pulse(&self) -> Result<ProbeReport, Error> {
        let begun = Instant::now();
        let events = self.options.topic(&self.options.events);
        for name in [&events, &self.options.watermarks()] {
            match self.seen(name)? {
                Some(seen) if seen.leaders => {}
                Some(_) => return Err(Error::Unreachable(format!("a partition of topic {name} has no leader"))),
                None => return Err(Error::Broken(format!("topic {name} is missing"))),
            }
        }
        self.controller(&events).await?;
        Ok(ProbeReport { latency: begun.elapsed() })
    }

    /// Asks the controller whether a topic could be made that is there: its refusal is its sign of life.
    async fn controller(&self, topic: &str) -> Result<(), Error> {
        let asked = [NewTopic::new(topic, 1, TopicReplication::Fixed(1))];
        let options = AdminOptions::new().validate_only(true).request_timeout(Some(ASK_WITHIN));
        let answers = self.clients.admin.create_topics(&asked, &options).await;
        match answers.map_err(|error| self.told(&error, "asking the controller"))?.pop() {
            None | Some(Ok(_)) => Ok(()),
            Some(Err((
                _,
                Code::TopicAlreadyExists | Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed,
            ))) => Ok(()),
            Some(Err((_, code))) => Err(error::of_code(code, format!("asking the controller: {code}"))),
        }
    }

    fn brokers(&self) -> Result<Vec<i32>, Error> {
        let events = self.options.topic(&self.options.events);
        let metadata = self.clients.asker.fetch_metadata(Some(&events), ASK_WITHIN);
        let metadata = metadata.map_err(|error| self.told(&error, "asking about brokers"))?;
        Ok(metadata.brokers().iter().map(rdkafka::metadata::MetadataBroker::id).collect())
    }

    fn seen(&self, name: &str) -> Result<Option<Seen>, Error> {
        let doing = format!("asking about topic {name}");
        let metadata = match self.clients.asker.fetch_metadata(Some(name), ASK_WITHIN) {
            Ok(metadata) => metadata,
            Err(KafkaError::MetadataFetch(Code::UnknownTopicOrPartition | Code::UnknownTopic)) => return Ok(None),
            Err(error) => return Err(self.told(&error, &doing)),
        };
        self.contact.heard();
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else { return Ok(None) };
        match topic.error().filter(IsError::is_error).map(Code::from) {
            None | Some(Code::LeaderNotAvailable) => {}
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => return Ok(None),
            Some(code) => return Err(error::of_code(code, format!("{doing}: {code}"))),
        }
        let partitions = topic.partitions();
        let leaders = partitions.iter().all(|partition| partition.leader() >= 0);
        let replicas = partitions.iter().map(|partition| partition.replicas().len()).min().unwrap_or(0);
        Ok(Some(Seen { partitions: partitions.len(), replicas, leaders }))
    }

    /// An events' topic of another size only loses the order of keys when it grows; a watermarks' topic must be exactly as it must be.
    async fn check(&self, name: &str, seen: &Seen) -> Result<(), Error> {
        if name != self.options.watermarks() {
            if seen.partitions != self.options.topic_partitions as usize {
                let (topic, there, configured) = (name, seen.partitions, self.options.topic_partitions);
                tracing::warn!(
                    event = "topic_partitions_differ",
                    topic,
                    there,
                    configured,
                    "broker.topic_partitions is not what the topic has; it is left as it is, because a key's order needs a drain"
                );
            }
            return Ok(());
        }
        if seen.partitions != self.options.partitions as usize {
            return Err(Error::Broken(format!(
                "topic {name} has {} partitions and the outbox has {}: set outbox.partitions to {}, or drain the outbox and delete the topic",
                seen.partitions, self.options.partitions, seen.partitions
            )));
        }
        let policy = self.policy(name).await?;
        if policy == "compact" {
            return Ok(());
        }
        Err(Error::Broken(format!(
            "topic {name} has cleanup.policy={policy} and must have compact, or watermarks expire: kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config cleanup.policy=compact"
        )))
    }

    async fn policy(&self, name: &str) -> Result<String, Error> {
        self.setting(&ResourceSpecifier::Topic(name), "cleanup.policy").await
    }

    async fn setting(&self, of: &ResourceSpecifier<'_>, name: &str) -> Result<String, Error> {
        let whose = match of {
            ResourceSpecifier::Topic(topic) => format!("topic {topic}"),
            ResourceSpecifier::Group(group) => format!("group {group}"),
            ResourceSpecifier::Broker(id) => format!("broker {id}"),
        };
        let doing = format!("asking for {name} of {whose} (needs the right DescribeConfigs)");
        let options = AdminOptions::new().request_timeout(Some(ASK_WITHIN));
        let answers = self.clients.admin.describe_configs([of], &options).await;
        let mut answers = answers.map_err(|error| self.told(&error, &doing))?;
        let config: ConfigResource = match answers.pop() {
            Some(Ok(config)) => config,
            Some(Err(code)) => return Err(error::of_code(code, format!("{doing}: {code}"))),
            None => return Err(Error::Broken(doing)),
        };
        Ok(config.get(name).and_then(|entry| entry.value.clone()).unwrap_or_default())
    }

    async fn make(&self, names: &[&str], brokers: usize) -> Result<(), Error> {
        if !self.options.create_topics {
            return Err(Error::Broken(format!(
                "missing topics: {}; set broker.create_topics, or run: {}",
                names.join(", "),
                names.iter().map(|name| self.command(name, brokers)).collect::<Vec<_>>().join(" && ")
            )));
        }
        let retention = self.options.retention.map(|retention| retention.as_millis().to_string());
        let new: Vec<NewTopic<'_>> =
            names.iter().map(|name| self.new_topic(name, brokers, retention.as_deref())).collect();
        let options = AdminOptions::new().operation_timeout(Some(MAKE_WITHIN)).request_timeout(Some(MAKE_WITHIN));
        let answers = self.clients.admin.create_topics(&new, &options).await;
        for answer in answers.map_err(|error| self.told(&error, "making topics"))? {
            match answer {
                Ok(topic) => tracing::info!(
                    event = "topic_made",
                    topic,
                    replicas = replicas::wanted(brokers),
                    "a topic was missing and was made"
                ),
                // Another instance was quicker.
                Err((_, Code::TopicAlreadyExists)) => {}
                Err((name, code)) => {
                    let said = format!(
                        "topic {name} is missing and cannot be made ({code}); run: {}",
                        self.command(&name, brokers)
                    );
                    return Err(match error::of_code(code, said.clone()) {
                        passes @ (Error::Unreachable(_) | Error::Unknown(_)) => passes,
                        _ => Error::Broken(said),
                    });
                }
            }
        }
        self.wait_for_leaders(names).await
    }

    fn new_topic<'a>(&self, name: &'a str, brokers: usize, retention: Option<&'a str>) -> NewTopic<'a> {
        let replicas = replicas::wanted(brokers) as i32;
        let watermarks = name == self.options.watermarks();
        let partitions = if watermarks { self.options.partitions } else { self.options.topic_partitions };
        let mut topic = NewTopic::new(name, partitions as i32, TopicReplication::Fixed(replicas));
        if brokers >= replicas::MOST {
            topic = topic.set("min.insync.replicas", "2");
        }
        if watermarks {
            // Small segments and an eager cleaner keep each partition at a few records, so that reading it takes milliseconds.
            let topic = topic.set("cleanup.policy", "compact").set("segment.bytes", "1048576");
            return topic.set("min.cleanable.dirty.ratio", "0.01");
        }
        match retention {
            Some(retention) => topic.set("retention.ms", retention),
            None => topic,
        }
    }

    fn command(&self, name: &str, brokers: usize) -> String {
        let watermarks = name == self.options.watermarks();
        let partitions = if watermarks { self.options.partitions } else { self.options.topic_partitions };
        let compact = if watermarks { " --config cleanup.policy=compact --config segment.bytes=1048576" } else { "" };
        let replicas = replicas::wanted(brokers);
        let insync = if brokers >= replicas::MOST { " --config min.insync.replicas=2" } else { "" };
        format!(
            "kafka-topics.sh --bootstrap-server {} --create --topic {name} --partitions {partitions} --replication-factor {replicas}{insync}{compact}",
            self.options.bootstrap_servers
        )
    }

    async fn wait_for_leaders(&self, names: &[&str]) -> Result<(), Error> {
        let until = Instant::now() + MAKE_WITHIN;
        for name in names {
            while !self.seen(name)?.is_some_and(|seen| seen.leaders) {
                if Instant::now() > until {
                    return Err(Error::Unreachable(format!("topic {name} was made and has no leaders yet")));
                }
                tokio::time::sleep(LEADERS_EVERY).await;
            }
        }
        Ok(())
    }
}
