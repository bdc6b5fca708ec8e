//! The HTTP API: sockets, authentication, routes, the OpenAPI document, the console, and the mapping of errors to statuses (`error.rs`).
//!
//! `http/pipeline.rs` checks each request in the contract's order and calls its handler; `http/exchange.rs` completes each response.
//! The routes are tables: `orders/routes.rs`, `admin/routes.rs`, `console/routes.rs`, `health/` and `openapi/ui.rs`.
#![warn(missing_docs)]

mod error;
mod state;

/// Listeners, connections and their time limits, the request pipeline, load shedding and rate limits.
mod http {
    pub(crate) mod concurrency_limiters;
    pub(crate) mod connection;
    pub(crate) mod connection_timeouts;
    pub(crate) mod exchange;
    pub(crate) mod listeners;
    pub(crate) mod options;
    pub(crate) mod pipeline;
    pub(crate) mod rate_limit;
    pub(crate) mod request_scanner;
    pub(crate) mod router;
    pub(crate) mod server;
    pub(crate) mod startup_server;
    pub(crate) mod timed_stream;
    pub(crate) mod tracked_body;
    pub(crate) mod trusted_proxies;
}

/// Reading of requests and building of responses, for the handlers.
mod request {
    pub(crate) mod body;
    pub(crate) mod context;
    pub(crate) mod headers;
    pub(crate) mod idempotency_key;
    pub(crate) mod json;
    pub(crate) mod media_types;
    pub(crate) mod preconditions;
    pub(crate) mod query;
    pub(crate) mod response;
    pub(crate) mod route;
    pub(crate) mod server_span;
    pub(crate) mod trace_context;
}

/// JWT bearer tokens: keys, claims, verification.
pub mod auth {
    mod claims;
    pub(crate) mod identity;
    mod jwks;
    mod key_set;
    mod key_source;
    mod masked_url;
    mod rsa_modulus;
    mod signing_key;
    mod token_cache;
    pub(crate) mod verifier;

    pub use key_source::KeySource;
    pub use masked_url::masked_url;
    pub use signing_key::KeyError;
    pub use verifier::{Options, Verifier};
}

/// `/orders`: create, read, list, page, change, cancel.
mod orders {
    pub(crate) mod bodies;
    pub(crate) mod change;
    pub(crate) mod create;
    pub(crate) mod list_body;
    pub(crate) mod list_response;
    pub(crate) mod new_items;
    pub(crate) mod operation;
    pub(crate) mod page;
    pub(crate) mod parameters;
    pub(crate) mod read;
    pub(crate) mod routes;
}

/// `/events`, `/topics` and `/groups`: publishing events, and reading topics without a broker's client.
mod topics {
    pub(crate) mod offsets;
    pub(crate) mod parameters;
    pub(crate) mod publish;
    pub(crate) mod record_body;
    pub(crate) mod record_stream;
    pub(crate) mod record_value;
    pub(crate) mod records;
    pub(crate) mod routes;

    /// Administrators' actions on the endpoints that receive events.
    pub(crate) mod webhooks {
        pub(crate) mod bodies;
        pub(crate) mod changes;
        pub(crate) mod dead_letters;
        pub(crate) mod deliveries;
        pub(crate) mod limits;
        pub(crate) mod lookups;
        pub(crate) mod routes;
    }
}

/// `/admin`: the operators' API.
mod admin {
    pub(crate) mod actors;
    pub(crate) mod audit;
    pub(crate) mod dead_letter_body;
    pub(crate) mod dead_letters;
    pub(crate) mod diagnosis;
    pub(crate) mod documents;
    pub(crate) mod filters;
    pub(crate) mod live_events;
    pub(crate) mod operator_body;
    pub(crate) mod outbox;
    pub(crate) mod outbox_row;
    pub(crate) mod paced_redrive;
    pub(crate) mod partitions;
    pub(crate) mod redrive;
    pub(crate) mod routes;
}

/// `/console`: server-rendered pages for operators. The one script only refreshes them.
mod console {
    pub(crate) mod access;
    pub(crate) mod assets;
    pub(crate) mod dead_letter_count;
    pub(crate) mod form;
    pub(crate) mod format;
    pub(crate) mod layout;
    pub(crate) mod links;
    pub(crate) mod login_form;
    pub(crate) mod record_view;
    pub(crate) mod redrive_state;
    pub(crate) mod routes;
    pub(crate) mod session;
    pub(crate) mod session_ticket;

    pub(crate) mod charts {
        pub(crate) mod actor_load;
        pub(crate) mod depth_chart;
        pub(crate) mod depth_history;
        pub(crate) mod histogram;
        pub(crate) mod sparkline;
        pub(crate) mod throughput;
    }

    pub(crate) mod pages {
        pub(crate) mod actors;
        pub(crate) mod audit;
        pub(crate) mod dead_letter;
        pub(crate) mod dead_letter_redrive;
        pub(crate) mod dead_letters;
        pub(crate) mod events;
        pub(crate) mod login;
        pub(crate) mod outbox;
        pub(crate) mod outbox_bulk;
        pub(crate) mod outbox_redrive;
        pub(crate) mod outbox_row;
        pub(crate) mod overview;
        pub(crate) mod webhooks;
    }
}

/// Probes, the actuator's health and info, metrics.
mod health {
    pub(crate) mod actuator;
    pub(crate) mod metrics;
    pub(crate) mod probes;
    pub(crate) mod status;
}

/// The OpenAPI document and its user interface.
mod openapi {
    pub(crate) mod document;
    pub(crate) mod schemas;
    pub(crate) mod ui;
}

pub use admin::dead_letter_body::RefusalsBody;
pub use admin::documents::{
    OutboxRecordDocument, audit_entry_document, dead_letter_document, partition_document, record_document,
    row_diagnosis_document, row_document, row_record_document,
};
pub use admin::paced_redrive::{Pace, PacedRedrive};
pub use console::links::shell_quoted;
pub use http::listeners::{Listeners, bind_listener};
pub use http::options::{Options, Surface, TopicReadLimits};
pub use http::router::configure;
pub use http::server::{BoundListener, RunningServer, serve, serve_on};
pub use http::startup_server::{StartupContext, StartupServer, serve_startup};
pub use http::trusted_proxies::{InvalidNetwork, TrustedProxies};
pub use openapi::document::openapi_json;
pub use topics::record_value::pretty_json;

pub use state::{HttpState, StateParts};
