//! What can be set about HTTP, with defaults that run.
use std::time::Duration;

use crate::proxies::Proxies;

/// Options of the HTTP side.
#[derive(Clone, Debug)]
pub struct Options {
    /// `http.listen`. Port 0: any free one.
    pub listen: String,
    /// `http.admin_listen`. `None`: admin on the same port.
    pub admin_listen: Option<String>,
    /// `http.request_timeout`: a request is answered within.
    pub request_timeout: Duration,
    /// `http.header_timeout`: a request's head arrives within, else 408 and the end of its connection.
    pub header_timeout: Duration,
    /// `http.body_timeout`: a request's body arrives within, else 408. A client that leaves an answer unread for so long is let go.
    pub body_timeout: Duration,
    /// `http.body_max` in bytes: a body of exactly so many passes.
    pub body_max: usize,
    /// `http.max_connections`, over all threads. Shared out evenly, so that one may be full a little early; a small one is one thread's.
    pub max_connections: usize,
    /// `http.trusted_proxies`.
    pub trusted_proxies: Proxies,
    /// `region.id`.
    pub region: String,
    /// `instance.id`.
    pub instance: String,
    /// `health.unsent_age_max`: readiness is red while the oldest unsent event is older. Zero: off.
    pub unsent_age_max: Duration,
    /// Threads that serve HTTP.
    pub workers: usize,
    /// Most live streams at once: each holds a connection and a place among the stream's readers.
    pub streams_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            admin_listen: None,
            request_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(30),
            body_max: 1024 * 1024,
            max_connections: 10_000,
            trusted_proxies: Proxies::default(),
            region: "local".to_owned(),
            instance: String::new(),
            unsent_age_max: Duration::ZERO,
            workers: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            streams_max: 64,
        }
    }
}

/// Which routes a listener serves. Health, metrics and documents are on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Orders.
    Public,
    /// The operators' routes.
    Admin,
    /// All of it.
    Both,
}
