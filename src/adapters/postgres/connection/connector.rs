//! Opening connections: dedicated ones for sessions that keep state, and pools for everything else.
use std::future::poll_fn;
use std::sync::Arc;

use deadpool_postgres::{Hook, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use futures::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::{AsyncMessage, Client, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection::address::DatabaseAddress;
use crate::connection::open_error::PostgresOpenError;
use crate::connection::tls;
use crate::store::options::Options;

/// Opens connections to the database of one set of options.
#[derive(Clone)]
pub(crate) struct Connector {
    address: DatabaseAddress,
    tls: MakeRustlsConnect,
    options: Arc<Options>,
}

/// A connection outside the pools, and the task that reads its socket. The task ends with the connection.
pub(crate) struct DedicatedConnection {
    pub(crate) client: Client,
    pub(crate) driver: JoinHandle<()>,
}

impl Drop for DedicatedConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connector {
    pub(crate) fn new(options: Arc<Options>) -> Result<Self, PostgresOpenError> {
        let address = DatabaseAddress::parse(&options)?;
        let tls = tls::connector(&address.trust)?;
        Ok(Self { address, tls, options })
    }

    /// Host, port and database, without secrets: for logs and errors.
    pub(crate) fn location(&self) -> &str {
        &self.address.location
    }

    /// Opens a connection that ignores notifications.
    pub(crate) async fn connect(&self, purpose: &str) -> Result<DedicatedConnection, PostgresOpenError> {
        self.connect_listening(purpose, |_| {}).await
    }

    /// Opens a connection that passes each notification to `on_notification`.
    pub(crate) async fn connect_listening(
        &self,
        purpose: &str,
        on_notification: impl Fn(Notification) + Send + 'static,
    ) -> Result<DedicatedConnection, PostgresOpenError> {
        let config = self.address.for_purpose(purpose, &self.options.instance.0);
        let connect = config.connect(self.tls.clone());
        // The client's own timeout counts per address of the host. This one covers all addresses and the start-up messages.
        let limit = self.options.connect_timeout * 2;
        let timed_out = || PostgresOpenError::Unreachable {
            location: self.location().into(),
            reason: format!("the server did not complete the start-up within {limit:?}"),
        };
        let connected = tokio::time::timeout(limit, connect).await.map_err(|_| timed_out())?;
        let (client, mut connection) =
            connected.map_err(|error| PostgresOpenError::from_client(self.location(), &error))?;
        let driver = tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => on_notification(notification),
                    Some(Ok(AsyncMessage::Notice(notice))) => log_notice(&notice),
                    Some(Ok(_)) => {}
                    // The owner of the client sees that the connection is closed.
                    Some(Err(_)) | None => return,
                }
            }
        });
        Ok(DedicatedConnection { client, driver })
    }

    /// Builds a pool of at most `size` connections. It connects when a connection is first checked out, and runs `on_connect` on each new
    /// connection first.
    pub(crate) fn pool(&self, purpose: &str, size: usize, on_connect: Option<Hook>) -> Result<Pool, PostgresOpenError> {
        let config = self.address.for_purpose(purpose, &self.options.instance.0);
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connect = SilentConnect { tls: self.tls.clone() };
        let manager = Manager::from_connect(config, connect, manager_config);
        let builder = Pool::builder(manager);
        let builder = if let Some(hook) = on_connect { builder.post_create(hook) } else { builder };
        builder
            .max_size(size.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(self.options.checkout_timeout))
            .create_timeout(Some(self.options.connect_timeout * 2))
            .recycle_timeout(Some(self.options.connect_timeout))
            .build()
            .map_err(|error| PostgresOpenError::Refused { location: self.location().into(), reason: error.to_string() })
    }
}

/// Logs a NOTICE or WARNING of the server. Migrations report by WARNING what they could not change.
fn log_notice(notice: &DbError) {
    let (code, message) = (notice.code().code(), notice.message());
    let hint = notice.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    if notice.parsed_severity() == Some(Severity::Warning) {
        tracing::warn!(event = "database_message", code, "warning of PostgreSQL: {message}{hint}");
    } else {
        tracing::debug!(event = "database_message", code, "notice of PostgreSQL: {message}{hint}");
    }
}

/// Connects as the pool does by default, but logs no line for each connection that breaks: one outage would write thirty lines, and the
/// statement that fails reports the outage anyway.
struct SilentConnect {
    tls: MakeRustlsConnect,
}

type ConnectResult = Result<(Client, JoinHandle<()>), tokio_postgres::Error>;

impl deadpool_postgres::Connect for SilentConnect {
    fn connect(&self, config: &tokio_postgres::Config) -> BoxFuture<'_, ConnectResult> {
        let (config, tls) = (config.clone(), self.tls.clone());
        Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            let driver = tokio::spawn(async move {
                // The client sees that its connection is closed.
                let _ = connection.await;
            });
            Ok((client, driver))
        })
    }
}
