//! `Redrives`: which dead letters were sent back, by whom and why.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::operators::Audit;
use ports::redrives::{Letter, Redriven, Redrives};

use super::words::{Reply, Words, broken};
use super::{RedisStore, millis};

#[async_trait]
impl Redrives for RedisStore {
    async fn take(&self, letters: &[Letter], again_after: Duration, audit: &Audit) -> Result<Vec<bool>, Error> {
        let words = Words::new().text("take").number(millis(again_after)).text(&audit.who).text(&audit.why);
        let mut told = self.parts("letters_take", &self.inner.scripts.letters, named(words, letters)).await?;
        (0..told.len()).map(|at| told.flag(at)).collect()
    }

    async fn arrived(&self, letters: &[Letter]) -> Result<(), Error> {
        let words = named(Words::new().text("arrived"), letters);
        self.change("letters_arrived", &self.inner.scripts.letters, words).await.map(drop)
    }

    async fn release(&self, letters: &[Letter]) -> Result<(), Error> {
        let words = named(Words::new().text("release"), letters);
        self.change("letters_release", &self.inner.scripts.letters, words).await.map(drop)
    }

    async fn known(&self, letters: &[Letter]) -> Result<Vec<Option<Redriven>>, Error> {
        let words = named(Words::new().text("known"), letters);
        let told = self.seen("letters_known", &self.inner.scripts.letters, words).await?;
        told.lists()?.into_iter().map(redriven).collect()
    }
}

/// The topic comes last: anything may stand in its name.
fn named(words: Words, letters: &[Letter]) -> Words {
    let name = |Letter { position: at, timestamp }: &Letter| {
        format!("{}/{}@{} {}", at.partition, at.offset, timestamp.millis(), at.topic)
    };
    letters.iter().fold(words, |words, letter| words.text(name(letter)))
}

fn redriven(mut told: Reply) -> Result<Option<Redriven>, Error> {
    if told.len() == 0 {
        return Ok(None);
    }
    let at = told.time(2)?.ok_or_else(|| broken("a letter without a time"))?;
    let audit = Audit { who: told.text(0)?, why: told.text(1)? };
    Ok(Some(Redriven { audit, at, arrived: told.flag(3)? }))
}
