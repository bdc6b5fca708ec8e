//! A pooled connection and its transactions. Each method maps its failures to what they leave behind: a failed read changed nothing, a
//! transaction changes nothing before its COMMIT is sent, and a statement that commits may have committed although its reply is lost.
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use futures::TryStreamExt;
use futures::future::{join_all, try_join_all};
use ports::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Row, RowStream, Statement};

use crate::connection::sql_value::SqlValue;
use crate::connection::statement_error::{CommitStage, StatementError, StatementResult, statement_error};

/// The settings of a transaction behind a pooler; without one they are settings of the session.
const POOLER_BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; SET LOCAL enable_seqscan = off; \
                      SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off";

/// How the server reads the texts of our statements and writes names, in a transaction: the settings of the database may differ. Without a pooler
/// they are settings of the session.
pub(crate) const SYNTAX_SETTINGS: &str =
    "SET LOCAL standard_conforming_strings = on; SET LOCAL quote_all_identifiers = off";

/// Time that the client waits longer than the server's `statement_timeout` before it gives the connection up: 2 s for the reply.
const REPLY_GRACE: Duration = Duration::from_secs(2);

/// Settings and time limits of the statements of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionSettings {
    /// Whether a pooler in transaction mode is between client and server, so that no state may be kept in a session.
    pub(crate) pooler: bool,
    /// The server's limit for one statement.
    pub(crate) statement_timeout: Duration,
    /// The server's limit for waiting on a row lock.
    pub(crate) lock_timeout: Duration,
}

/// How long a COMMIT waits before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitWait {
    /// Until the transaction is on disk, and on the synchronous standbys.
    Flush,
    /// It does not wait: a crash of the server may undo it, and with it every commit after it.
    None,
}

/// A connection of a pool. After a failure that may leave a transaction open it does not return to the pool: the server rolls back.
pub(crate) struct PooledSession {
    client: Option<Object>,
    settings: SessionSettings,
    unusable: AtomicBool,
}

impl PooledSession {
    /// Checks a live connection out of the pool.
    pub(crate) async fn checkout(pool: &Pool, settings: SessionSettings) -> Result<Self, Error> {
        let client = pool.get().await.map_err(|error| pool_error(&error))?;
        Ok(Self { client: Some(client), settings, unusable: AtomicBool::new(false) })
    }

    /// Runs a query that changes no data.
    pub(crate) async fn query(&self, text: &str, values: &[SqlValue<'_>]) -> StatementResult<Vec<Row>> {
        self.with_timeout(CommitStage::BeforeCommit, self.send(text, values)).await
    }

    /// As [`PooledSession::query`], but reads rows until `wants_more` returns false. The driver discards the other rows as they arrive.
    pub(crate) async fn query_while(
        &self,
        text: &str,
        values: &[SqlValue<'_>],
        mut wants_more: impl FnMut(&Row) -> bool,
    ) -> StatementResult<Vec<Row>> {
        let operation = async {
            let mut arriving = pin!(self.stream(text, values).await?);
            let mut rows = Vec::new();
            while let Some(row) = arriving.try_next().await? {
                let continues = wants_more(&row);
                rows.push(row);
                if !continues {
                    break;
                }
            }
            Ok(rows)
        };
        self.with_timeout(CommitStage::BeforeCommit, operation).await
    }

    /// Runs one statement that commits by itself. Without a reply it returns [`Error::Unknown`].
    pub(crate) async fn execute(&self, text: &str, values: &[SqlValue<'_>]) -> StatementResult<Vec<Row>> {
        if self.client().is_closed() {
            self.mark_unusable();
            return Err(StatementError::Port(Error::Unreachable("the connection closed before the statement".into())));
        }
        if !self.settings.pooler {
            return self.with_timeout(CommitStage::Committing, self.send(text, values)).await;
        }
        // The three messages are pipelined: after a failed statement the server treats the COMMIT as a ROLLBACK.
        let begin = self.begin_text();
        let operation = async {
            let client = self.client();
            let (begun, rows, committed) =
                futures::join!(client.batch_execute(&begin), self.send(text, values), client.batch_execute("COMMIT"));
            begun?;
            let rows = rows?;
            committed?;
            Ok(rows)
        };
        self.with_timeout(CommitStage::Committing, operation).await
    }

    /// Runs statements in one transaction that waits at most `lock_timeout` for a row lock. BEGIN, statements and COMMIT are pipelined: one
    /// round trip. Without a reply it returns [`Error::Unknown`]; any other failure has changed nothing.
    pub(crate) async fn execute_all(
        &self,
        lock_timeout: Duration,
        commit: CommitWait,
        statements: &[(&str, Vec<SqlValue<'_>>)],
    ) -> StatementResult<Vec<Vec<Row>>> {
        let commit = match commit {
            CommitWait::Flush => "",
            CommitWait::None => "; SET LOCAL synchronous_commit = off",
        };
        let begin = format!("{}; SET LOCAL lock_timeout = {}{commit}", self.begin_text(), lock_timeout.as_millis());
        // A statement that had to be prepared within the pipeline would be sent after the COMMIT.
        if !self.settings.pooler {
            let prepare = try_join_all(statements.iter().map(|(text, values)| self.prepare(text, values)));
            self.with_timeout(CommitStage::BeforeCommit, prepare).await?;
        }
        if self.client().is_closed() {
            self.mark_unusable();
            return Err(StatementError::Port(Error::Unreachable("the connection closed before the statements".into())));
        }
        let operation = async {
            let client = self.client();
            let queries = join_all(statements.iter().map(|(text, values)| self.send(text, values)));
            let (begun, results, committed) =
                futures::join!(client.batch_execute(&begin), queries, client.batch_execute("COMMIT"));
            begun?;
            // After a failed statement the server treats the COMMIT as a ROLLBACK, and the first error is the cause of the others.
            let rows = results.into_iter().collect::<Result<Vec<_>, _>>()?;
            committed?;
            Ok(rows)
        };
        self.with_timeout(CommitStage::Committing, operation).await
    }

    /// Begins a transaction and runs its first statement, pipelined. A failure has changed nothing.
    pub(crate) async fn begin_with(
        self,
        text: &str,
        values: &[SqlValue<'_>],
    ) -> StatementResult<(Transaction, Vec<Row>)> {
        let begin = self.begin_text();
        let rows = {
            let operation = async {
                let (begun, rows) = futures::join!(self.client().batch_execute(&begin), self.send(text, values));
                begun?;
                rows
            };
            self.in_transaction(operation).await?
        };
        Ok((Transaction { session: self, ended: false }, rows))
    }

    /// Begins a transaction without a first statement.
    pub(crate) async fn begin(self) -> StatementResult<Transaction> {
        let begin = self.begin_text();
        let begun = async { self.client().batch_execute(&begin).await };
        self.in_transaction(begun).await?;
        Ok(Transaction { session: self, ended: false })
    }

    /// Passes the client to an operation that manages its own transactions, without a timeout. After a failure the connection does not return to
    /// the pool.
    pub(crate) async fn with_client<T>(
        &self,
        operation: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, tokio_postgres::Error>,
    ) -> StatementResult<T> {
        let result = operation(self.client()).await;
        if result.is_err() {
            self.mark_unusable();
        }
        result.map_err(|error| statement_error(&error, CommitStage::BeforeCommit))
    }

    fn begin_text(&self) -> String {
        if !self.settings.pooler {
            return "BEGIN".into();
        }
        let (statement, lock) = (self.settings.statement_timeout.as_millis(), self.settings.lock_timeout.as_millis());
        format!(
            "{POOLER_BEGIN}; {SYNTAX_SETTINGS}; SET LOCAL statement_timeout = {statement}; SET LOCAL lock_timeout = {lock}"
        )
    }

    async fn send(&self, text: &str, values: &[SqlValue<'_>]) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.stream(text, values).await?.try_collect().await
    }

    async fn stream(&self, text: &str, values: &[SqlValue<'_>]) -> Result<RowStream, tokio_postgres::Error> {
        let client = self.client();
        if self.settings.pooler {
            return client.query_typed_raw(text, values.iter().map(|(value, ty)| (*value, ty.clone()))).await;
        }
        let statement = self.prepare(text, values).await?;
        client.query_raw(&statement, values.iter().map(|(value, _)| *value)).await
    }

    /// The prepared statement of a text; from the second time on without a round trip.
    async fn prepare(&self, text: &str, values: &[SqlValue<'_>]) -> Result<Statement, tokio_postgres::Error> {
        let types: Vec<_> = values.iter().map(|(_, ty)| ty.clone()).collect();
        self.client().prepare_typed_cached(text, &types).await
    }

    /// Runs a statement of an open transaction. After a failure the connection does not return to the pool, so that no transaction stays
    /// open.
    async fn in_transaction<T>(
        &self,
        operation: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> StatementResult<T> {
        let result = self.with_timeout(CommitStage::BeforeCommit, operation).await;
        if result.is_err() {
            self.mark_unusable();
        }
        result
    }

    async fn with_timeout<T>(
        &self,
        stage: CommitStage,
        operation: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> StatementResult<T> {
        let limit = self.settings.statement_timeout + REPLY_GRACE;
        match tokio::time::timeout(limit, operation).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                // The server of a session that accepts no writes is a standby, or was demoted.
                let is_read_only = error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
                if error.as_db_error().is_none() || is_read_only || self.client().is_closed() {
                    self.mark_unusable();
                }
                Err(statement_error(&error, stage))
            }
            Err(_) => {
                self.mark_unusable();
                let detail = format!("no reply within {limit:?}");
                Err(StatementError::Port(match stage {
                    CommitStage::BeforeCommit => Error::Unreachable(detail),
                    CommitStage::Committing => Error::Unknown(detail),
                }))
            }
        }
    }

    fn mark_unusable(&self) {
        self.unusable.store(true, Relaxed);
    }

    fn client(&self) -> &Object {
        self.client.as_ref().expect("only Drop takes the client")
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && self.unusable.load(Relaxed)
        {
            drop(Object::take(client));
        }
    }
}

/// An open transaction. If it is dropped before it ended, its connection is closed, and the server rolls back.
pub(crate) struct Transaction {
    session: PooledSession,
    ended: bool,
}

impl Transaction {
    /// Runs a statement. After a failure the transaction is over and has changed nothing.
    pub(crate) async fn query(&self, text: &str, values: &[SqlValue<'_>]) -> StatementResult<Vec<Row>> {
        self.session.in_transaction(self.session.send(text, values)).await
    }

    /// Commits. Without a reply it returns [`Error::Unknown`].
    pub(crate) async fn commit(mut self) -> StatementResult<()> {
        if self.session.client().is_closed() {
            return Err(StatementError::Port(Error::Unreachable("the connection closed before COMMIT".into())));
        }
        let operation = async { self.session.client().batch_execute("COMMIT").await };
        let result = self.session.with_timeout(CommitStage::Committing, operation).await;
        self.ended = result.is_ok();
        result
    }

    /// Ends the transaction without a change.
    pub(crate) async fn rollback(mut self) -> StatementResult<()> {
        let operation = async { self.session.client().batch_execute("ROLLBACK").await };
        let result = self.session.in_transaction(operation).await;
        self.ended = result.is_ok();
        result
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.ended {
            self.session.mark_unusable();
        }
    }
}

fn pool_error(error: &PoolError) -> Error {
    match error {
        PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => {
            Error::Overloaded("no connection of the pool became free in time".into())
        }
        PoolError::Timeout(_) => Error::Unreachable("connecting timed out".into()),
        PoolError::Backend(error) => match statement_error(error, CommitStage::BeforeCommit).into_port() {
            // The password was right when the store opened: a rotation is under way, and the next attempt may succeed.
            Error::Broken(detail) => Error::Unreachable(detail),
            other => other,
        },
        PoolError::Closed => Error::Unreachable("the store is closed".into()),
        other => Error::Unreachable(other.to_string()),
    }
}
