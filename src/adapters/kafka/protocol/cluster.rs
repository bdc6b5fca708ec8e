//! The brokers of a cluster as one producer sees them: connections, leaders of topic partitions, coordinators.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use ports::Error;
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::error::map_code;
use crate::protocol::broker_order;
use crate::protocol::calls::Call;
use crate::protocol::connection::{CallError, Connection, SentRequest};
use crate::protocol::response_code::error_code;
use crate::protocol::sasl;
use crate::protocol::settings::ConnectionSettings;

/// After this time the leaders and numbers of partitions are read again.
const METADATA_MAX_AGE: Duration = Duration::from_secs(60);
/// A coordinator of transactions, as FindCoordinator names it.
const TRANSACTION_COORDINATOR: i8 = 1;

/// Stands for "all replicas are in sync". It compares as greater than any count.
pub(crate) const ALL_IN_SYNC: usize = usize::MAX;

/// Connections and metadata of one producer; not shared, so nothing waits for another producer.
pub(crate) struct Cluster {
    settings: Arc<ConnectionSettings>,
    connections: HashMap<String, Connection>,
    /// Addresses by the numbers of the brokers.
    brokers: HashMap<i32, String>,
    topics: HashMap<String, Topic>,
    /// Incremented by each request that any broker can answer, so that each begins with another broker.
    rotation: usize,
}

struct Topic {
    /// The broker that leads each partition; negative while there is none.
    leaders: Vec<i32>,
    /// How many replicas of each partition are in sync, or [`ALL_IN_SYNC`].
    in_sync: Vec<usize>,
    read_at: Instant,
    /// It is read again before its next use.
    is_expired: bool,
}

impl Cluster {
    pub(crate) fn new(settings: Arc<ConnectionSettings>) -> Self {
        let rotation = settings.next_rotation();
        Self { settings, connections: HashMap::new(), brokers: HashMap::new(), topics: HashMap::new(), rotation }
    }

    /// Sends a request to one broker; connects if necessary.
    pub(crate) fn send<C: Call>(
        &mut self,
        address: &str,
        request: &C,
        deadline: Instant,
    ) -> Result<SentRequest<C>, CallError> {
        let result = self.connection(address, deadline)?.send(request, deadline);
        self.close_after_error(address, result)
    }

    /// Waits for the response to a request that was sent to this broker.
    pub(crate) fn receive<C: Call>(
        &mut self,
        address: &str,
        sent: SentRequest<C>,
        deadline: Instant,
    ) -> Result<C::Response, CallError> {
        let connection_lost = || CallError::Unanswered(format!("broker {address}: the connection was lost"));
        let result = self.connections.get_mut(address).ok_or_else(connection_lost)?.receive(sent, deadline);
        self.close_after_error(address, result)
    }

    /// Sends a request to one broker and waits for the response.
    pub(crate) fn call<C: Call>(
        &mut self,
        address: &str,
        request: &C,
        deadline: Instant,
    ) -> Result<C::Response, CallError> {
        let sent = self.send(address, request, deadline)?;
        self.receive(address, sent, deadline)
    }

    /// Sends a request to the first broker that answers: connected ones first, those of the options last. Waits for each of them only so long that
    /// the others have time too.
    fn call_any<C: Call>(&mut self, request: &C, deadline: Instant) -> Result<C::Response, CallError> {
        let groups = [
            self.connections.keys().collect(),
            self.brokers.values().collect(),
            self.settings.bootstrap.iter().collect(),
        ];
        let addresses = broker_order::ordered(groups, self.rotation);
        self.rotation = self.rotation.wrapping_add(1);
        let mut last = CallError::NotSent("no broker is configured".into());
        for (remaining, address) in (1..=addresses.len() as u32).rev().zip(addresses) {
            let wait_end = broker_order::wait_end(Instant::now(), deadline, remaining);
            match self.call(&address, request, wait_end) {
                Ok(response) => return Ok(response),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connection(&mut self, address: &str, deadline: Instant) -> Result<&mut Connection, CallError> {
        if self.connections.get(address).is_some_and(Connection::is_stale) {
            self.connections.remove(address);
        }
        if !self.connections.contains_key(address) {
            let mut connection = Connection::open(address, &self.settings, deadline)?;
            if let Some(credentials) = &self.settings.sasl {
                // The caller's request was not sent yet.
                sasl::authenticate(&mut connection, credentials, deadline).map_err(CallError::into_not_sent)?;
            }
            self.connections.insert(address.to_owned(), connection);
        }
        let missing = || CallError::NotSent(format!("connecting to {address}"));
        self.connections.get_mut(address).ok_or_else(missing)
    }

    /// Closes the connection to a broker after an error.
    fn close_after_error<T>(&mut self, address: &str, result: Result<T, CallError>) -> Result<T, CallError> {
        if result.is_err() {
            self.connections.remove(address);
        }
        result
    }
}

impl Cluster {
    /// Reads the metadata of topics that are not known, or not recently. Old metadata stays in use while no broker answers. Returns the
    /// topics that the broker refuses, with its reasons: most often they do not exist.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when nothing is known of a topic and no broker answers.
    pub(crate) fn load<'a>(
        &mut self,
        topics: impl Iterator<Item = &'a str>,
        deadline: Instant,
    ) -> Result<Vec<(String, Error)>, Error> {
        let is_known = |topic: &str| self.topics.contains_key(topic);
        let is_fresh = |topic: &str| {
            self.topics.get(topic).is_some_and(|known| !known.is_expired && known.read_at.elapsed() < METADATA_MAX_AGE)
        };
        let (mut wanted, mut all_known) = (Vec::new(), true);
        for topic in topics {
            all_known &= is_known(topic);
            if !is_fresh(topic) && !wanted.contains(&topic) {
                wanted.push(topic);
            }
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let topic_request = |topic: &&str| {
            let name = TopicName(StrBytes::from_string((*topic).to_owned()));
            MetadataRequestTopic::default().with_name(Some(name))
        };
        let request = MetadataRequest::default()
            .with_topics(Some(wanted.iter().map(topic_request).collect()))
            .with_allow_auto_topic_creation(false);
        match self.call_any(&request, deadline) {
            Ok(response) => Ok(self.store_metadata(&response)),
            Err(_) if all_known => Ok(Vec::new()),
            Err(error) => Err(call_error(&error, "reading metadata")),
        }
    }

    fn store_metadata(&mut self, response: &MetadataResponse) -> Vec<(String, Error)> {
        // A broker that has just started may list none.
        if !response.brokers.is_empty() {
            let address = |host: &StrBytes, port: i32| format!("{}:{port}", host.as_str());
            self.brokers = response.brokers.iter().map(|b| (b.node_id.0, address(&b.host, b.port))).collect();
        }
        let mut refused = Vec::new();
        for topic in &response.topics {
            let Some(name) = topic.name.as_ref().map(|name| name.0.as_str()) else { continue };
            if let Some(code) = error_code(topic.error_code) {
                self.topics.remove(name);
                let error = map_code(code, format!("reading the metadata of topic {name}: {code}"));
                refused.push((name.to_owned(), error));
                continue;
            }
            let count = topic.partitions.len();
            let (mut leaders, mut in_sync) = (vec![-1; count], vec![0; count]);
            for partition in &topic.partitions {
                let index = usize::try_from(partition.partition_index).unwrap_or(usize::MAX);
                if let (Some(leader), Some(in_sync)) = (leaders.get_mut(index), in_sync.get_mut(index)) {
                    let is_complete = partition.isr_nodes.len() >= partition.replica_nodes.len();
                    *in_sync = if is_complete { ALL_IN_SYNC } else { partition.isr_nodes.len() };
                    *leader = partition.leader_id.0;
                }
            }
            self.topics.insert(name.to_owned(), Topic { leaders, in_sync, read_at: Instant::now(), is_expired: false });
        }
        refused
    }

    /// The number of partitions of a topic whose metadata was read; `None` while it has none.
    pub(crate) fn partition_count(&self, topic: &str) -> Option<u32> {
        let partitions = self.topics.get(topic)?.leaders.len();
        u32::try_from(partitions).ok().filter(|count| *count > 0)
    }

    /// The address of the broker that leads a topic partition.
    pub(crate) fn leader(&self, topic: &str, partition: u32) -> Option<&str> {
        let leader = self.topics.get(topic)?.leaders.get(partition as usize)?;
        self.brokers.get(leader).map(String::as_str)
    }

    /// How many replicas of a topic partition with a leader are in sync; [`ALL_IN_SYNC`] for all of them.
    pub(crate) fn in_sync(&self, topic: &str, partition: u32) -> Option<usize> {
        self.leader(topic, partition)?;
        self.topics.get(topic)?.in_sync.get(partition as usize).copied()
    }

    /// As [`Self::in_sync`], from metadata that was read at this time or later.
    pub(crate) fn in_sync_since(&self, topic: &str, partition: u32, since: Instant) -> Option<usize> {
        self.topics.get(topic).filter(|known| known.read_at >= since)?;
        self.in_sync(topic, partition)
    }

    /// Removes the metadata of a topic: it is read again before its next use.
    pub(crate) fn remove(&mut self, topic: &str) {
        self.topics.remove(topic);
    }

    /// Marks the metadata of a topic to be read again before its next use, if it was read before `since` or is older than `age_max`. Where no broker
    /// answers, it stays in use.
    pub(crate) fn expire(&mut self, topic: &str, since: Instant, age_max: Duration) {
        if let Some(known) = self.topics.get_mut(topic) {
            known.is_expired |= known.read_at < since || known.read_at.elapsed() >= age_max;
        }
    }

    /// The address of the broker that coordinates a transactional id, or the broker's reason if there is none yet.
    pub(crate) fn find_coordinator(
        &mut self,
        transactional_id: &str,
        deadline: Instant,
    ) -> Result<Result<String, Code>, CallError> {
        let request = FindCoordinatorRequest::default()
            .with_key(StrBytes::from_string(transactional_id.to_owned()))
            .with_key_type(TRANSACTION_COORDINATOR);
        let response = self.call_any(&request, deadline)?;
        Ok(match error_code(response.error_code) {
            Some(code) => Err(code),
            None => Ok(format!("{}:{}", response.host.as_str(), response.port)),
        })
    }
}

/// The port's error for a request without a response.
pub(crate) fn call_error(error: &CallError, action: &str) -> Error {
    let message = format!("{action}: {error}");
    match error {
        CallError::NotSent(_) | CallError::Unanswered(_) => Error::Unreachable(message),
        CallError::Refused(_) => Error::Broken(message),
    }
}
