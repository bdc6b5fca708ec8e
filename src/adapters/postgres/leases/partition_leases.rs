//! The port `PartitionLeases`: heartbeats, leases, and the overview of all partitions.
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use outbox::limits::MEMBER_RETENTION_FACTOR;
use ports::Error;
use ports::partitions::{
    AcquireReason, Acquisition, Adoption, Epoch, InstanceId, MemberView, PartitionLeases, PartitionNo, PartitionView,
    Release, TimelineChange, Token,
};
use tokio_postgres::types::Type;

use crate::connection::server_timeline;
use crate::connection::sql_value::{SqlValue, get, get_time, get_time_opt, seconds};
use crate::connection::statement_error::{StatementResult, retry_conflicts};
use crate::leases::acquire::{self, AcquireRequest};
use crate::leases::timeline;
use crate::outbox::depth;
use crate::store::core::Core;
use crate::store::postgres::Postgres;

/// Deletes members whose heartbeat is older than $3 times their `dead_after`, and writes this instance's.
const HEARTBEAT: &str = "WITH gone AS (DELETE FROM member WHERE seen_at + $3 * dead_after < clock_timestamp() AND instance <> $1)
     INSERT INTO member (instance, seen_at, dead_after) VALUES ($1, clock_timestamp(), make_interval(secs => $2))
     ON CONFLICT (instance) DO UPDATE SET seen_at = greatest(member.seen_at, excluded.seen_at), dead_after = excluded.dead_after";

const MEMBERS: &str =
    "SELECT instance, seen_at + make_interval(secs => $1) > clock_timestamp(), seen_at FROM member ORDER BY instance";

/// Locks the rows in the order of their numbers, so that two renewals never deadlock.
const RENEW: &str =
    "WITH held AS MATERIALIZED (SELECT l.partition FROM unnest($2::int4[], $3::int8[]) AS h (partition, epoch)
       JOIN outbox_lease l ON l.partition = h.partition AND l.epoch = h.epoch
       WHERE l.owner = $1 AND l.expires_at > clock_timestamp() ORDER BY l.partition FOR UPDATE OF l)
     UPDATE outbox_lease l SET expires_at = clock_timestamp() + make_interval(secs => $4) FROM held
     WHERE l.partition = held.partition AND l.owner = $1 AND l.expires_at > clock_timestamp() RETURNING l.partition";

#[async_trait]
impl PartitionLeases for Postgres {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<Vec<MemberView>, Error> {
        let (core, instance, dead_after) = (self.core(), instance.clone(), seconds(dead_after));
        self.run("heartbeat", async move { heartbeat(&core, &instance, dead_after).await }).await
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        let (core, instance) = (self.core(), instance.clone());
        self.run("leave", async move {
            let text = "DELETE FROM member WHERE instance = $1";
            core.relay_session().await?.execute(text, &[(&&*instance.0, Type::TEXT)]).await?;
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
        let core = self.core();
        let request = AcquireRequest { partition, owner: owner.clone(), reason, watermark, ttl };
        self.run("acquire", async move {
            core.scan_memory.take(partition.0);
            retry_conflicts!(acquire::acquire(&core, &request))
        })
        .await
    }

    async fn adopt(
        &self,
        change: &TimelineChange,
        watermarks: &BTreeMap<PartitionNo, Token>,
    ) -> Result<Adoption, Error> {
        let (core, change, watermarks) = (self.core(), change.clone(), watermarks.clone());
        self.run("adopt", async move { retry_conflicts!(timeline::adopt(&core, &change, &watermarks)) }).await
    }

    async fn renew(
        &self,
        owner: &InstanceId,
        held: &[(PartitionNo, Epoch)],
        ttl: Duration,
    ) -> Result<Vec<PartitionNo>, Error> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let (core, owner, held) = (self.core(), owner.clone(), held.to_vec());
        self.run("renew", async move { renew(&core, &owner, &held, ttl).await }).await
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<Release, Error> {
        let (core, owner) = (self.core(), owner.clone());
        self.run("release", async move { retry_conflicts!(acquire::release(&core, partition, &owner, epoch)) }).await
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let core = self.core();
        self.run("overview", async move { overview(&core).await }).await
    }
}

async fn heartbeat(core: &Core, instance: &InstanceId, dead_after: f64) -> StatementResult<Vec<MemberView>> {
    let session = core.relay_session().await?;
    if core.reads_timeline && core.options.pooler {
        server_timeline::compare(&session).await?;
    }
    let retention = f64::from(MEMBER_RETENTION_FACTOR);
    let values: [SqlValue<'_>; 3] =
        [(&&*instance.0, Type::TEXT), (&dead_after, Type::FLOAT8), (&retention, Type::FLOAT8)];
    session.execute(HEARTBEAT, &values).await?;
    let rows = session.query(MEMBERS, &[(&dead_after, Type::FLOAT8)]).await?;
    let members = rows.iter().map(|row| {
        let instance = InstanceId(get::<&str>(row, 0)?.into());
        Ok(MemberView { instance, alive: get(row, 1)?, seen_at: get_time(row, 2)? })
    });
    members.collect()
}

async fn renew(
    core: &Core,
    owner: &InstanceId,
    held: &[(PartitionNo, Epoch)],
    ttl: Duration,
) -> StatementResult<Vec<PartitionNo>> {
    let partitions: Vec<i32> = held.iter().map(|(partition, _)| partition.0 as i32).collect();
    let epochs: Vec<i64> = held.iter().map(|(_, epoch)| *epoch as i64).collect();
    let ttl = seconds(ttl);
    let values: [SqlValue<'_>; 4] =
        [(&&*owner.0, Type::TEXT), (&partitions, Type::INT4_ARRAY), (&epochs, Type::INT8_ARRAY), (&ttl, Type::FLOAT8)];
    let rows = retry_conflicts!(async { core.relay_session().await?.execute(RENEW, &values).await })?;
    let renewed = rows.iter().map(|row| Ok(PartitionNo(get::<i32>(row, 0)?.unsigned_abs())));
    let mut renewed = renewed.collect::<StatementResult<Vec<_>>>()?;
    renewed.sort_unstable();
    Ok(renewed)
}

async fn overview(core: &Core) -> StatementResult<Vec<PartitionView>> {
    let depths = depth::by_partition(core).await?;
    let text = "SELECT partition, owner, epoch, counter, in_flight, expires_at FROM outbox_lease ORDER BY partition";
    let rows = core.relay_session().await?.query(text, &[]).await?;
    let view = |row| {
        let partition = PartitionNo(get::<i32>(row, 0)?.unsigned_abs());
        Ok(PartitionView {
            partition,
            owner: get::<Option<&str>>(row, 1)?.map(|name| InstanceId(name.into())),
            epoch: get::<i64>(row, 2)? as u64,
            counter: get::<i64>(row, 3)? as u64,
            in_flight: get::<Option<i64>>(row, 4)?.map(|token| token as u64),
            expires_at: get_time_opt(row, 5)?,
            depth: depths.get(&partition).copied().unwrap_or_default(),
        })
    };
    rows.iter().map(view).collect()
}
