//! The listeners of the broker that require authentication.
use std::path::PathBuf;

/// A file in the folder of the broker.
pub fn broker_file(name: &str) -> PathBuf {
    let folder = std::env::var("POSTHASTE_TEST_SERVICES").expect("the folder of the services: run `make test`");
    PathBuf::from(folder).join("kafka").join(name)
}

/// The address of a listener that requires authentication: `sasl` without encryption, or `tls`.
pub fn listener(name: &str) -> String {
    let port = std::fs::read_to_string(broker_file(&format!("{name}_port"))).expect("the broker has this listener");
    format!("127.0.0.1:{}", port.trim())
}
