//! The broker watcher: a thread that creates and checks the installation's topics before anything is published, detects the end of an
//! outage, and answers requests about the cluster.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use ports::probe::ProbeReport;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cluster::additional_topics::AdditionalTopics;
use crate::cluster::client::{ClusterClient, CreatedTopics};
use crate::cluster::deleted_topics::DeletionChecks;
use crate::cluster::replicas::Replicas;
use crate::cluster::topic_failures::TopicFailures;
use crate::connection::blocking_call::client_stopped;
use crate::connection::broker_contact::BrokerContact;
use crate::connection::client_replacement::ClientReplacement;
use crate::connection::open_error::KafkaOpenError;
use crate::error::is_temporary;
use crate::options::Options;

/// Interval between two checks whether the topics must be ensured; a check costs nothing while they are ready and a broker answers.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Most requests that may wait. They come from probes and commands, one at a time.
const REQUESTS_MAX: usize = 64;

/// Most causes of a refusal that are logged until the topics are ready: each permission that may be missing, and more.
const CAUSES_MAX: usize = 16;

/// Last known state of the topics without which the relay cannot work.
#[derive(Clone, Debug)]
enum TopicsStatus {
    /// No broker has been reached yet.
    Unreached(Error),
    /// They exist with the right settings.
    Ready,
    /// One is missing or has wrong settings; an operator must act.
    Refused(Error),
}

impl TopicsStatus {
    fn result(&self) -> Result<(), Error> {
        match self {
            TopicsStatus::Ready => Ok(()),
            TopicsStatus::Unreached(error) | TopicsStatus::Refused(error) => Err(error.clone()),
        }
    }
}

/// The causes of refusals that were logged since the topics were ready last. An operator who has removed one needs the next one; attempts that
/// fail in turns with different causes repeat none.
#[derive(Debug, Default)]
struct RefusalCauses(BTreeSet<String>);

impl RefusalCauses {
    /// Whether this cause is to be logged.
    fn is_new(&mut self, error: &Error) -> bool {
        self.0.len() < CAUSES_MAX && self.0.insert(error.to_string())
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// A request to the watcher's thread.
pub(crate) enum ClusterRequest {
    /// Create and check these topics (full names); an empty list means all topics of the installation.
    EnsureTopics { names: Vec<String>, reply: oneshot::Sender<Result<(), Error>> },
    /// Read the replication of the installation's topics.
    Replicas { reply: oneshot::Sender<Result<Replicas, Error>> },
    /// Check that metadata, leaders and the controller respond.
    Probe { reply: oneshot::Sender<Result<ProbeReport, Error>> },
}

/// A handle to the watcher's thread, which ends when the handle is dropped.
pub(crate) struct BrokerWatcher {
    requests: mpsc::Sender<ClusterRequest>,
    status: watch::Receiver<TopicsStatus>,
    additional_failures: watch::Receiver<TopicFailures>,
    contact: Arc<BrokerContact>,
    created_topics: CreatedTopics,
    ready_timeout: Duration,
}

impl BrokerWatcher {
    pub(crate) fn start(options: Arc<Options>, contact: Arc<BrokerContact>) -> Result<Self, KafkaOpenError> {
        let (requests, received) = mpsc::channel(REQUESTS_MAX);
        let unreached = TopicsStatus::Unreached(Error::Unreachable("no broker was reached yet".into()));
        let (publisher, status) = watch::channel(unreached);
        let (additional_publisher, additional_failures) = watch::channel(TopicFailures::default());
        let (ready_timeout, deletion_checks) = (options.connect_timeout, DeletionChecks::new(options.own_topics()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let cluster = ClusterClient::new(options, Arc::clone(&contact))
            .map_err(|error| KafkaOpenError::Options(error.to_string()))?;
        let created_topics = cluster.created_topics();
        let thread = WatcherThread {
            cluster,
            additional_topics: AdditionalTopics::new(additional_publisher),
            replacement: ClientReplacement::default(),
            contact: Arc::clone(&contact),
            status: publisher,
            refusal_causes: RefusalCauses::default(),
            deletion_checks,
        };
        std::thread::Builder::new()
            .name("kafka-watcher".into())
            .spawn(move || runtime.block_on(thread.run(received)))?;
        Ok(Self { requests, status, additional_failures, contact, created_topics, ready_timeout })
    }

    /// Sends a request and waits for the reply.
    pub(crate) async fn request<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> ClusterRequest,
    ) -> Result<T, Error> {
        let (reply, result) = oneshot::channel();
        let queue_full = |_| Error::Overloaded("the queue of requests about the Kafka cluster is full".into());
        self.requests.try_send(request(reply)).map_err(queue_full)?;
        result.await.unwrap_or_else(|_| Err(client_stopped()))
    }

    /// Full names of the topics that this watcher has created so far.
    pub(crate) fn created_topics(&self) -> Vec<String> {
        self.created_topics.lock().clone()
    }

    /// Waits until the installation's topics are known to be ready, for the connect timeout at most.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let mut status = self.status.clone();
        if self.contact.is_unreachable() && !matches!(*status.borrow(), TopicsStatus::Ready) {
            return status.borrow().result();
        }
        // Ends early once the watcher has found that connections fail, so that a stop of the service does not wait for the callers. A broker that
        // accepts connections and answers slowly has the whole timeout.
        let known =
            status.wait_for(|status| !matches!(status, TopicsStatus::Unreached(_)) || self.contact.connections_fail());
        match tokio::time::timeout(self.ready_timeout, known).await {
            Ok(Ok(status)) => status.result(),
            Ok(Err(_)) => Err(client_stopped()),
            Err(_) => self.status.borrow().result(),
        }
    }

    /// Waits as [`BrokerWatcher::ready`] does; then checks that none of these topics is one of another service that is missing or refused.
    pub(crate) async fn topics_ready(&self, topics: &[String]) -> Result<(), Error> {
        self.ready().await?;
        self.additional_failures.borrow().check(topics)
    }
}

struct WatcherThread {
    cluster: ClusterClient,
    additional_topics: AdditionalTopics,
    replacement: ClientReplacement,
    contact: Arc<BrokerContact>,
    status: watch::Sender<TopicsStatus>,
    refusal_causes: RefusalCauses,
    deletion_checks: DeletionChecks,
}

impl WatcherThread {
    async fn run(mut self, mut requests: mpsc::Receiver<ClusterRequest>) {
        loop {
            self.check_topics().await;
            // A timeout loses no request: `recv` is cancel-safe.
            match tokio::time::timeout(CHECK_INTERVAL, requests.recv()).await {
                Ok(Some(request)) => self.respond(request).await,
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }

    /// Ensures the topics until they are ready, after one was deleted, and after an outage: the broker that answers then may belong to another
    /// cluster.
    async fn check_topics(&mut self) {
        self.cluster.serve_events();
        if !self.is_ready() || self.contact.is_unreachable() || self.has_deleted_topic() {
            drop(self.ensure_all_topics().await);
        } else if self.additional_topics.are_due() {
            let started = Instant::now();
            let ensured = self.additional_topics.ensure(&self.cluster).await;
            self.replace_failing_clients(started, &ensured);
        }
    }

    /// Checks whether a topic of the relay is missing, if it is time.
    fn has_deleted_topic(&mut self) -> bool {
        let started = Instant::now();
        let topics = self.deletion_checks.due(started);
        if topics.is_empty() {
            return false;
        }
        let missing = self.cluster.missing_topic(&topics);
        self.replace_failing_clients(started, &missing);
        self.deletion_checks.record(missing.ok().flatten(), Instant::now());
        self.deletion_checks.missing().is_some()
    }

    /// Ensures all topics of the installation. A topic of another service that is refused or cannot be read does not refuse the others: its own
    /// events wait.
    async fn ensure_all_topics(&mut self) -> Result<(), Error> {
        let (started, was_ready) = (Instant::now(), self.is_ready());
        let own = if self.deletion_checks.have_begun() {
            self.cluster.restore_own_topics().await
        } else {
            self.cluster.ensure_own_topics().await
        };
        let all = match own {
            Ok(()) => self.additional_topics.ensure(&self.cluster).await,
            Err(_) => own.clone(),
        };
        self.replace_failing_clients(started, &all);
        self.update_status(own, was_ready);
        all
    }

    fn replace_failing_clients<T>(&mut self, started: Instant, result: &Result<T, Error>) {
        let reached = !result.as_ref().is_err_and(is_temporary);
        self.replacement.record_call(reached, started, || self.cluster.replace_clients());
    }

    fn update_status(&mut self, ensured: Result<(), Error>, was_ready: bool) {
        match ensured {
            Ok(()) => {
                self.deletion_checks.record_ready(Instant::now());
                self.refusal_causes.clear();
                self.set_status(TopicsStatus::Ready);
            }
            // Ready topics stay ready during an outage: the callers' own requests meet the outage.
            Err(error) if is_temporary(&error) && was_ready => {}
            Err(error) if is_temporary(&error) => {
                self.contact.record_outage(&error.to_string());
                self.set_status(TopicsStatus::Unreached(error));
            }
            Err(error) => {
                if self.refusal_causes.is_new(&error) {
                    tracing::error!(event = "broker_refused", error = %error, "the broker's topics are missing or misconfigured: {error}");
                }
                self.set_status(TopicsStatus::Refused(error));
            }
        }
    }

    /// A function of its own, because it ends the borrow: a `send_replace` during a borrow of the same channel deadlocks.
    fn is_ready(&self) -> bool {
        matches!(*self.status.borrow(), TopicsStatus::Ready)
    }

    fn set_status(&self, status: TopicsStatus) {
        self.status.send_replace(status);
    }

    async fn respond(&mut self, request: ClusterRequest) {
        let started = Instant::now();
        match request {
            ClusterRequest::EnsureTopics { names, reply } => {
                let ensured = if names.is_empty() {
                    self.ensure_all_topics().await
                } else {
                    let ensured = self.cluster.ensure_topics(&names).await;
                    self.replace_failing_clients(started, &ensured);
                    ensured
                };
                // The send fails only when the caller was dropped; the created topics remain.
                drop(reply.send(ensured));
            }
            ClusterRequest::Replicas { reply } => drop(reply.send(self.cluster.replicas())),
            ClusterRequest::Probe { reply } if reply.is_closed() => drop(reply),
            ClusterRequest::Probe { reply } => {
                let report = match self.topics_failure() {
                    Some(error) => Err(error),
                    None => self.probe().await,
                };
                self.replace_failing_clients(started, &report);
                self.record_silence(started, &report);
                drop(reply.send(report));
            }
        }
    }

    /// What is known to be wrong with the topics of the relay.
    fn topics_failure(&self) -> Option<Error> {
        match &*self.status.borrow() {
            TopicsStatus::Refused(error) => Some(error.clone()),
            TopicsStatus::Ready | TopicsStatus::Unreached(_) => {
                self.deletion_checks.missing().map(|topic| Error::Broken(format!("topic {topic} is missing")))
            }
        }
    }

    /// Probes the cluster. If that fails, a topic may have been deleted.
    async fn probe(&mut self) -> Result<ProbeReport, Error> {
        let report = self.cluster.probe().await;
        if matches!(report, Err(Error::Broken(_))) && self.is_ready() {
            self.deletion_checks.check_all(Instant::now());
        }
        report
    }

    /// Begins an outage when a probe failed and no client has received an answer meanwhile: brokers that hang close no connection, so no
    /// client reports them. From then on the topics are checked until a broker answers, which ends the outage.
    fn record_silence<T>(&self, since: Instant, result: &Result<T, Error>) {
        if let Err(error) = result
            && is_temporary(error)
            && !self.contact.responded_since(since)
        {
            self.contact.record_outage(&error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_a_refusal_is_new_once_until_the_topics_are_ready() {
        let refused = |cause: &str| Error::Broken(cause.into());
        let mut causes = RefusalCauses::default();

        let news = ["describe", "create", "describe", "create"].map(|cause| causes.is_new(&refused(cause)));
        assert_eq!(news, [true, true, false, false]);
        assert_eq!((0..20).filter(|number| causes.is_new(&refused(&number.to_string()))).count(), CAUSES_MAX - 2);

        causes.clear();
        assert!(causes.is_new(&refused("describe")));
    }
}
