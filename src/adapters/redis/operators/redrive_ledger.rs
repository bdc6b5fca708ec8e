//! `RedriveLedger`: the dead letters that operators redrove, with operator and reason.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::operators::Audit;
use ports::operators::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};

use crate::store::arguments::ScriptArguments;
use crate::store::call::millis;
use crate::store::client::RedisStore;
use crate::store::reply::{Reply, broken};

#[async_trait]
impl RedriveLedger for RedisStore {
    async fn reserve(
        &self,
        dead_letters: &[DeadLetterId],
        reservation_timeout: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let arguments =
            ScriptArguments::new().number(millis(reservation_timeout)).text(&audit.operator).text(&audit.reason);
        let arguments = with_ids(arguments, dead_letters);
        let mut reply = self.write_list("redrive_reserve", &self.inner.scripts.reserve_redrives, arguments).await?;
        (0..reply.len()).map(|index| reply.flag(index)).collect()
    }

    async fn confirm(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        let arguments = with_ids(ScriptArguments::new(), dead_letters);
        self.write("redrive_confirm", &self.inner.scripts.confirm_redrives, arguments).await.map(drop)
    }

    async fn release(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        let arguments = with_ids(ScriptArguments::new(), dead_letters);
        self.write("redrive_release", &self.inner.scripts.release_redrives, arguments).await.map(drop)
    }

    async fn find(&self, dead_letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        let arguments = with_ids(ScriptArguments::new(), dead_letters);
        let reply = self.read_list("redrive_find", &self.inner.scripts.find_redrives, arguments).await?;
        reply.lists()?.into_iter().map(record).collect()
    }
}

/// Adds the ids as texts. The topic comes last, because its name may contain any character.
fn with_ids(arguments: ScriptArguments, dead_letters: &[DeadLetterId]) -> ScriptArguments {
    let id = |DeadLetterId { position, timestamp }: &DeadLetterId| {
        format!("{}/{}@{} {}", position.partition, position.offset, timestamp.millis(), position.topic)
    };
    dead_letters.iter().fold(arguments, |arguments, dead_letter| arguments.text(id(dead_letter)))
}

fn record(mut reply: Reply) -> Result<Option<RedriveRecord>, Error> {
    if reply.is_empty() {
        return Ok(None);
    }
    let at = reply.time(2)?.ok_or_else(|| broken("a redrive record without a time"))?;
    let audit = Audit { operator: reply.text(0)?, reason: reply.text(1)? };
    Ok(Some(RedriveRecord { audit, at, confirmed: reply.flag(3)? }))
}
