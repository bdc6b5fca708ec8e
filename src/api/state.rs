//! What every request needs: the rooms behind HTTP, and what is computed once instead of per request.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use actix_web::http::header::HeaderValue;
use app::admission::rate_limit::Admission;
use app::dispatch::Dispatch;
use app::operators::dead_letters::DeadLetters;
use app::operators::outbox::Operations;
use app::queries::{CacheCounters, Queries};
use parking_lot::Mutex;
use telemetry::logging::lines_lost;
use telemetry::{IntCounter, Metrics};
use tokio::sync::{Semaphore, watch};

use crate::auth::Verifier;
use crate::console::history::{History, Sample};
use crate::console::session::Sessions;
use crate::entrance::Entrances;
use crate::options::Options;

/// The rooms behind HTTP.
pub struct Parts {
    /// Commands and the actors' door.
    pub dispatch: Arc<dyn Dispatch>,
    /// The read side.
    pub queries: Arc<Queries>,
    /// The operators' door.
    pub operations: Arc<Operations>,
    /// The dead letters; `None` where no broker is configured.
    pub dead_letters: Option<Arc<DeadLetters>>,
    /// Rate limits.
    pub admission: Arc<Admission>,
    /// Every metric.
    pub metrics: Arc<Metrics>,
    /// Who asks.
    pub auth: Verifier,
    /// What can be set.
    pub options: Options,
}

/// One service's HTTP side, shared by all its threads and listeners.
pub struct State {
    pub(crate) dispatch: Arc<dyn Dispatch>,
    pub(crate) queries: Arc<Queries>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) dead_letters: Option<Arc<DeadLetters>>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) auth: Verifier,
    pub(crate) options: Options,
    pub(crate) entrances: Entrances,
    pub(crate) region: HeaderValue,
    pub(crate) answered: IntCounter,
    pub(crate) streams: Arc<Semaphore>,
    /// Operators in browsers.
    pub(crate) sessions: Sessions,
    /// What waited over the last minutes.
    pub(crate) history: History,
    /// Answers that are being made or sent.
    pub(crate) in_flight: Arc<AtomicU64>,
    stopping: watch::Sender<bool>,
    tallied: Mutex<[u64; 5]>,
}

impl State {
    /// The state over these rooms.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { dispatch, queries, operations, dead_letters, admission, metrics, auth, options } = parts;
        Arc::new(Self {
            // A region's name that is no header value cannot be told; the config check refuses it before.
            region: HeaderValue::from_str(&options.region).unwrap_or(HeaderValue::from_static("unnamed")),
            answered: metrics.http_server_requests_by_region.with([options.region.as_str()]),
            streams: Arc::new(Semaphore::new(options.streams_max)),
            in_flight: Arc::default(),
            sessions: Sessions::default(),
            history: History::default(),
            entrances: Entrances::new(&metrics),
            stopping: watch::Sender::new(false),
            tallied: Mutex::default(),
            dispatch,
            queries,
            operations,
            dead_letters,
            admission,
            metrics,
            auth,
            options,
        })
    }

    /// Remembers how much waits now, for the console's chart. [`crate::serve`] does this every two seconds; tests do it themselves.
    pub fn observe(&self) {
        self.history.add(Sample::of(&self.operations.health().depth, self.restarts(), self.operations.now()));
    }

    /// Restarts of all actors since the process began.
    pub(crate) fn restarts(&self) -> u64 {
        self.dispatch.actors().iter().map(|actor| actor.restarts).sum()
    }

    /// Ends the live streams, now and from now on. Safe to call twice.
    pub fn end_streams(&self) {
        self.stopping.send_replace(true);
    }

    /// Turns true when live streams must end.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Brings the counters of those up to date who know no metrics: the queries, and the log itself.
    pub(crate) fn count_others(&self) {
        let CacheCounters { hits, misses, errors, degraded } = &self.queries.cache_counters;
        let [hits, misses, errors, degraded] = [hits, misses, errors, degraded].map(|count| count.load(Relaxed));
        let now = [hits, misses, errors, degraded, lines_lost()];
        let metrics = &self.metrics;
        let counters = [
            &metrics.cache_hit_count,
            &metrics.cache_miss_count,
            &metrics.cache_error_count,
            &metrics.cache_degraded_mode_count,
            &metrics.log_lines_lost_count,
        ];
        let mut told = self.tallied.lock();
        for ((counter, now), told) in counters.into_iter().zip(now).zip(told.iter_mut()) {
            counter.inc_by(now.saturating_sub(*told));
            *told = now;
        }
    }
}
