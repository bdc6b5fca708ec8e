//! `PartitionLeases`: members and who may move which partition's rows.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::partitions::{
    AcquireReason, Acquired, Acquisition, Epoch, Fence, InstanceId, Liveness, MemberView, OpenBatch, PartitionLeases,
    PartitionNo, PartitionView, ProducerSessionId, Release, Token,
};
use tokio_postgres::types::Type;

use crate::error::{Answer, Trouble, retried};
use crate::lease::{self, Lease};
use crate::session::Transaction;
use crate::store::{Core, Postgres};
use crate::value::{Value, get, get_time, get_time_opt, seconds};

/// Members not heard of for a thousand times their `dead_after` are forgotten.
const BEAT: &str = "WITH gone AS (DELETE FROM member WHERE seen_at + 1000 * dead_after < clock_timestamp() AND instance <> $1)
     INSERT INTO member (instance, seen_at, dead_after) VALUES ($1, clock_timestamp(), make_interval(secs => $2))
     ON CONFLICT (instance) DO UPDATE SET seen_at = greatest(member.seen_at, excluded.seen_at), dead_after = excluded.dead_after";

const MEMBERS: &str =
    "SELECT instance, seen_at + make_interval(secs => $1) > clock_timestamp(), seen_at FROM member ORDER BY instance";

const TAKE: &str = "UPDATE outbox_lease SET owner = $2, epoch = $3, counter = $4, died = $5,
       expires_at = clock_timestamp() + make_interval(secs => $6) WHERE partition = $1";

/// A death without them in hand clears the rows that were suspected: what killed was something else.
const FORGIVE: &str = "WITH cleared AS (UPDATE outbox SET deaths = 0, trial_deaths = 0
       WHERE partition = $1 AND deaths > 0 AND NOT (status = 1 AND lease_version = $2) RETURNING key, id)
     UPDATE outbox_waiting w SET suspect = false FROM cleared c WHERE w.partition = $1 AND w.key = c.key AND w.id = c.id";

/// Locked in one order, so that two renewals never wait for each other.
const RENEW: &str =
    "WITH held AS MATERIALIZED (SELECT l.partition FROM unnest($2::int4[], $3::int8[]) AS h (partition, epoch)
       JOIN outbox_lease l ON l.partition = h.partition AND l.epoch = h.epoch
       WHERE l.owner = $1 AND l.expires_at > clock_timestamp() ORDER BY l.partition FOR UPDATE OF l)
     UPDATE outbox_lease l SET expires_at = clock_timestamp() + make_interval(secs => $4) FROM held
     WHERE l.partition = held.partition AND l.owner = $1 AND l.expires_at > clock_timestamp() RETURNING l.partition";

const RELEASE: &str = "UPDATE outbox_lease SET owner = NULL, expires_at = NULL
     WHERE partition = $1 AND owner = $2 AND epoch = $3 AND in_flight IS NULL RETURNING 1";

#[async_trait]
impl PartitionLeases for Postgres {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<Vec<MemberView>, Error> {
        let (core, instance, dead_after) = (self.core(), instance.clone(), seconds(dead_after));
        self.run("heartbeat", async move {
            let session = core.relay().await?;
            session.once(BEAT, &[(&&*instance.0, Type::TEXT), (&dead_after, Type::FLOAT8)]).await?;
            let rows = session.read(MEMBERS, &[(&dead_after, Type::FLOAT8)]).await?;
            let members = rows.iter().map(|row| {
                let instance = InstanceId(get::<String>(row, 0)?.into());
                Ok(MemberView { instance, alive: get(row, 1)?, seen_at: get_time(row, 2)? })
            });
            members.collect()
        })
        .await
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        let (core, instance) = (self.core(), instance.clone());
        self.run("leave", async move {
            let text = "DELETE FROM member WHERE instance = $1";
            core.relay().await?.once(text, &[(&&*instance.0, Type::TEXT)]).await?;
            Ok(())
        })
        .await
    }

    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        because: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let (core, taking) = (self.core(), Taking { partition, owner: owner.clone(), because, watermark, ttl });
        self.run("acquire", async move {
            core.lows.lock().remove(&partition.0);
            retried!(acquire(&core, &taking))
        })
        .await
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
        let (core, owner) = (self.core(), owner.clone());
        let partitions: Vec<i32> = held.iter().map(|(partition, _)| partition.0 as i32).collect();
        let epochs: Vec<i64> = held.iter().map(|(_, epoch)| *epoch as i64).collect();
        self.run("renew", async move {
            let (owner, ttl) = (&*owner.0, seconds(ttl));
            let values: [Value<'_>; 4] = [
                (&owner, Type::TEXT),
                (&partitions, Type::INT4_ARRAY),
                (&epochs, Type::INT8_ARRAY),
                (&ttl, Type::FLOAT8),
            ];
            let rows = retried!(async { core.relay().await?.once(RENEW, &values).await })?;
            let ours = rows.iter().map(|row| Ok(PartitionNo(get::<i32>(row, 0)?.unsigned_abs())));
            let mut ours = ours.collect::<Result<Vec<_>, Trouble>>()?;
            ours.sort_unstable();
            Ok(ours)
        })
        .await
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<Release, Error> {
        let (core, owner) = (self.core(), owner.clone());
        self.run("release", async move {
            let session = core.relay().await?;
            let values: [Value<'_>; 3] =
                [(&(partition.0 as i32), Type::INT4), (&&*owner.0, Type::TEXT), (&(epoch as i64), Type::INT8)];
            if !session.once(RELEASE, &values).await?.is_empty() {
                return Ok(Release::Done);
            }
            let fence = Fence { partition, owner, epoch, counter: 0 };
            let lease = lease::read(&session, partition).await?.filter(|lease| lease.is_of(&fence));
            Ok(if lease.is_some_and(|lease| lease.in_flight.is_some()) { Release::InFlight } else { Release::NotOurs })
        })
        .await
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let core = self.core();
        self.run("overview", async move { overview(&core).await }).await
    }
}

/// Who takes what, and why.
struct Taking {
    partition: PartitionNo,
    owner: InstanceId,
    because: AcquireReason,
    watermark: Option<Token>,
    ttl: Duration,
}

async fn acquire(core: &Core, taking: &Taking) -> Answer<Acquisition> {
    let (transaction, found) = lease::lock(core.relay().await?, taking.partition).await?;
    let Some(lease) = found else {
        return Err(Trouble::Said(Error::Rejected(format!("there is no partition {}", taking.partition))));
    };
    let heart = match lease.owner.as_deref() {
        Some(former) => lease::heart(&transaction, former).await?,
        None => Liveness::Unknown,
    };
    if lease.held_against(&taking.owner, heart) {
        transaction.rollback().await?;
        let by = InstanceId(lease.owner.unwrap_or_default().into());
        return Ok(Acquisition::Held { by, remaining: lease.left });
    }
    take(transaction, taking, lease, heart).await
}

async fn take(transaction: Transaction, taking: &Taking, lease: Lease, heart: Liveness) -> Answer<Acquisition> {
    let Taking { partition, owner, because, watermark, ttl } = taking;
    let number = partition.0 as i32;
    let owner_died = because.owner_died(lease.owner.as_deref(), owner, heart);
    let died = lease.claimer_died(owner_died);
    if *because == AcquireReason::Vacant && owner_died {
        let token = lease.in_flight.as_ref().map_or(-1, |open| open.token as i64);
        transaction.query(FORGIVE, &[(&number, Type::INT4), (&token, Type::INT8)]).await?;
    }
    let epoch = lease.epoch + 1;
    let counter = lease.counter.max(watermark.unwrap_or(0)) + 1;
    let values: [Value<'_>; 6] = [
        (&number, Type::INT4),
        (&&*owner.0, Type::TEXT),
        (&(epoch as i64), Type::INT8),
        (&(counter as i64), Type::INT8),
        (&died, Type::BOOL),
        (&seconds(*ttl), Type::FLOAT8),
    ];
    transaction.query(TAKE, &values).await?;
    transaction.commit().await?;
    let in_flight = lease.in_flight.map(|open| OpenBatch {
        token: open.token,
        session: ProducerSessionId(open.lane.into()),
        claimer_died: died,
    });
    let fence = Fence { partition: *partition, owner: owner.clone(), epoch, counter };
    Ok(Acquisition::Taken(Acquired { fence, in_flight }))
}

async fn overview(core: &Core) -> Answer<Vec<PartitionView>> {
    let depths = crate::depth::by_partition(core).await?;
    let text = "SELECT partition, owner, epoch, counter, in_flight, expires_at FROM outbox_lease ORDER BY partition";
    let rows = core.relay().await?.read(text, &[]).await?;
    let view = |row| {
        let partition = PartitionNo(get::<i32>(row, 0)?.unsigned_abs());
        Ok(PartitionView {
            partition,
            owner: get::<Option<String>>(row, 1)?.map(|name| InstanceId(name.into())),
            epoch: get::<i64>(row, 2)? as u64,
            counter: get::<i64>(row, 3)? as u64,
            in_flight: get::<Option<i64>>(row, 4)?.map(|token| token as u64),
            expires_at: get_time_opt(row, 5)?,
            depth: depths.get(&partition).copied().unwrap_or_default(),
        })
    };
    rows.iter().map(view).collect()
}
