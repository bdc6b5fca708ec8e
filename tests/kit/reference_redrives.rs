//! The reference's memory of dead letters.
use std::collections::btree_map::Entry;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::operators::Audit;
use ports::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};

use crate::reference::Reference;

#[async_trait]
impl RedriveLedger for Reference {
    async fn reserve(
        &self,
        letters: &[DeadLetterId],
        again_after: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        let mut take = |letter: &DeadLetterId| {
            let ours = RedriveRecord { audit: audit.clone(), at: now, confirmed: false };
            match state.letters.entry(letter.clone()) {
                Entry::Vacant(free) => {
                    free.insert(ours);
                    true
                }
                Entry::Occupied(mut taken) => {
                    let free = !taken.get().confirmed && now.since(taken.get().at) >= again_after;
                    if free {
                        taken.insert(ours);
                    }
                    free
                }
            }
        };
        Ok(letters.iter().map(&mut take).collect())
    }

    async fn confirm(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        let mut state = self.state.lock();
        for letter in letters {
            if let Some(taken) = state.letters.get_mut(letter) {
                taken.confirmed = true;
            }
        }
        Ok(())
    }

    async fn release(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.letters.retain(|letter, taken| taken.confirmed || !letters.contains(letter));
        Ok(())
    }

    async fn find(&self, letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        let state = self.state.lock();
        Ok(letters.iter().map(|letter| state.letters.get(letter).cloned()).collect())
    }
}
