//! Transactions that stay open on the store's database while the bench measures.
use bench::TransactionKind;

use super::start_error::StartError;
use super::throwaway::Throwaway;

/// An open transaction; dropped, it is rolled back.
pub struct HeldTransaction {
    #[cfg(feature = "postgres")]
    _open: postgres::throwaway::OpenTransaction,
}

impl Throwaway {
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
        let open = postgres::throwaway::hold(&options, held).await.map_err(super::store::from_postgres_error)?;
        Ok(HeldTransaction { _open: open })
    }

    /// Always fails: this program was built without PostgreSQL.
    ///
    /// # Errors
    /// Always, with the feature that is missing.
    #[cfg(not(feature = "postgres"))]
    pub async fn hold_transaction(&self, _kind: TransactionKind) -> Result<HeldTransaction, StartError> {
        Err(super::store::not_built("store.kind", "postgres"))
    }
}
