//! Endpoints of other systems over HTTP: each event is one POST, in CloudEvents' binary mode. Also the collector of spans.
#![warn(missing_docs)]

mod address_policy;
mod collector_endpoint;
mod http_endpoint;
mod outcome;
mod root_certificates;
mod webhook_client;

pub use address_policy::AddressPolicy;
pub use collector_endpoint::{CollectorEndpoint, CollectorOptions};
pub use http_endpoint::{HttpEndpoint, Options, is_endpoint_url};
pub use root_certificates::RootCertificates;
pub use webhook_client::{HttpWebhookClient, WebhookClientOptions};
