//! Opening the store: checking the schema, taking the instance id, starting the background tasks.
use std::sync::Arc;

use crate::connection::background_tasks::BackgroundTasks;
use crate::connection::connector::Connector;
use crate::connection::open_error::PostgresOpenError;
use crate::connection::server_timeline;
use crate::connection::sql_value::get;
use crate::idempotency::{keys, release};
use crate::leases::instance_id_lease::InstanceIdLease;
use crate::orders::commit_queue::CommitQueue;
use crate::orders::committer;
use crate::outbox::rounds::relay_queue::RelayQueue;
use crate::outbox::rounds::relay_rounds;
use crate::publish::internal_topics;
use crate::schema::{archive_days, migrations};
use crate::store::context::{InstalledSchema, StoreContext};
use crate::store::options::Options;
use crate::wake::wake_tasks::WakeTasks;

/// An opened store without the runtime that it runs on.
pub(crate) struct OpenedStore {
    pub(crate) context: Arc<StoreContext>,
    pub(crate) commits: Arc<CommitQueue>,
    pub(crate) relay: Arc<RelayQueue>,
    pub(crate) wake: WakeTasks,
    /// `None` for an operator's command, which takes no instance id.
    pub(crate) instance_id: Option<InstanceIdLease>,
    pub(crate) tasks: BackgroundTasks,
}

/// Opens the store for a service: under its instance id, with wake-ups.
pub(crate) async fn for_service(options: Arc<Options>, connector: Connector) -> Result<OpenedStore, PostgresOpenError> {
    let context = open_context(&options, &connector, TimelineUse::Compared).await?;
    if context.partitions != options.partitions {
        return Err(PostgresOpenError::PartitionsChanged {
            location: connector.location().into(),
            installed: context.partitions,
            configured: options.partitions,
        });
    }
    let tasks = BackgroundTasks::default();
    let instance_id = InstanceIdLease::acquire(&connector, &context, &tasks).await?;
    internal_topics::store(&context)
        .await
        .map_err(|error| PostgresOpenError::from_port(connector.location(), &error.into_port()))?;
    keys::release_held_keys(&context)
        .await
        .map_err(|error| PostgresOpenError::from_port(connector.location(), &error.into_port()))?;
    tasks.add(tokio::spawn(release::send_deferred(Arc::clone(&context))));
    let wake = if options.notify && !options.pooler {
        WakeTasks::start(&connector, &context, &tasks)
    } else {
        WakeTasks::disabled()
    };
    let (commits, relay) = (start_committers(&context, &tasks), start_relay(&context, &tasks));
    Ok(OpenedStore { context, commits, relay, wake, instance_id: Some(instance_id), tasks })
}

/// Opens the store for an operator's command: without an instance id and without wake-ups.
pub(crate) async fn for_operator(
    options: Arc<Options>,
    connector: Connector,
) -> Result<OpenedStore, PostgresOpenError> {
    let context = open_context(&options, &connector, TimelineUse::Ignored).await?;
    let tasks = BackgroundTasks::default();
    let (commits, relay) = (start_committers(&context, &tasks), start_relay(&context, &tasks));
    Ok(OpenedStore { context, commits, relay, wake: WakeTasks::disabled(), instance_id: None, tasks })
}

fn start_committers(context: &Arc<StoreContext>, tasks: &BackgroundTasks) -> Arc<CommitQueue> {
    let queue = Arc::new(CommitQueue::new(&context.options));
    for _ in 0..context.options.committers.max(1) {
        tasks.add(tokio::spawn(committer::run(Arc::clone(context), Arc::clone(&queue))));
    }
    queue
}

fn start_relay(context: &Arc<StoreContext>, tasks: &BackgroundTasks) -> Arc<RelayQueue> {
    let queue = Arc::new(RelayQueue::new(&context.options));
    for _ in 0..context.options.relay_rounds.max(1) {
        tasks.add(tokio::spawn(relay_rounds::run(Arc::clone(context), Arc::clone(&queue))));
    }
    queue
}

/// Whether an opened store compares the server's timeline with its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimelineUse {
    /// A service does, where the server shows it: it acquires leases.
    Compared,
    /// An operator's command acquires none.
    Ignored,
}

async fn open_context(
    options: &Arc<Options>,
    connector: &Connector,
    timeline: TimelineUse,
) -> Result<Arc<StoreContext>, PostgresOpenError> {
    let installation = read_installation(options, connector, timeline).await?;
    Ok(Arc::new(StoreContext::new(Arc::clone(options), connector, installation)?))
}

/// Checks or migrates the schema, and reads what was fixed at installation.
async fn read_installation(
    options: &Options,
    connector: &Connector,
    timeline: TimelineUse,
) -> Result<InstalledSchema, PostgresOpenError> {
    let (connection, location) = (connector.connect("open").await?, connector.location());
    let client = &connection.client;
    let open_error = |error: tokio_postgres::Error| PostgresOpenError::from_client(location, &error);
    if options.migrate {
        migrations::apply(client, location, options.partitions).await?;
        archive_days::create(client, options.days_ahead).await.map_err(open_error)?;
    } else if let Some(missing) = migrations::missing(&migrations::status(client, location).await?) {
        return Err(PostgresOpenError::MissingMigrations { location: location.into(), missing });
    }
    let rows = client.query_typed("SELECT id, partitions FROM installation", &[]).await.map_err(open_error)?;
    let refused =
        || PostgresOpenError::Refused { location: location.into(), reason: "the table installation has no row".into() };
    let row = rows.first().ok_or_else(refused)?;
    let installation: uuid::Uuid = get(row, 0).map_err(|_| refused())?;
    let partitions = get::<i32>(row, 1).map_err(|_| refused())?.unsigned_abs();
    let reads_timeline = timeline == TimelineUse::Compared && server_timeline::is_readable(client, location).await?;
    Ok(InstalledSchema { id: installation.to_string(), partitions, reads_timeline })
}
