//! The options of the HTTP servers, with defaults that run.
use std::sync::Arc;
use std::time::Duration;

use app::consume::order_topic::OrderTopic;
use app::relay::chain::ChainRules;
use secrecy::SecretString;

use crate::http::trusted_proxies::TrustedProxies;

/// Options of the HTTP servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// `http.listen`. Port 0 picks a free port.
    pub listen: String,
    /// `http.admin_listen`. `None`: the admin routes are served on `listen`.
    pub admin_listen: Option<String>,
    /// `http.request_timeout`: the longest time from the request to its response.
    pub request_timeout: Duration,
    /// `http.header_timeout`: a request head that takes longer gets 408 and its connection is closed.
    pub header_timeout: Duration,
    /// `http.body_timeout`: a request body that takes longer gets 408. A client that reads nothing of a response for this long is disconnected.
    pub body_timeout: Duration,
    /// `http.body_max` in bytes, inclusive.
    pub body_max: usize,
    /// `http.max_connections` over all threads. Each thread takes an equal share, so one thread may refuse while another has room.
    pub max_connections: usize,
    /// `http.trusted_proxies`: the proxies whose `X-Forwarded-*` headers count.
    pub trusted_proxies: TrustedProxies,
    /// `region.id`, shown in the header `X-Region-Id`.
    pub region: String,
    /// `instance.id`, shown in the console and in `/actuator/info`.
    pub instance: String,
    /// `health.unsent_age_max`: readiness fails while the oldest unsent event is older. Zero disables the check.
    pub unsent_age_max: Duration,
    /// `orders.enabled`: whether the routes of the orders are served and documented.
    pub orders_enabled: bool,
    /// The topic of the orders, whose values may have a frame.
    pub order_topic: OrderTopic,
    /// The topics that this service writes itself, which clients may not publish to; `None` where there is no outbox.
    pub own_topics: Option<Vec<String>>,
    /// The rules of the relay, for the attempts that a row has left.
    pub relay_rules: Arc<ChainRules>,
    /// Topics that metrics name; the records of all others count as `other`.
    pub known_topics: telemetry::KnownValues,
    /// `http.console_secret`, or the shared secret of the tokens: with it console sessions survive a restart. `None`: they do not.
    pub console_secret: Option<SecretString>,
    /// `read.*`: limits of reading topics.
    pub reads: TopicReadLimits,
    /// Number of threads that serve HTTP.
    pub workers: usize,
    /// Upper bound of concurrent live streams; each holds a connection and a subscription.
    pub streams_max: usize,
}

/// Limits of reading topics over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicReadLimits {
    /// `read.records_max`: most records of a response.
    pub records_max: u32,
    /// `read.bytes_max`: bytes of values after which a response ends.
    pub bytes_max: usize,
    /// `read.wait_max`: longest wait for the first record.
    pub wait_max: Duration,
    /// `read.readers_max`: most concurrent reads.
    pub readers_max: usize,
}

impl Default for TopicReadLimits {
    fn default() -> Self {
        Self { records_max: 10_000, bytes_max: 16 * 1024 * 1024, wait_max: Duration::from_secs(30), readers_max: 64 }
    }
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
            trusted_proxies: TrustedProxies::default(),
            region: "local".to_owned(),
            instance: String::new(),
            unsent_age_max: Duration::ZERO,
            orders_enabled: true,
            order_topic: OrderTopic::new("order.events"),
            own_topics: Some(vec!["order.events".to_owned()]),
            relay_rules: Arc::default(),
            known_topics: ["order.events"].into_iter().collect(),
            console_secret: None,
            reads: TopicReadLimits::default(),
            workers: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            streams_max: 64,
        }
    }
}

/// Which routes a listener serves. Health, metrics and the OpenAPI document are on every surface; its user interface (`/docs`) and
/// `/actuator/info` are operators' routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The routes of clients: orders, topics, groups.
    Public,
    /// The operators' routes only.
    Admin,
    /// The routes of both surfaces.
    Both,
}
