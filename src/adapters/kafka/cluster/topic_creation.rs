//! Creation and verification of the installation's topics.
use std::time::{Duration, Instant};

use ports::Error;
use rdkafka::admin::{AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::cluster::client::{ClusterClient, TopicLayout};
use crate::cluster::replicas::{self, REPLICAS_MAX};
use crate::cluster::topic_failures::TopicFailures;
use crate::error::{is_temporary, map_code};

/// Longest wait for the creation of topics, which the controller does, and then for their leaders.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two checks whether a new topic has its leaders.
const LEADER_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The broker setting that says how many brokers Kafka itself needs before consumer groups work.
const MIN_BROKERS_SETTING: &str = "offsets.topic.replication.factor";

impl ClusterClient {
    /// [`Self::ensure_topics`] of the topics without which the relay cannot work.
    pub(crate) async fn ensure_own_topics(&self) -> Result<(), Error> {
        self.ensure_topics(&self.options.own_topics()).await
    }

    /// Creates missing topics of other services and checks existing ones. Those that cannot be used stop none of the others.
    pub(crate) async fn ensure_additional_topics(&self) -> TopicFailures {
        let (mut missing, mut failures) = (Vec::new(), TopicFailures::default());
        for name in &self.options.additional_topics {
            let checked = match self.topic_layout(name) {
                Ok(Some(layout)) => self.check_topic(name, &layout).await,
                Ok(None) => {
                    missing.push(name.as_str());
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match checked {
                Ok(()) => {}
                // No broker answers, and the next request would wait as long.
                Err(error) if is_temporary(&error) => {
                    failures.add([] as [&str; 0], error);
                    return failures;
                }
                Err(error) => failures.add([name], error),
            }
        }
        failures.append(self.create_missing_topics(&missing).await);
        failures
    }

    /// Creates missing topics and checks existing ones. Creates none while brokers are missing: the number of replicas is fixed when a
    /// topic is created.
    pub(crate) async fn ensure_topics(&self, names: &[String]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for name in names {
            match self.topic_layout(name)? {
                Some(layout) => self.check_topic(name, &layout).await?,
                None => missing.push(name.as_str()),
            }
        }
        self.create_missing_topics(&missing).await.result()
    }

    async fn create_missing_topics(&self, names: &[&str]) -> TopicFailures {
        if names.is_empty() {
            return TopicFailures::default();
        }
        self.try_create(names).await.unwrap_or_else(|error| {
            let mut failures = TopicFailures::default();
            failures.add(names.iter().copied(), error);
            failures
        })
    }

    /// Refuses to create topics while the cluster is still starting: it may show only its first broker. No setting holds the intended
    /// number of brokers, but the replication factor of Kafka's own topics is a lower bound: with fewer brokers neither groups nor
    /// transactions work.
    async fn check_all_brokers_registered(&self, missing: &[&str], brokers: &[i32]) -> Result<(), Error> {
        let Some(first) = brokers.first().copied() else {
            return Err(Error::Unreachable("no broker is registered yet".into()));
        };
        let expected = match self.setting(&ResourceSpecifier::Broker(first), MIN_BROKERS_SETTING).await {
            Ok(value) => value.parse().unwrap_or(1),
            Err(error) if is_temporary(&error) => return Err(error),
            // Without the permission to read the setting the lower bound is unknown.
            Err(_) => 1,
        };
        let registered = brokers.len();
        if registered >= REPLICAS_MAX.min(expected) {
            return Ok(());
        }
        Err(Error::Broken(format!(
            "{registered} of at least {expected} brokers are registered ({MIN_BROKERS_SETTING}): the missing topics are created once the other brokers have joined; to go on with fewer brokers, create them yourself: {}",
            missing.join(", ")
        )))
    }

    /// Checks an existing topic. A number of partitions that differs from the configured one is only reported, except for the watermark topic, whose
    /// number and `cleanup.policy` must match.
    pub(crate) async fn check_topic(&self, name: &str, layout: &TopicLayout) -> Result<(), Error> {
        if name != self.options.watermark_topic() {
            self.partition_warnings.check(name, layout.partitions, self.options.partitions_of(name));
            return Ok(());
        }
        if layout.partitions != self.options.partitions as usize {
            return Err(Error::Broken(format!(
                "topic {name} has {} partitions and the outbox has {}: set outbox.partitions to {}, or drain the outbox and delete the topic",
                layout.partitions, self.options.partitions, layout.partitions
            )));
        }
        let policy = self.setting(&ResourceSpecifier::Topic(name), "cleanup.policy").await?;
        if policy == "compact" {
            return Ok(());
        }
        Err(Error::Broken(format!(
            "topic {name} has cleanup.policy={policy} and needs compact, because watermarks must not expire: kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config cleanup.policy=compact"
        )))
    }

    /// Creates topics; returns those that were refused alone.
    ///
    /// # Errors
    /// An error of all topics.
    async fn try_create(&self, names: &[&str]) -> Result<TopicFailures, Error> {
        let registered = self.broker_ids()?;
        let brokers = registered.len();
        if !self.options.create_topics {
            return Err(Error::Broken(format!(
                "missing topics: {}; set broker.create_topics, or run: {}",
                names.join(", "),
                names.iter().map(|name| self.creation_command(name, brokers)).collect::<Vec<_>>().join(" && ")
            )));
        }
        if brokers < REPLICAS_MAX {
            self.check_all_brokers_registered(names, &registered).await?;
        }
        let retention = self.options.retention.map(|retention| retention.as_millis().to_string());
        let new: Vec<NewTopic<'_>> =
            names.iter().map(|name| self.new_topic(name, brokers, retention.as_deref())).collect();
        let options = AdminOptions::new().operation_timeout(Some(CREATE_TIMEOUT)).request_timeout(Some(CREATE_TIMEOUT));
        let (mut failures, mut existing) = (TopicFailures::default(), Vec::new());
        for result in self.create_topics(&new, &options, "creating topics").await? {
            match result {
                Ok(topic) => {
                    let replicas = replicas::replication_factor(brokers);
                    self.record_created(&topic);
                    tracing::info!(event = "topic_created", topic, replicas, "the missing topic {topic} was created");
                    existing.push(topic);
                }
                // Another instance created it first.
                Err((name, Code::TopicAlreadyExists)) => existing.push(name),
                Err((name, code)) => failures.add([&name], self.creation_error(&name, code, brokers)),
            }
        }
        if let Err(error) = self.wait_for_leaders(&existing).await {
            failures.add(existing, error);
        }
        Ok(failures)
    }

    fn creation_error(&self, name: &str, code: Code, brokers: usize) -> Error {
        let command = self.creation_command(name, brokers);
        let message = format!("topic {name} is missing and cannot be created ({code}); run: {command}");
        let error = map_code(code, message.clone());
        if is_temporary(&error) { error } else { Error::Broken(message) }
    }

    fn new_topic<'a>(&self, name: &'a str, brokers: usize, retention: Option<&'a str>) -> NewTopic<'a> {
        let replicas = replicas::replication_factor(brokers) as i32;
        let mut topic = NewTopic::new(name, self.options.partitions_of(name) as i32, TopicReplication::Fixed(replicas));
        if brokers >= REPLICAS_MAX {
            topic = topic.set("min.insync.replicas", "2");
        }
        if name == self.options.watermark_topic() {
            // Small segments and an eager log cleaner keep each partition at a few records, so that reading it takes milliseconds.
            let topic = topic.set("cleanup.policy", "compact").set("segment.bytes", "1048576");
            return topic.set("min.cleanable.dirty.ratio", "0.01");
        }
        match retention {
            Some(retention) => topic.set("retention.ms", retention),
            None => topic,
        }
    }

    /// The shell command with which an operator creates the topic.
    pub(crate) fn creation_command(&self, name: &str, brokers: usize) -> String {
        let is_watermark_topic = name == self.options.watermark_topic();
        let partitions = self.options.partitions_of(name);
        let compact =
            if is_watermark_topic { " --config cleanup.policy=compact --config segment.bytes=1048576" } else { "" };
        let replicas = replicas::replication_factor(brokers);
        let insync = if brokers >= REPLICAS_MAX { " --config min.insync.replicas=2" } else { "" };
        format!(
            "kafka-topics.sh --bootstrap-server {} --create --topic {name} --partitions {partitions} --replication-factor {replicas}{insync}{compact}",
            self.options.bootstrap_servers
        )
    }

    async fn wait_for_leaders(&self, names: &[String]) -> Result<(), Error> {
        let deadline = Instant::now() + CREATE_TIMEOUT;
        for name in names {
            while !self.topic_layout(name)?.is_some_and(|layout| layout.has_leaders) {
                if Instant::now() > deadline {
                    return Err(Error::Unreachable(format!("topic {name} was created and has no leaders yet")));
                }
                tokio::time::sleep(LEADER_CHECK_INTERVAL).await;
            }
        }
        Ok(())
    }
}
