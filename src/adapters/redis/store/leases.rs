//! `PartitionLeases`: members and who may move which partition's rows.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::partitions::{
    AcquireReason, Acquired, Acquisition, Epoch, Fence, InstanceId, MemberView, OpenBatch, PartitionLeases,
    PartitionNo, PartitionView, ProducerSessionId, Release, Token,
};

use super::words::{Reply, Words, broken};
use super::{Lost, RedisStore, millis};

#[async_trait]
impl PartitionLeases for RedisStore {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<Vec<MemberView>, Error> {
        let boot = if self.inner.held.as_deref() == Some(&*instance.0) { self.boot() } else { "" };
        let words = Words::new().text(&instance.0).number(millis(dead_after)).text(boot);
        let mut told = self.parts("heartbeat", &self.inner.scripts.heartbeat, words).await?;
        if !told.flag(0)? {
            self.inner.lost.send_replace(Some(Lost { instance: instance.to_string() }));
            return Err(Error::Unreachable(format!("the name {instance} has been taken by another process")));
        }
        let mut members = (1..told.len()).map(|at| member(Reply::of(told.take(at))?)).collect::<Result<Vec<_>, _>>()?;
        members.sort_by(|a, b| a.instance.cmp(&b.instance));
        Ok(members)
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        let mut leave = deadpool_redis::redis::cmd("HDEL");
        leave.arg(format!("{}members", self.inner.front)).arg(&*instance.0);
        self.inner.redis.inner.ask_one("leave", leave).await
    }

    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        because: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        if partition.0 >= self.partitions() {
            return Err(Error::Rejected(format!("there is no partition {partition}")));
        }
        let because = match because {
            AcquireReason::Vacant => "vacant",
            AcquireReason::WorkerDied => "worker",
            AcquireReason::Uncertain => "uncertain",
        };
        let watermark = watermark.map_or(String::new(), |token| token.to_string());
        let words = Words::new().number(partition).text(&owner.0).text(because).text(watermark).number(millis(ttl));
        let mut told = self.parts("acquire", &self.inner.scripts.acquire, words).await?;
        if told.text(0)? == "HELD" {
            let remaining = Duration::from_millis(told.number(2)?);
            return Ok(Acquisition::Held { by: InstanceId(told.text(1)?.into()), remaining });
        }
        let fence = Fence { partition, owner: owner.clone(), epoch: told.number(1)?, counter: told.number(2)? };
        let in_flight = match told.maybe_number(3)? {
            Some(token) => {
                Some(OpenBatch { token, session: ProducerSessionId(told.text(4)?.into()), claimer_died: told.flag(5)? })
            }
            None => None,
        };
        Ok(Acquisition::Taken(Acquired { fence, in_flight }))
    }

    async fn renew(
        &self,
        owner: &InstanceId,
        held: &[(PartitionNo, Epoch)],
        ttl: Duration,
    ) -> Result<Vec<PartitionNo>, Error> {
        let words = Words::new().text("renew").text(&owner.0).number(millis(ttl));
        let words = held.iter().fold(words, |words, (partition, epoch)| words.number(partition).number(epoch));
        let mut told = self.parts("renew", &self.inner.scripts.leases, words).await?;
        (0..told.len()).map(|at| told.number(at).map(PartitionNo)).collect()
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<Release, Error> {
        let words = Words::new().text("release").text(&owner.0).number(partition).number(epoch);
        let told = self.change("release", &self.inner.scripts.leases, words).await?;
        let told = Reply::one(told).text(0)?;
        match &*told {
            "DONE" => Ok(Release::Done),
            "IN_FLIGHT" => Ok(Release::InFlight),
            "NOT_OURS" => Ok(Release::NotOurs),
            other => Err(broken(format!("a release came to {other}"))),
        }
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let words = Words::new().text("overview").number(self.partitions());
        let told = self.seen("overview", &self.inner.scripts.leases, words).await?;
        (0..).map(PartitionNo).zip(told.lists()?).map(|(partition, lease)| view(partition, lease)).collect()
    }
}

fn member(mut told: Reply) -> Result<MemberView, Error> {
    let seen_at = told.time(2)?.ok_or_else(|| broken("a member without a time"))?;
    Ok(MemberView { instance: InstanceId(told.text(0)?.into()), alive: told.flag(1)?, seen_at })
}

fn view(partition: PartitionNo, mut lease: Reply) -> Result<PartitionView, Error> {
    Ok(PartitionView {
        partition,
        owner: lease.maybe(0)?.map(|owner| InstanceId(owner.into())),
        epoch: lease.number(1)?,
        counter: lease.number(2)?,
        in_flight: lease.maybe_number(3)?,
        expires_at: lease.time(4)?,
        depth: lease.number(5)?,
    })
}
