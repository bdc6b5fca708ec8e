//! `PartitionLeases`: members, and which instance may move the rows of a partition. The scripts apply the rules of a lease by the server's
//! clock.
use std::time::Duration;

use async_trait::async_trait;
use deadpool_redis::redis::{Value, cmd};
use ports::Error;
use ports::partitions::{
    AcquireReason, AcquiredLease, Acquisition, Epoch, FreePartition, InstanceId, InstanceLoad, InstanceRank,
    LeaseFence, LeaseSurvey, OpenBatch, PartitionLeases, PartitionNo, PartitionView, ProducerSessionId, ReleaseOutcome,
    Renewal, Token,
};

use crate::store::arguments::ScriptArguments;
use crate::store::call::millis;
use crate::store::client::RedisStore;
use crate::store::reply::{Reply, broken};

#[async_trait]
impl PartitionLeases for RedisStore {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error> {
        let boot_id = if self.inner.held_instance_id.as_deref() == Some(&*instance.0) { self.boot_id() } else { "" };
        let arguments = self.renewal_arguments(&instance.0, boot_id, dead_after);
        let mut reply = self.write_list("heartbeat", &self.inner.scripts.heartbeat, arguments).await?;
        if !reply.flag(0)? {
            let by = self.record_instance_id_taken_over(&instance.0, &reply.text(3)?);
            return Err(Error::Unreachable(format!("the instance id {instance} has been taken by {by}")));
        }
        Ok(InstanceRank { rank: reply.number(1)?, live: reply.number(2)? })
    }

    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error> {
        let arguments = ScriptArguments::new().text(&instance.0).number(self.partitions());
        let mut reply = self.read_list("survey", &self.inner.scripts.survey, arguments).await?;
        let members = Reply::from_value(reply.take(0))?.lists()?.into_iter().map(member).collect::<Result<_, _>>()?;
        let free =
            Reply::from_value(reply.take(2))?.lists()?.into_iter().map(free_partition).collect::<Result<_, _>>()?;
        Ok(LeaseSurvey { members, own: partitions(reply.take(1))?, free })
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        let mut delete = cmd("HDEL");
        delete.arg(format!("{}members", self.inner.prefix)).arg(&*instance.0);
        self.inner.redis.inner.store_command("leave", delete).await
    }

    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        reason: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        if partition.0 >= self.partitions() {
            return Err(Error::Rejected(format!("there is no partition {partition}")));
        }
        let reason = match reason {
            AcquireReason::Unowned => "unowned",
            AcquireReason::WorkerDied => "worker_died",
            AcquireReason::OutcomeUnknown => "outcome_unknown",
        };
        let watermark = watermark.map_or(String::new(), |token| token.to_string());
        let arguments =
            ScriptArguments::new().number(partition).text(&owner.0).text(reason).text(watermark).number(millis(ttl));
        let mut reply = self.write_list("acquire", &self.inner.scripts.acquire, arguments).await?;
        if reply.text(0)? == "HELD" {
            let remaining = Duration::from_millis(reply.number(2)?);
            return Ok(Acquisition::Held { by: InstanceId(reply.text(1)?.into()), remaining });
        }
        let fence = LeaseFence { partition, owner: owner.clone(), epoch: reply.number(1)?, counter: reply.number(2)? };
        let open_batch = match reply.optional_number(3)? {
            Some(token) => Some(OpenBatch {
                token,
                session: ProducerSessionId(reply.text(4)?.into()),
                claimer_died: reply.flag(5)?,
            }),
            None => None,
        };
        Ok(Acquisition::Acquired(AcquiredLease { fence, open_batch }))
    }

    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error> {
        let arguments = ScriptArguments::new().text(&owner.0).number(millis(ttl));
        let arguments =
            held.iter().fold(arguments, |arguments, (partition, epoch)| arguments.number(partition).number(epoch));
        let mut reply = self.write_list("renew", &self.inner.scripts.renew, arguments).await?;
        let renewed = (0..reply.len()).map(|index| reply.number(index).map(PartitionNo)).collect::<Result<_, _>>()?;
        Ok(Renewal { renewed, locked: Vec::new() })
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error> {
        let arguments = ScriptArguments::new().text(&owner.0).number(partition).number(epoch);
        let reply = self.write("release", &self.inner.scripts.release, arguments).await?;
        match &*Reply::single(reply).text(0)? {
            "DONE" => Ok(ReleaseOutcome::Done),
            "IN_FLIGHT" => Ok(ReleaseOutcome::InFlight),
            "NOT_HELD" => Ok(ReleaseOutcome::NotHeld),
            other => Err(broken(format!("the result of a release is {other:?}"))),
        }
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let arguments = ScriptArguments::new().number(self.partitions());
        let reply = self.read_list("overview", &self.inner.scripts.overview, arguments).await?;
        (0..).map(PartitionNo).zip(reply.lists()?).map(|(partition, lease)| view(partition, lease)).collect()
    }
}

fn member(mut reply: Reply) -> Result<InstanceLoad, Error> {
    Ok(InstanceLoad { instance: InstanceId(reply.text(0)?.into()), held: reply.number(1)? })
}

fn free_partition(mut reply: Reply) -> Result<FreePartition, Error> {
    Ok(FreePartition { partition: PartitionNo(reply.number(0)?), idle: Duration::from_millis(reply.number(1)?) })
}

fn partitions(numbers: Value) -> Result<Vec<PartitionNo>, Error> {
    let mut numbers = Reply::from_value(numbers)?;
    (0..numbers.len()).map(|index| numbers.number(index).map(PartitionNo)).collect()
}

fn view(partition: PartitionNo, mut lease: Reply) -> Result<PartitionView, Error> {
    Ok(PartitionView {
        partition,
        owner: lease.optional_text(0)?.map(|owner| InstanceId(owner.into())),
        epoch: lease.number(1)?,
        counter: lease.number(2)?,
        open_batch: lease.optional_number(3)?,
        expires_at: lease.time(4)?,
        depth: lease.number(5)?,
    })
}
