//! The port `PartitionLeases`: heartbeats, leases, and the overview of all partitions.
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use outbox::limits::{HEARTBEAT_AHEAD_MAX, INSTANCE_RETENTION_FACTOR};
use ports::Error;
use ports::partitions::{
    AcquireReason, Acquisition, Epoch, FreePartition, InstanceId, InstanceLoad, InstanceRank, LeaseSurvey,
    PartitionLeases, PartitionNo, PartitionView, ReleaseOutcome, Renewal, TimelineAcceptance, TimelineChange, Token,
};
use tokio_postgres::types::Type;

use crate::connection::server_timeline;
use crate::connection::sql_value::{SqlValue, get, get_time_opt, seconds};
use crate::connection::statement_error::{StatementError, StatementResult, broken, retry_conflicts};
use crate::leases::acquire::{self, AcquireRequest};
use crate::leases::{renew, timeline};
use crate::outbox::depth;
use crate::store::context::StoreContext;
use crate::store::postgres::Postgres;

/// Writes this instance's heartbeat: the time at which the row is locked, so that the last of concurrent heartbeats takes effect, and so that a clock
/// that was set back leaves no time in the future. Counts the other members: the live ones whose name sorts before $1, all live ones, those whose
/// heartbeat is older than $3 times their `dead_after`, and those whose heartbeat lies more than $4 seconds ahead. The counts are of the moment
/// before the statement.
const HEARTBEAT: &str = "WITH own AS (INSERT INTO relay_instance (instance, seen_at, dead_after) VALUES ($1, clock_timestamp(), make_interval(secs => $2))
       ON CONFLICT (instance) DO UPDATE SET seen_at = clock_timestamp(), dead_after = excluded.dead_after)
     SELECT count(*) FILTER (WHERE alive AND instance < $1), count(*) FILTER (WHERE alive),
       count(*) FILTER (WHERE NOT alive AND seen_at + $3 * dead_after < statement_timestamp()),
       count(*) FILTER (WHERE seen_at > statement_timestamp() + make_interval(secs => $4))
     FROM (SELECT instance, seen_at, dead_after, seen_at + dead_after > statement_timestamp() AS alive FROM relay_instance
       WHERE instance <> $1 OFFSET 0) m";

/// Deletes the members whose heartbeat is older than $1 times their `dead_after`.
const DELETE_DEAD_MEMBERS: &str = "DELETE FROM relay_instance WHERE seen_at + $1 * dead_after < clock_timestamp()";

/// Sets the heartbeats that lie more than $1 seconds ahead to the present. It skips a row that another instance has locked, because that instance
/// renews it or does the same: two of them never wait for each other.
const LOWER_HEARTBEATS: &str = "UPDATE relay_instance SET seen_at = clock_timestamp() WHERE instance IN
       (SELECT instance FROM relay_instance WHERE seen_at > clock_timestamp() + make_interval(secs => $1) FOR UPDATE SKIP LOCKED)";

/// The members, and the holders of instance ids that were seen within $1 seconds: an instance without a relay is no member, and has producer
/// sessions nevertheless, for the messages that it forwards.
const MEMBERS_AND_HOLDERS: &str = "SELECT instance FROM relay_instance UNION
     SELECT name FROM instance WHERE seen_at > clock_timestamp() - make_interval(secs => $1) ORDER BY 1";

/// One row of arrays: the live members, the number of leases of each, the partitions of $1, the free ones, and for how many milliseconds each
/// of these has been free.
const SURVEY: &str = "WITH lease AS MATERIALIZED (SELECT l.partition, l.owner, least(l.expires_at, m.dies) AS since,
         l.owner IS NULL OR l.expires_at <= statement_timestamp() OR coalesce(m.dies <= statement_timestamp(), false) AS free
       FROM outbox_lease l
       LEFT JOIN (SELECT instance, seen_at + dead_after AS dies FROM relay_instance OFFSET 0) m ON m.instance = l.owner),
     load AS MATERIALIZED (SELECT m.instance, coalesce(held.count, 0)::int4 AS held FROM relay_instance m
       LEFT JOIN (SELECT owner, count(*) FROM lease WHERE NOT free GROUP BY owner) held ON held.owner = m.instance
       WHERE m.seen_at + m.dead_after > statement_timestamp())
     SELECT (SELECT array_agg(instance ORDER BY instance) FROM load), (SELECT array_agg(held ORDER BY instance) FROM load),
       (SELECT array_agg(partition ORDER BY partition) FROM lease WHERE owner = $1 AND NOT free),
       (SELECT array_agg(partition ORDER BY since NULLS FIRST, partition) FROM lease WHERE free),
       (SELECT array_agg((extract(epoch FROM statement_timestamp() - coalesce(since, to_timestamp(0))) * 1000)::int8
         ORDER BY since NULLS FIRST, partition) FROM lease WHERE free)";

#[async_trait]
impl PartitionLeases for Postgres {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error> {
        let (context, instance, dead_after) = (self.context(), instance.clone(), seconds(dead_after));
        self.run("heartbeat", async move { heartbeat(&context, &instance, dead_after).await }).await
    }

    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error> {
        let (context, instance) = (self.context(), instance.clone());
        self.run("survey", async move { survey(&context, &instance).await }).await
    }

    async fn members(&self) -> Result<Vec<InstanceId>, Error> {
        let context = self.context();
        self.run("members", async move {
            let retention = context.options.dead_after.as_secs_f64() * f64::from(INSTANCE_RETENTION_FACTOR);
            let rows = context.relay_session().await?.query(MEMBERS_AND_HOLDERS, &[(&retention, Type::FLOAT8)]).await?;
            rows.iter().map(|row| Ok(InstanceId(get::<&str>(row, 0)?.into()))).collect()
        })
        .await
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        let (context, instance) = (self.context(), instance.clone());
        self.run("leave", async move {
            let text = "DELETE FROM relay_instance WHERE instance = $1";
            context.relay_session().await?.execute(text, &[(&&*instance.0, Type::TEXT)]).await?;
            Ok(())
        })
        .await
    }

    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        reason: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let context = self.context();
        let request = AcquireRequest { partition, owner: owner.clone(), reason, watermark, ttl };
        self.run("acquire", async move {
            context.scan_starts.take(partition.0);
            retry_conflicts!(acquire::acquire(&context, &request))
        })
        .await
    }

    async fn accept_timeline(
        &self,
        change: &TimelineChange,
        watermarks: &BTreeMap<PartitionNo, Token>,
    ) -> Result<TimelineAcceptance, Error> {
        let (context, timeline) = (self.context(), &change.timeline);
        let (change, watermarks) = (change.clone(), watermarks.clone());
        let accept = async move { retry_conflicts!(timeline::accept_timeline(&context, &change, &watermarks)) };
        let acceptance = self.run("accept_timeline", accept).await?;
        // Only here: the statements also run to their end for a caller that has gone and will repeat the call.
        self.context().unanswered_acceptance.lock().take_if(|unanswered| unanswered.timeline == *timeline);
        Ok(acceptance)
    }

    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error> {
        if held.is_empty() {
            return Ok(Renewal::default());
        }
        let (context, owner, held) = (self.context(), owner.clone(), held.to_vec());
        self.run("renew", async move { renew::renew(&context, &owner, &held, ttl).await }).await
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error> {
        let (context, owner) = (self.context(), owner.clone());
        self.run("release", async move { retry_conflicts!(acquire::release(&context, partition, &owner, epoch)) }).await
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let context = self.context();
        self.run("overview", async move { overview(&context).await }).await
    }
}

async fn heartbeat(context: &StoreContext, instance: &InstanceId, dead_after: f64) -> StatementResult<InstanceRank> {
    let session = context.relay_session().await?;
    if context.reads_timeline && context.options.pooler {
        server_timeline::compare(&session).await?;
    }
    let (retention, ahead_max) = (f64::from(INSTANCE_RETENTION_FACTOR), seconds(HEARTBEAT_AHEAD_MAX));
    let values: [SqlValue<'_>; 4] = [
        (&&*instance.0, Type::TEXT),
        (&dead_after, Type::FLOAT8),
        (&retention, Type::FLOAT8),
        (&ahead_max, Type::FLOAT8),
    ];
    let rows = session.execute(HEARTBEAT, &values).await?;
    let counts = rows.first().ok_or_else(|| broken("a heartbeat without a count"))?;
    let count = |column| Ok::<_, StatementError>(u32::try_from(get::<i64>(counts, column)?).unwrap_or(u32::MAX));
    if count(2)? > 0 {
        session.execute(DELETE_DEAD_MEMBERS, &[(&retention, Type::FLOAT8)]).await?;
    }
    if count(3)? > 0 {
        session.execute(LOWER_HEARTBEATS, &[(&ahead_max, Type::FLOAT8)]).await?;
    }
    Ok(InstanceRank { rank: count(0)?, live: count(1)?.saturating_add(1) })
}

async fn survey(context: &StoreContext, instance: &InstanceId) -> StatementResult<LeaseSurvey> {
    let rows = context.relay_session().await?.query(SURVEY, &[(&&*instance.0, Type::TEXT)]).await?;
    let row = rows.first().ok_or_else(|| broken("a survey without a row"))?;
    let names = get::<Option<Vec<&str>>>(row, 0)?.unwrap_or_default();
    let loads = get::<Option<Vec<i32>>>(row, 1)?.unwrap_or_default();
    let member =
        |(name, held): (&str, i32)| InstanceLoad { instance: InstanceId(name.into()), held: held.unsigned_abs() };
    let partitions = |column| {
        let numbers = get::<Option<Vec<i32>>>(row, column)?.unwrap_or_default();
        Ok::<_, StatementError>(numbers.into_iter().map(|number| PartitionNo(number.unsigned_abs())))
    };
    let idle = get::<Option<Vec<i64>>>(row, 4)?.unwrap_or_default();
    let idle = idle.into_iter().map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
    let free = partitions(3)?.zip(idle).map(|(partition, idle)| FreePartition { partition, idle }).collect();
    let members = names.into_iter().zip(loads).map(member).collect();
    Ok(LeaseSurvey { members, own: partitions(2)?.collect(), free })
}

async fn overview(context: &StoreContext) -> StatementResult<Vec<PartitionView>> {
    let depths = depth::by_partition(context).await?;
    let text = "SELECT partition, owner, epoch, counter, in_flight, CASE WHEN owner IS NOT NULL THEN expires_at END
         FROM outbox_lease ORDER BY partition";
    let rows = context.relay_session().await?.query(text, &[]).await?;
    let view = |row| {
        let partition = PartitionNo(get::<i32>(row, 0)?.unsigned_abs());
        Ok(PartitionView {
            partition,
            owner: get::<Option<&str>>(row, 1)?.map(|name| InstanceId(name.into())),
            epoch: get::<i64>(row, 2)? as u64,
            counter: get::<i64>(row, 3)? as u64,
            open_batch: get::<Option<i64>>(row, 4)?.map(|token| token as u64),
            expires_at: get_time_opt(row, 5)?,
            depth: depths.get(&partition).copied().unwrap_or_default(),
        })
    };
    rows.iter().map(view).collect()
}
