//! `RedriveLedger`: which dead letters were sent back, by whom and why.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::operators::Audit;
use ports::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};

use super::words::{Reply, Words, broken};
use super::{RedisStore, millis};

#[async_trait]
impl RedriveLedger for RedisStore {
    async fn reserve(
        &self,
        letters: &[DeadLetterId],
        again_after: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let words = Words::new().text("take").number(millis(again_after)).text(&audit.operator).text(&audit.reason);
        let mut told = self.parts("letters_take", &self.inner.scripts.letters, named(words, letters)).await?;
        (0..told.len()).map(|at| told.flag(at)).collect()
    }

    async fn confirm(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        let words = named(Words::new().text("arrived"), letters);
        self.change("letters_arrived", &self.inner.scripts.letters, words).await.map(drop)
    }

    async fn release(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        let words = named(Words::new().text("release"), letters);
        self.change("letters_release", &self.inner.scripts.letters, words).await.map(drop)
    }

    async fn find(&self, letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        let words = named(Words::new().text("known"), letters);
        let told = self.seen("letters_known", &self.inner.scripts.letters, words).await?;
        told.lists()?.into_iter().map(redriven).collect()
    }
}

/// The topic comes last: anything may stand in its name.
fn named(words: Words, letters: &[DeadLetterId]) -> Words {
    let name = |DeadLetterId { position: at, timestamp }: &DeadLetterId| {
        format!("{}/{}@{} {}", at.partition, at.offset, timestamp.millis(), at.topic)
    };
    letters.iter().fold(words, |words, letter| words.text(name(letter)))
}

fn redriven(mut told: Reply) -> Result<Option<RedriveRecord>, Error> {
    if told.len() == 0 {
        return Ok(None);
    }
    let at = told.time(2)?.ok_or_else(|| broken("a letter without a time"))?;
    let audit = Audit { operator: told.text(0)?, reason: told.text(1)? };
    Ok(Some(RedriveRecord { audit, at, confirmed: told.flag(3)? }))
}
