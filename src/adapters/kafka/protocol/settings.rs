//! Settings of every connection of the producer: names, time limits, encryption and credentials.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;

use crate::options::{Options, Sasl};
use crate::protocol::mechanism::Mechanism;
use crate::protocol::tls::TlsSettings;

/// A broker that sends nothing for this long counts as lost; as for librdkafka's clients.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle connection is replaced after this time: brokers and firewalls close connections that were idle for minutes, and a request on
/// such a connection fails without an answer.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// Largest response that is accepted; those to the producer's requests have some kilobytes.
pub(crate) const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Settings of connections, shared by all producers of an adapter.
pub(crate) struct ConnectionSettings {
    /// Names the service in the broker's logs and quotas.
    pub(crate) client_id: StrBytes,
    /// `host:port` of the brokers that the service knows from its options.
    pub(crate) bootstrap: Vec<String>,
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) sasl: Option<Sasl>,
    /// How many producers were created.
    producers: AtomicUsize,
}

impl ConnectionSettings {
    /// Derives the settings of connections from the options.
    ///
    /// # Errors
    /// The mistake in the file of certificate authorities, or in the mechanism of authentication.
    pub(crate) fn new(options: &Options) -> Result<Arc<Self>, String> {
        let security = &options.security;
        let tls = security.tls.then(|| TlsSettings::new(security.ca_file.as_deref())).transpose()?;
        if let Some(sasl) = &security.sasl {
            Mechanism::parse(&sasl.mechanism)?;
        }
        let servers = options.bootstrap_servers.split(',').map(str::trim).filter(|server| !server.is_empty());
        Ok(Arc::new(Self {
            client_id: StrBytes::from_string(format!("posthaste-{}", options.instance)),
            bootstrap: servers.map(with_port).collect(),
            tls,
            sasl: security.sasl.clone(),
            producers: AtomicUsize::new(0),
        }))
    }

    /// Where a new producer begins in the list of servers: each begins with another one, so that a server that hangs does not delay all of them.
    pub(crate) fn next_rotation(&self) -> usize {
        self.producers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Kafka's usual port, where a server is named without one; as librdkafka reads its list.
fn with_port(server: &str) -> String {
    let server = server.rsplit_once("://").map_or(server, |(_, address)| address);
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { server.to_owned() } else { format!("{server}:9092") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_without_a_port_gets_kafkas_port() {
        let addresses = ["kafka", "kafka:9093", "PLAINTEXT://kafka:9094", "[::1]:9095"].map(with_port);

        assert_eq!(addresses, ["kafka:9092", "kafka:9093", "kafka:9094", "[::1]:9095"]);
    }
}
