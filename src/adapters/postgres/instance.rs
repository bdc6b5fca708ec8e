//! The instance's name: held by one living process, by a lock of a session that dies with it. Behind a pooler, where sessions are
//! handed on, the heartbeat row alone is the lock.
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::dial::{Dial, Line, Tasks};
use crate::error::Answer;
use crate::open_error::OpenError;
use crate::options::Options;
use crate::store::Core;
use crate::value::{Value, get};

/// Names the lock: two installations in one database may have instances of one name.
macro_rules! key {
    () => {
        "hashtextextended('posthaste:' || current_schema() || ':' || $1, 0)"
    };
}

const TRY: &str = concat!("SELECT pg_try_advisory_lock(", key!(), "), pg_backend_pid()");

const WAIT: &str = concat!("SELECT pg_advisory_lock(", key!(), ")");

/// Who holds it: the session's backend, and what the row tells of the process behind it. A row of another backend tells of the holder
/// before: who has just taken the name must not be ended for the silence of who lost it.
const HOLDER: &str = concat!(
    "SELECT l.pid, i.pid, i.address, i.session, coalesce(i.seen_at + make_interval(secs => $2) <= clock_timestamp(), false)
     FROM (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND ((classid::bigint << 32) | objid::bigint) = ",
    key!(),
    ") l LEFT JOIN instance i ON i.name = $1 AND i.backend = l.pid"
);

const WRITE_DOWN: &str = "INSERT INTO instance (name, session, pid, address, backend, taken_at, seen_at)
     VALUES ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp())
     ON CONFLICT (name) DO UPDATE SET session = excluded.session, pid = excluded.pid, backend = excluded.backend,
       address = CASE WHEN instance.session = excluded.session THEN instance.address ELSE excluded.address END,
       taken_at = excluded.taken_at, seen_at = excluded.seen_at";

/// Behind a pooler: free, ours, or silent for too long.
const WRITE_DOWN_IF_FREE: &str = "INSERT INTO instance (name, session, pid, address, taken_at, seen_at)
     VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp())
     ON CONFLICT (name) DO UPDATE SET session = excluded.session, pid = excluded.pid, backend = NULL, address = excluded.address,
       taken_at = excluded.taken_at, seen_at = excluded.seen_at
     WHERE instance.session = excluded.session OR instance.seen_at + make_interval(secs => $5) <= clock_timestamp() RETURNING 1";

const BEAT: &str = "UPDATE instance SET seen_at = clock_timestamp() WHERE name = $1 AND session = $2 RETURNING 1";

/// How long a dying holder may take to let go, and how often to look.
const LETTING_GO: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// First and longest pause between two tries to get the lock's connection back.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The name was taken by somebody else while we lived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The instance id.
    pub instance: String,
    /// Who has it now, as far as known.
    pub by: String,
}

/// Holds the name and says so every few seconds.
pub(crate) struct Keeper {
    told: watch::Receiver<Option<Lost>>,
    stop: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
}

/// Who takes it.
#[derive(Clone)]
struct Taker {
    dial: Dial,
    options: Arc<Options>,
    session: Uuid,
}

/// What a try came to.
enum Tried {
    Got {
        backend: i32,
    },
    Held {
        backend: i32,
        pid: Option<i32>,
        address: Option<String>,
        session: Option<Uuid>,
        silent: bool,
    },
    /// It was let go in this very moment.
    Gone,
}

impl Keeper {
    /// Takes the name, or says who has it.
    pub(crate) async fn take(dial: &Dial, core: &Arc<Core>, tasks: &Tasks) -> Result<Self, OpenError> {
        let options = Arc::clone(&core.options);
        let session = draw(core).await.map_err(|error| OpenError::of_port(dial.place(), &error.told()))?;
        let taker = Taker { dial: dial.clone(), options, session };
        let (lost, told) = watch::channel(None);
        let (stop, mut stopping) = watch::channel(false);
        let (ended, stopped) = watch::channel(false);
        if taker.options.pooler {
            taker.take_by_row(core).await?;
            let core = Arc::clone(core);
            tasks.add(tokio::spawn(async move {
                taker.keep_by_row(&core, &mut stopping, &lost).await;
                // Nobody may wait for it any more.
                let _ = ended.send(true);
            }));
        } else {
            let (line, backend) = taker.take_by_lock(None).await?;
            tasks.add(tokio::spawn(async move {
                taker.keep_by_lock(line, backend, &mut stopping, &lost).await;
                let _ = ended.send(true);
            }));
        }
        Ok(Self { told, stop, stopped })
    }

    /// Waits until somebody else has the name.
    pub(crate) async fn lost(&self) -> Lost {
        let mut told = self.told.clone();
        let lost = told.wait_for(Option::is_some).await.ok().and_then(|lost| lost.clone());
        match lost {
            Some(lost) => lost,
            None => std::future::pending().await,
        }
    }

    /// Gives the name back. Waits a moment for it and no longer: it dies with the connection anyway.
    pub(crate) async fn release(&self, on: &Handle) {
        self.stop.send_replace(true);
        let mut stopped = self.stopped.clone();
        let waited =
            on.spawn(async move { tokio::time::timeout(LETTING_GO, stopped.wait_for(|ended| *ended)).await.is_ok() });
        // Whether it went in time changes nothing for who closes.
        let _ = waited.await;
    }
}

async fn draw(core: &Core) -> Answer<Uuid> {
    let rows = core.others().await?.read("SELECT gen_random_uuid()", &[]).await?;
    rows.first().map_or_else(|| Err(crate::error::broken("no name was drawn")), |row| get(row, 0))
}

impl Taker {
    fn name(&self) -> &str {
        &self.options.instance.0
    }

    fn silent_after(&self) -> f64 {
        crate::value::seconds(self.options.dead_after)
    }

    async fn take_by_lock(&self, own: Option<i32>) -> Result<(Line, i32), OpenError> {
        let line = self.dial.line("lock").await?;
        let told = |error: tokio_postgres::Error| OpenError::of(self.dial.place(), &error);
        let begun = tokio::time::Instant::now();
        loop {
            match self.attempt(&line.client).await.map_err(told)? {
                Tried::Got { backend } => {
                    let pid = std::process::id() as i32;
                    let values: [Value<'_>; 5] = [
                        (&self.name(), Type::TEXT),
                        (&self.session, Type::UUID),
                        (&pid, Type::INT4),
                        (&self.options.address, Type::TEXT),
                        (&backend, Type::INT4),
                    ];
                    line.client.query_typed(WRITE_DOWN, &values).await.map_err(told)?;
                    return Ok((line, backend));
                }
                // A holder that says nothing is ended, and so is a session of ours that the server has not yet missed.
                Tried::Held { backend, session, silent, .. }
                    if silent || (Some(backend) == own && session == Some(self.session)) =>
                {
                    if begun.elapsed() > LETTING_GO {
                        return Err(self.held(None, None));
                    }
                    self.end(&line.client, backend).await.map_err(told)?;
                    continue;
                }
                Tried::Held { pid: Some(pid), address, .. } => return Err(self.held(Some(pid), address)),
                // It writes itself down in a moment.
                Tried::Held { .. } if begun.elapsed() > LETTING_GO => return Err(self.held(None, None)),
                Tried::Held { .. } | Tried::Gone => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn attempt(&self, client: &Client) -> Result<Tried, tokio_postgres::Error> {
        let name = self.name();
        let rows = client.query_typed(TRY, &[(&name, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(Tried::Gone) };
        if row.try_get(0)? {
            return Ok(Tried::Got { backend: row.try_get(1)? });
        }
        let values: [Value<'_>; 2] = [(&name, Type::TEXT), (&self.silent_after(), Type::FLOAT8)];
        let rows = client.query_typed(HOLDER, &values).await?;
        let Some(row) = rows.first() else { return Ok(Tried::Gone) };
        Ok(Tried::Held {
            backend: row.try_get(0)?,
            pid: row.try_get(1)?,
            address: row.try_get(2)?,
            session: row.try_get(3)?,
            silent: row.try_get(4)?,
        })
    }

    /// Ends the session that holds the name, and stands in line for it: a holder that was only slow comes back behind us.
    async fn end(&self, client: &Client, backend: i32) -> Result<(), tokio_postgres::Error> {
        client.query_typed("SELECT pg_terminate_backend($1)", &[(&backend, Type::INT4)]).await?;
        match client.query_typed(WAIT, &[(&self.name(), Type::TEXT)]).await {
            Err(error) if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) => Err(error),
            _ => Ok(()),
        }
    }

    fn held(&self, pid: Option<i32>, address: Option<String>) -> OpenError {
        let unknown = || "unknown".to_string();
        OpenError::Held {
            instance: self.name().into(),
            pid: pid.map_or_else(unknown, |pid| pid.to_string()),
            address: address.filter(|address| !address.is_empty()).unwrap_or_else(unknown),
            place: self.dial.place().into(),
        }
    }

    async fn keep_by_lock(
        &self,
        line: Line,
        backend: i32,
        stopping: &mut watch::Receiver<bool>,
        lost: &watch::Sender<Option<Lost>>,
    ) {
        let (mut line, mut backend) = (line, backend);
        loop {
            // Whichever is dropped is asked again in the next turn; a beat that is cut off by the end is a beat less.
            tokio::select! {
                () = told_to_stop(stopping) => {
                    let gone: [Value<'_>; 2] = [(&self.name(), Type::TEXT), (&self.session, Type::UUID)];
                    // The row is for people; the lock goes with the connection.
                    let _ = line.client.query_typed("DELETE FROM instance WHERE name = $1 AND session = $2", &gone).await;
                    return;
                }
                _ = &mut line.driver => {}
                () = tokio::time::sleep(self.options.beat_every) => {
                    if self.beat(&line.client).await {
                        continue;
                    }
                }
            }
            tracing::warn!(
                event = "instance_lock_interrupted",
                instance = self.name(),
                "the connection that holds the name broke"
            );
            match self.regain(backend).await {
                Ok((again, its_backend)) => (line, backend) = (again, its_backend),
                Err(by) => {
                    lost.send_replace(Some(Lost { instance: self.name().into(), by }));
                    return;
                }
            }
            tracing::info!(event = "instance_lock_regained", instance = self.name(), "the name is held again");
        }
    }

    async fn beat(&self, client: &Client) -> bool {
        let values: [Value<'_>; 2] = [(&self.name(), Type::TEXT), (&self.session, Type::UUID)];
        let limit = self.options.statement_within;
        matches!(tokio::time::timeout(limit, client.query_typed(BEAT, &values)).await, Ok(Ok(_)))
    }

    /// Takes the name again, however long the server stays away; an error says who has it instead.
    async fn regain(&self, former: i32) -> Result<(Line, i32), String> {
        let mut pause = PAUSES.0;
        loop {
            match self.take_by_lock(Some(former)).await {
                Ok(line) => return Ok(line),
                Err(OpenError::Held { pid, address, .. }) => return Err(format!("pid {pid}, listening on {address}")),
                Err(error) => {
                    tracing::debug!(event = "instance_lock_away", error = %error, "the name cannot be taken again yet")
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn take_by_row(&self, core: &Core) -> Result<(), OpenError> {
        let told = |error: crate::error::Trouble| OpenError::of_port(self.dial.place(), &error.told());
        let session = core.others().await.map_err(|error| told(error.into()))?;
        let pid = std::process::id() as i32;
        let values: [Value<'_>; 5] = [
            (&self.name(), Type::TEXT),
            (&self.session, Type::UUID),
            (&pid, Type::INT4),
            (&self.options.address, Type::TEXT),
            (&self.silent_after(), Type::FLOAT8),
        ];
        if !session.once(WRITE_DOWN_IF_FREE, &values).await.map_err(told)?.is_empty() {
            return Ok(());
        }
        let holder = session
            .read("SELECT pid, address FROM instance WHERE name = $1", &[(&self.name(), Type::TEXT)])
            .await
            .map_err(told)?;
        let row = holder.first();
        Err(self.held(row.and_then(|row| get(row, 0).ok()), row.and_then(|row| get(row, 1).ok())))
    }

    async fn keep_by_row(&self, core: &Core, stopping: &mut watch::Receiver<bool>, lost: &watch::Sender<Option<Lost>>) {
        let own: [Value<'_>; 2] = [(&self.name(), Type::TEXT), (&self.session, Type::UUID)];
        loop {
            // Nothing is lost when the sleep is dropped.
            tokio::select! {
                () = told_to_stop(stopping) => break,
                () = tokio::time::sleep(self.options.beat_every) => {}
            }
            let beaten = async { core.others().await?.once(BEAT, &own).await };
            // A beat that fails is repeated; the name is lost when another session stands in the row.
            let missed = beaten.await.is_ok_and(|rows| rows.is_empty());
            if missed && matches!(self.take_by_row(core).await, Err(OpenError::Held { .. })) {
                let by = "a process that took it while we were silent".into();
                lost.send_replace(Some(Lost { instance: self.name().into(), by }));
                return;
            }
        }
        let free =
            async { core.others().await?.once("DELETE FROM instance WHERE name = $1 AND session = $2", &own).await };
        // A row that stays is silent soon.
        let _ = free.await;
    }
}

/// Cancel-safe: the flag stays raised.
async fn told_to_stop(stopping: &mut watch::Receiver<bool>) {
    // A sender that is gone has nobody left to keep the name for.
    let _ = stopping.wait_for(|stop| *stop).await;
}
