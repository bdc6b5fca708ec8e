//! State that every request uses: the application behind HTTP, and values computed once instead of per request.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use actix_web::http::header::HeaderValue;
use app::admission::rate_limit::Admission;
use app::consume::topic_reads::TopicReads;
use app::consume::webhooks::Webhooks;
use app::dispatch::Dispatch;
use app::operators::dead_letters_by_topic::DeadLettersByTopic;
use app::operators::outbox::OutboxOperations;
use app::queries::{CacheCounters, Queries};
use parking_lot::Mutex;
use telemetry::logging::lines_lost;
use telemetry::traces::Tracer;
use telemetry::{IntCounter, Metrics};
use tokio::sync::{Semaphore, watch};

use crate::auth::verifier::Verifier;
use crate::console::charts::actor_load::ActorLoadHistory;
use crate::console::charts::depth_history::{DepthHistory, DepthSample};
use crate::console::charts::throughput::{ThroughputHistory, ThroughputSample};
use crate::console::dead_letter_count::DeadLetterCountCache;
use crate::console::pages::overview::partition_count::UnownedPartitionCache;
use crate::console::session::ConsoleSessions;
use crate::http::concurrency_limiters::ConcurrencyLimiters;
use crate::http::options::Options;

/// The parts of an [`HttpState`], without the dispatch to actors, which exists only after they have started.
pub struct StateParts {
    /// Reads orders for clients.
    pub queries: Arc<Queries>,
    /// Reads and changes the outbox for operators.
    pub operations: Arc<OutboxOperations>,
    /// Reads and redrives dead letters; `None` without a broker.
    pub dead_letters: Option<Arc<DeadLettersByTopic>>,
    /// Reads topics for clients; `None` where the broker's own clients read them.
    pub topic_reads: Option<Arc<TopicReads>>,
    /// Administrators' actions on webhooks; `None` where they are switched off, or without a broker.
    pub webhooks: Option<Arc<Webhooks>>,
    /// Decides on rate limits.
    pub admission: Arc<Admission>,
    /// The metrics of the whole process.
    pub metrics: Arc<Metrics>,
    /// Starts the spans of traced requests.
    pub tracer: Tracer,
    /// Verifies the callers' bearer tokens.
    pub auth: Verifier,
    /// The options of the HTTP servers.
    pub options: Options,
}

/// The state of the HTTP API in one process, shared by all its threads and listeners.
pub struct HttpState {
    pub(crate) dispatch: Arc<dyn Dispatch>,
    pub(crate) queries: Arc<Queries>,
    pub(crate) operations: Arc<OutboxOperations>,
    pub(crate) dead_letters: Option<Arc<DeadLettersByTopic>>,
    pub(crate) topic_reads: Option<Arc<TopicReads>>,
    pub(crate) webhooks: Option<Arc<Webhooks>>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Tracer,
    pub(crate) auth: Verifier,
    pub(crate) options: Options,
    pub(crate) concurrency_limiters: ConcurrencyLimiters,
    pub(crate) region: HeaderValue,
    pub(crate) requests_by_region: IntCounter,
    pub(crate) stream_permits: Arc<Semaphore>,
    /// Requests that may still read a topic.
    pub(crate) reader_permits: Arc<Semaphore>,
    pub(crate) sessions: ConsoleSessions,
    pub(crate) depth_history: DepthHistory,
    pub(crate) throughput_history: ThroughputHistory,
    pub(crate) actor_load: ActorLoadHistory,
    pub(crate) dead_letter_counts: DeadLetterCountCache,
    pub(crate) unowned_partitions: UnownedPartitionCache,
    /// Requests whose response is not completely handed to the server yet.
    pub(crate) in_flight: Arc<AtomicU64>,
    stopping: watch::Sender<bool>,
    /// The totals that [`HttpState::sync_counters`] read last.
    synced_totals: Mutex<[u64; 5]>,
}

impl HttpState {
    /// Builds the shared state and registers its metrics. `dispatch` sends commands to the actors and lists them.
    pub fn new(dispatch: Arc<dyn Dispatch>, parts: StateParts) -> Arc<Self> {
        let StateParts {
            queries,
            operations,
            dead_letters,
            topic_reads,
            webhooks,
            admission,
            metrics,
            tracer,
            auth,
            options,
        } = parts;
        Arc::new(Self {
            // The configuration refuses a region that is not a legal header value.
            region: HeaderValue::from_str(&options.region).unwrap_or(HeaderValue::from_static("unnamed")),
            requests_by_region: metrics.http_server_requests_by_region.with([options.region.as_str()]),
            stream_permits: Arc::new(Semaphore::new(options.streams_max)),
            reader_permits: Arc::new(Semaphore::new(options.reads.readers_max)),
            in_flight: Arc::default(),
            sessions: ConsoleSessions::new(
                options.console_secret.as_ref(),
                auth.source_fingerprint(),
                operations.now(),
            ),
            depth_history: DepthHistory::default(),
            throughput_history: ThroughputHistory::default(),
            actor_load: ActorLoadHistory::default(),
            dead_letter_counts: DeadLetterCountCache::default(),
            unowned_partitions: UnownedPartitionCache::default(),
            concurrency_limiters: ConcurrencyLimiters::new(&metrics, options.request_timeout),
            stopping: watch::Sender::new(false),
            synced_totals: Mutex::default(),
            dispatch,
            queries,
            operations,
            dead_letters,
            topic_reads,
            webhooks,
            admission,
            metrics,
            tracer,
            auth,
            options,
        })
    }

    /// Records outbox depth, throughput and the load of the actors for the console. [`crate::serve`] calls this every two seconds.
    pub fn sample_depth(&self) {
        let now = self.operations.now();
        self.depth_history.add(DepthSample::new(&self.operations.health().depth, self.restarts(), now));
        self.throughput_history.add(ThroughputSample::new(&self.metrics, now));
        self.actor_load.add(&self.metrics, now);
    }

    /// Restarts of all actors since the process started.
    pub(crate) fn restarts(&self) -> u64 {
        self.dispatch.actors().iter().map(|actor| actor.restarts).sum()
    }

    /// Ends the live streams and refuses new ones from now on. Idempotent.
    pub fn end_streams(&self) {
        self.stopping.send_replace(true);
    }

    /// Turns true when live streams must end.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Copies the totals of components that have no access to the metrics (the query cache, the log) into their counters.
    pub(crate) fn sync_counters(&self) {
        let CacheCounters { hits, misses, errors, degraded } = &*self.queries.cache_counters;
        let [hits, misses, errors, degraded] = [hits, misses, errors, degraded].map(|count| count.load(Relaxed));
        let totals = [hits, misses, errors, degraded, lines_lost()];
        let metrics = &self.metrics;
        let counters = [
            &metrics.cache_hit_count,
            &metrics.cache_miss_count,
            &metrics.cache_error_count,
            &metrics.cache_degraded_mode_count,
            &metrics.log_lines_lost_count,
        ];
        let mut synced_totals = self.synced_totals.lock();
        for ((counter, total), synced) in counters.into_iter().zip(totals).zip(synced_totals.iter_mut()) {
            counter.inc_by(total.saturating_sub(*synced));
            *synced = total;
        }
    }
}
