//! The redrive ledger of the reference.
use std::collections::btree_map::Entry;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::operators::Audit;
use ports::operators::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};

use crate::reference::state::Reference;

#[async_trait]
impl RedriveLedger for Reference {
    async fn reserve(
        &self,
        dead_letters: &[DeadLetterId],
        reservation_timeout: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        let mut reserve = |dead_letter: &DeadLetterId| {
            let record = RedriveRecord { audit: audit.clone(), at: now, confirmed: false };
            match state.redrives.entry(dead_letter.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(record);
                    true
                }
                Entry::Occupied(mut reserved) => {
                    let free = !reserved.get().confirmed && now.since(reserved.get().at) >= reservation_timeout;
                    if free {
                        reserved.insert(record);
                    }
                    free
                }
            }
        };
        Ok(dead_letters.iter().map(&mut reserve).collect())
    }

    async fn confirm(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        let mut state = self.state.lock();
        for dead_letter in dead_letters {
            if let Some(reserved) = state.redrives.get_mut(dead_letter) {
                reserved.confirmed = true;
            }
        }
        Ok(())
    }

    async fn release(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.redrives.retain(|dead_letter, reserved| reserved.confirmed || !dead_letters.contains(dead_letter));
        Ok(())
    }

    async fn find(&self, dead_letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        let state = self.state.lock();
        Ok(dead_letters.iter().map(|dead_letter| state.redrives.get(dead_letter).cloned()).collect())
    }
}
