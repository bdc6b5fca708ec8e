//! What every request needs: the rooms behind HTTP, and what is computed once instead of per request.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use actix_web::http::header::HeaderValue;
use app::admission::Admission;
use app::dispatch::Dispatch;
use app::operate::Operations;
use app::queries::Queries;
use parking_lot::Mutex;
use telemetry::{IntCounter, Metrics};
use tokio::sync::{Semaphore, watch};

use crate::auth::Verifier;
use crate::options::Options;

/// The rooms behind HTTP.
pub struct Parts {
    /// Commands and the actors' door.
    pub dispatch: Arc<dyn Dispatch>,
    /// The read side.
    pub queries: Arc<Queries>,
    /// The operators' door.
    pub operations: Arc<Operations>,
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
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) auth: Verifier,
    pub(crate) options: Options,
    pub(crate) region: HeaderValue,
    pub(crate) answered: IntCounter,
    pub(crate) streams: Arc<Semaphore>,
    /// Answers that are being made or sent.
    pub(crate) in_flight: Arc<AtomicU64>,
    stopping: watch::Sender<bool>,
    tallied: Mutex<[u64; 4]>,
}

impl State {
    /// The state over these rooms.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { dispatch, queries, operations, admission, metrics, auth, options } = parts;
        Arc::new(Self {
            // A region's name that is no header value cannot be told; the config check refuses it before.
            region: HeaderValue::from_str(&options.region).unwrap_or(HeaderValue::from_static("unnamed")),
            answered: metrics.http_server_requests_by_region.with([options.region.as_str()]),
            streams: Arc::new(Semaphore::new(options.streams_max)),
            in_flight: Arc::default(),
            stopping: watch::Sender::new(false),
            tallied: Mutex::default(),
            dispatch,
            queries,
            operations,
            admission,
            metrics,
            auth,
            options,
        })
    }

    /// Ends the live streams, now and from now on. Safe to call twice.
    pub fn end_streams(&self) {
        self.stopping.send_replace(true);
    }

    /// Turns true when live streams must end.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Brings the cache's counters up to what the queries counted: they know no metrics.
    pub(crate) fn count_cache(&self) {
        let tally = &self.queries.tally;
        let now = [&tally.hits, &tally.misses, &tally.errors, &tally.degraded].map(|count| count.load(Relaxed));
        let Metrics { cache_hit_count, cache_miss_count, cache_error_count, cache_degraded_mode_count, .. } =
            &*self.metrics;
        let counters = [cache_hit_count, cache_miss_count, cache_error_count, cache_degraded_mode_count];
        let mut told = self.tallied.lock();
        for ((counter, now), told) in counters.into_iter().zip(now).zip(told.iter_mut()) {
            counter.inc_by(now.saturating_sub(*told));
            *told = now;
        }
    }
}
