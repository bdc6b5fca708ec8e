//! A redrive ledger with a flaw.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::operators::Audit;
use ports::operators::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenRedrives {
    pub(crate) inner: Arc<dyn RedriveLedger>,
    pub(crate) flaw: Flaw,
}

impl BrokenRedrives {
    fn altered(&self, dead_letters: &[DeadLetterId]) -> Vec<DeadLetterId> {
        let mut dead_letters = dead_letters.to_vec();
        if self.flaw == Flaw::IgnoresTopic {
            dead_letters.iter_mut().for_each(|dead_letter| dead_letter.position.topic = "any".into());
        }
        dead_letters
    }
}

#[async_trait]
impl RedriveLedger for BrokenRedrives {
    async fn reserve(
        &self,
        dead_letters: &[DeadLetterId],
        reservation_timeout: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let reservation_timeout = match self.flaw {
            Flaw::ReservesTwice => Duration::ZERO,
            Flaw::ReservationNeverExpires => reservation_timeout * 1_000,
            _ => reservation_timeout,
        };
        let unknown = Audit { operator: "unknown".into(), reason: String::new() };
        let audit = if self.flaw == Flaw::ForgetsOperator { &unknown } else { audit };
        self.inner.reserve(&self.altered(dead_letters), reservation_timeout, audit).await
    }
    async fn confirm(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        if self.flaw == Flaw::ConfirmChangesNothing {
            Ok(())
        } else {
            self.inner.confirm(&self.altered(dead_letters)).await
        }
    }
    async fn release(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        if self.flaw == Flaw::ReleaseChangesNothing {
            Ok(())
        } else {
            self.inner.release(&self.altered(dead_letters)).await
        }
    }
    async fn find(&self, dead_letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        self.inner.find(&self.altered(dead_letters)).await
    }
}
