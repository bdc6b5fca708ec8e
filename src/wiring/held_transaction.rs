//! Transactions and sessions that `posthaste bench` holds open on the store's database while it measures.
use bench::TransactionKind;

use super::start_error::StartError;
use super::throwaway::ThrowawayInstallation;

/// An open transaction; dropped, it is rolled back.
pub struct HeldTransaction {
    #[cfg(feature = "postgres")]
    _open: postgres::throwaway::OpenTransaction,
}

/// A session on the store's database, as a service that writes it has one.
pub struct WriterSession {
    #[cfg(feature = "postgres")]
    session: postgres::throwaway::ScriptSession,
}

impl bench::SqlSession for WriterSession {
    #[cfg(feature = "postgres")]
    fn functions(&self) -> &str {
        self.session.functions()
    }

    #[cfg(not(feature = "postgres"))]
    fn functions(&self) -> &str {
        ""
    }

    #[cfg(feature = "postgres")]
    async fn execute(&mut self, script: &str) -> Result<(), bench::Error> {
        self.session.execute(script).await.map_err(bench::Error::new)
    }

    #[cfg(not(feature = "postgres"))]
    async fn execute(&mut self, _script: &str) -> Result<(), bench::Error> {
        Err(bench::Error::new(super::store::feature_missing("store.kind", "postgres")))
    }
}

impl ThrowawayInstallation {
    /// Opens a session on the database of these data; `None` for other stores.
    ///
    /// # Errors
    /// The server cannot be reached.
    #[cfg(feature = "postgres")]
    pub async fn writer_session(&self) -> Result<Option<WriterSession>, StartError> {
        if self.config.store.kind != crate::config::StoreKind::Postgres {
            return Ok(None);
        }
        let session = postgres::throwaway::open_session(&super::throwaway::options(&self.config)).await;
        session.map(|session| Some(WriterSession { session })).map_err(super::store::from_postgres_error)
    }

    /// Always `None`: this program was built without PostgreSQL.
    ///
    /// # Errors
    /// Never fails; the signature is that of the other build.
    #[cfg(not(feature = "postgres"))]
    pub async fn writer_session(&self) -> Result<Option<WriterSession>, StartError> {
        Ok(None)
    }

    /// Opens a transaction on the database of these data.
    ///
    /// # Errors
    /// The server cannot be reached, or the program was built without PostgreSQL.
    #[cfg(feature = "postgres")]
    pub async fn hold_transaction(&self, kind: TransactionKind) -> Result<HeldTransaction, StartError> {
        use postgres::throwaway::BlockingTransaction as Held;
        let held = match kind {
            TransactionKind::UnrelatedWriter => Held::UnrelatedWriter,
            TransactionKind::OutboxWriter => Held::OutboxWriter,
            TransactionKind::SnapshotReader => Held::SnapshotReader,
        };
        let options = super::throwaway::options(&self.config);
        let open =
            postgres::throwaway::open_transaction(&options, held).await.map_err(super::store::from_postgres_error)?;
        Ok(HeldTransaction { _open: open })
    }

    /// Always fails: this program was built without PostgreSQL.
    ///
    /// # Errors
    /// Always, with the feature that is missing.
    #[cfg(not(feature = "postgres"))]
    pub async fn hold_transaction(&self, _kind: TransactionKind) -> Result<HeldTransaction, StartError> {
        Err(super::store::feature_missing("store.kind", "postgres"))
    }
}
