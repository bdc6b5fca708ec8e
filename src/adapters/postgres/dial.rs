//! Making connections: single ones for what must have its own session, and pools.
use std::future::poll_fn;
use std::sync::Arc;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::Address;
use crate::open_error::OpenError;
use crate::options::Options;
use crate::tls;

/// Knows the way to the server.
#[derive(Clone)]
pub(crate) struct Dial {
    address: Address,
    connector: MakeRustlsConnect,
    options: Arc<Options>,
}

/// A connection of one's own, and the task that drives it; the task ends with the connection.
pub(crate) struct Line {
    pub(crate) client: Client,
    pub(crate) driver: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Dial {
    pub(crate) fn new(options: Arc<Options>) -> Result<Self, OpenError> {
        let address = Address::of(&options)?;
        let connector = tls::connector(&address.trust)?;
        Ok(Self { address, connector, options })
    }

    /// Where the database is, fit for logs and errors.
    pub(crate) fn place(&self) -> &str {
        &self.address.place
    }

    /// A connection of its own.
    pub(crate) async fn line(&self, purpose: &str) -> Result<Line, OpenError> {
        self.listening(purpose, |_| {}).await
    }

    /// A connection that hears notifications.
    pub(crate) async fn listening(
        &self,
        purpose: &str,
        hear: impl Fn(Notification) + Send + 'static,
    ) -> Result<Line, OpenError> {
        let config = self.address.named(purpose, &self.options.instance.0);
        let connect = config.connect(self.connector.clone());
        // The client's own limit is for each address of the host; this one is for all of it, the greeting too.
        let limit = self.options.connect_within * 2;
        let late =
            || OpenError::Unreachable { place: self.place().into(), reason: format!("no greeting within {limit:?}") };
        let connected = tokio::time::timeout(limit, connect).await.map_err(|_| late())?;
        let (client, mut connection) = connected.map_err(|error| OpenError::of(self.place(), &error))?;
        let driver = tokio::spawn(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(heard))) => hear(heard),
                    Some(Ok(_)) => {}
                    // Whoever holds the client sees that it is closed.
                    Some(Err(_)) | None => return,
                }
            }
        });
        Ok(Line { client, driver })
    }

    /// A pool of at most so many connections.
    pub(crate) fn pool(&self, purpose: &str, size: usize) -> Result<Pool, OpenError> {
        let config = self.address.named(purpose, &self.options.instance.0);
        let manner = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connect = Quiet { connector: self.connector.clone() };
        let manager = Manager::from_connect(config, connect, manner);
        let limits = &self.options;
        Pool::builder(manager)
            .max_size(size.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(limits.wait_within))
            .create_timeout(Some(limits.connect_within * 2))
            .recycle_timeout(Some(limits.connect_within))
            .build()
            .map_err(|error| OpenError::Refused { place: self.place().into(), reason: error.to_string() })
    }
}

/// Connects as the pool's own way does, without a log line for each connection that breaks: one outage would be thirty lines, and who
/// uses the connection tells of it.
struct Quiet {
    connector: MakeRustlsConnect,
}

type Connected = Result<(Client, JoinHandle<()>), tokio_postgres::Error>;

impl deadpool_postgres::Connect for Quiet {
    fn connect(&self, config: &tokio_postgres::Config) -> BoxFuture<'_, Connected> {
        let (config, connector) = (config.clone(), self.connector.clone());
        Box::pin(async move {
            let (client, connection) = config.connect(connector).await?;
            let driver = tokio::spawn(async move {
                // The client sees that its connection is closed.
                let _ = connection.await;
            });
            Ok((client, driver))
        })
    }
}

/// Tasks that end when they are told to.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Vec<JoinHandle<()>>>);

impl Tasks {
    pub(crate) fn add(&self, task: JoinHandle<()>) {
        self.0.lock().push(task);
    }

    /// Ends them all at once.
    pub(crate) fn end(&self) {
        self.0.lock().drain(..).for_each(|task| task.abort());
    }
}
