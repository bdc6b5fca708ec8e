//! Endpoints of other systems over HTTP: each event is one POST, in CloudEvents' binary mode.
#![warn(missing_docs)]

mod http_endpoint;
mod outcome;
mod root_certificates;

pub use http_endpoint::{HttpEndpoint, Options};
pub use root_certificates::RootCertificates;
