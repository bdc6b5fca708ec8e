//! One connection in hand. Its methods know what a failure of each means: a read changes nothing, a transaction changes nothing before
//! its COMMIT is sent, and whatever commits may have done so although its answer is lost.
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use ports::Error;
use tokio_postgres::Row;

use crate::error::{Answer, Stage, Trouble, trouble};
use crate::value::Value;

/// What a transaction behind a pooler sets for itself; elsewhere the session began with it.
const POOLED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; SET LOCAL enable_seqscan = off; \
                      SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off";

/// How sessions behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// Nothing may rest on the session.
    pub(crate) pooler: bool,
    /// The server's limit for one statement; ours is a little longer, for answers that never come.
    pub(crate) statement_within: Duration,
    /// The server's limit for a row lock.
    pub(crate) lock_within: Duration,
}

/// A connection of a pool. Dropped in the middle of anything, it is not given back: the server rolls back what was open.
pub(crate) struct Session {
    client: Option<Object>,
    manners: Manners,
    spoiled: AtomicBool,
}

impl Session {
    /// Takes a connection that lives.
    pub(crate) async fn take(pool: &Pool, manners: Manners) -> Result<Self, Error> {
        let client = pool.get().await.map_err(|error| of_pool(&error))?;
        Ok(Self { client: Some(client), manners, spoiled: AtomicBool::new(false) })
    }

    /// Asks. Nothing is changed, whatever happens.
    pub(crate) async fn read(&self, text: &str, values: &[Value<'_>]) -> Answer<Vec<Row>> {
        self.limited(Stage::Harmless, self.ask(text, values)).await
    }

    /// Runs one statement that commits by itself. A lost answer is [`Error::Unknown`].
    pub(crate) async fn once(&self, text: &str, values: &[Value<'_>]) -> Answer<Vec<Row>> {
        if self.client()?.is_closed() {
            self.spoil();
            return Err(Trouble::Said(Error::Unreachable("the connection was closed before it was used".into())));
        }
        if !self.manners.pooler {
            return self.limited(Stage::Committing, self.ask(text, values)).await;
        }
        // One burst on the wire: a failed statement makes the COMMIT behind it a ROLLBACK.
        let begin = self.begin();
        let work = async {
            let client = self.client_raw();
            let (begun, rows, ended) =
                futures::join!(client.batch_execute(&begin), self.ask(text, values), client.batch_execute("COMMIT"));
            begun?;
            let rows = rows?;
            ended?;
            Ok(rows)
        };
        self.limited(Stage::Committing, work).await
    }

    /// Begins a transaction and runs its first statement, in one burst. What went wrong before changed nothing.
    pub(crate) async fn begin_with(self, text: &str, values: &[Value<'_>]) -> Answer<(Transaction, Vec<Row>)> {
        let begin = self.begin();
        let rows = {
            let work = async {
                let client = self.client_raw();
                let (begun, rows) = futures::join!(client.batch_execute(&begin), self.ask(text, values));
                begun?;
                rows
            };
            self.limited_open(work).await?
        };
        Ok((Transaction { session: self }, rows))
    }

    /// Begins a transaction.
    pub(crate) async fn begin_transaction(self) -> Answer<Transaction> {
        let begin = self.begin();
        let begun = async { self.client_raw().batch_execute(&begin).await };
        self.limited_open(begun).await?;
        Ok(Transaction { session: self })
    }

    /// Work that opens and ends transactions by itself, and may take its time. After a failure the connection is not given back.
    pub(crate) async fn by_hand<T>(
        &self,
        work: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, tokio_postgres::Error>,
    ) -> Answer<T> {
        let told = work(self.client_raw()).await;
        if told.is_err() {
            self.spoil();
        }
        told.map_err(|error| trouble(&error, Stage::Harmless))
    }

    fn begin(&self) -> String {
        if !self.manners.pooler {
            return "BEGIN".into();
        }
        let (statement, lock) = (self.manners.statement_within.as_millis(), self.manners.lock_within.as_millis());
        format!("{POOLED}; SET LOCAL statement_timeout = {statement}; SET LOCAL lock_timeout = {lock}")
    }

    async fn ask(&self, text: &str, values: &[Value<'_>]) -> Result<Vec<Row>, tokio_postgres::Error> {
        let client = self.client_raw();
        if self.manners.pooler {
            return client.query_typed(text, values).await;
        }
        let types: Vec<_> = values.iter().map(|(_, ty)| ty.clone()).collect();
        let statement = client.prepare_typed_cached(text, &types).await?;
        let values: Vec<_> = values.iter().map(|(value, _)| *value).collect();
        client.query(&statement, &values).await
    }

    /// A statement of an open transaction: after a failure the connection is not given back, so that nothing stays open.
    async fn limited_open<T>(&self, work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Answer<T> {
        let told = self.limited(Stage::Harmless, work).await;
        if told.is_err() {
            self.spoil();
        }
        told
    }

    async fn limited<T>(
        &self,
        stage: Stage,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Answer<T> {
        let limit = self.manners.statement_within + Duration::from_secs(2);
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if error.as_db_error().is_none() || self.client_raw().is_closed() {
                    self.spoil();
                }
                Err(trouble(&error, stage))
            }
            Err(_) => {
                self.spoil();
                let said = format!("no answer within {limit:?}");
                Err(Trouble::Said(match stage {
                    Stage::Harmless => Error::Unreachable(said),
                    Stage::Committing => Error::Unknown(said),
                }))
            }
        }
    }

    fn spoil(&self) {
        self.spoiled.store(true, Relaxed);
    }

    fn client(&self) -> Answer<&Object> {
        self.client.as_ref().ok_or_else(|| crate::error::broken("a session without a connection"))
    }

    fn client_raw(&self) -> &Object {
        self.client.as_ref().expect("only dropping takes the connection away")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && self.spoiled.load(Relaxed)
        {
            drop(Object::take(client));
        }
    }
}

/// An open transaction. Dropped without an end it is rolled back, and its connection with it.
pub(crate) struct Transaction {
    session: Session,
}

impl Transaction {
    /// Runs a statement. What went wrong changed nothing; the transaction is over then.
    pub(crate) async fn query(&self, text: &str, values: &[Value<'_>]) -> Answer<Vec<Row>> {
        self.session.limited_open(self.session.ask(text, values)).await
    }

    /// Commits. From here on a lost answer is [`Error::Unknown`].
    pub(crate) async fn commit(self) -> Answer<()> {
        if self.session.client_raw().is_closed() {
            self.session.spoil();
            return Err(Trouble::Said(Error::Unreachable("the connection was closed before COMMIT".into())));
        }
        let work = async { self.session.client_raw().batch_execute("COMMIT").await };
        let told = self.session.limited(Stage::Committing, work).await;
        if told.is_err() {
            self.session.spoil();
        }
        told
    }

    /// Ends it without a change.
    pub(crate) async fn rollback(self) -> Answer<()> {
        let work = async { self.session.client_raw().batch_execute("ROLLBACK").await };
        self.session.limited_open(work).await
    }
}

fn of_pool(error: &PoolError) -> Error {
    match error {
        PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => {
            Error::Overloaded("no connection of the pool became free in time".into())
        }
        PoolError::Timeout(_) => Error::Unreachable("no connection within the limit of time".into()),
        PoolError::Backend(error) => match trouble(error, Stage::Harmless).told() {
            // A wrong password today was right yesterday: whoever rotates it will be done in a moment.
            Error::Broken(said) => Error::Unreachable(said),
            other => other,
        },
        PoolError::Closed => Error::Unreachable("the store is closed".into()),
        other => Error::Unreachable(other.to_string()),
    }
}
