//! Small ports that are wrong on purpose.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Subject};
use ports::Error;
use ports::cache::OrderCache;
use ports::idempotency::{BeginOutcome, Idempotency};
use ports::inbox::{Detour, DetourChange, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp};
use ports::operators::Audit;
use ports::probe::{Probe, ProbeReport};
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter};
use ports::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};

use crate::broken::Flaw;

pub(crate) struct BrokenInbox {
    pub(crate) real: Arc<dyn Inbox>,
    pub(crate) flaw: Flaw,
}

impl BrokenInbox {
    fn group<'g>(&self, group: &'g str) -> &'g str {
        if self.flaw == Flaw::SharesGroups { "everyone" } else { group }
    }
}

#[async_trait]
impl Inbox for BrokenInbox {
    async fn commit(&self, group: &str, mut marks: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        if self.flaw == Flaw::DropsEffects {
            marks.iter_mut().for_each(|mark| mark.effects.clear());
        }
        let marked = self.real.commit(self.group(group), marks).await?;
        if self.flaw == Flaw::TakesAllForNew {
            return Ok(vec![InboxOutcome::New; marked.len()]);
        }
        Ok(marked)
    }
    async fn remote(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        self.real.remote(order_id).await
    }
    async fn detour(&self, group: &str, key: &str) -> Result<Option<Detour>, Error> {
        self.real.detour(self.group(group), key).await
    }
    async fn set_detours(&self, group: &str, mut changes: Vec<DetourChange>) -> Result<(), Error> {
        if self.flaw == Flaw::EndsNoDetour {
            changes.retain(|change| matches!(change, DetourChange::Enter { .. }));
        }
        self.real.set_detours(self.group(group), changes).await
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let limit = if self.flaw == Flaw::SweepsTooMuch { 1_000 } else { limit };
        let keep = if self.flaw == Flaw::SweepsYoungMessages { keep / 1_000 } else { keep };
        self.real.sweep(keep, limit).await
    }
}

pub(crate) struct BrokenRedrives {
    pub(crate) real: Arc<dyn RedriveLedger>,
    pub(crate) flaw: Flaw,
}

impl BrokenRedrives {
    fn named(&self, letters: &[DeadLetterId]) -> Vec<DeadLetterId> {
        let mut letters = letters.to_vec();
        if self.flaw == Flaw::SeesOneTopic {
            letters.iter_mut().for_each(|letter| letter.position.topic = "any".into());
        }
        letters
    }
}

#[async_trait]
impl RedriveLedger for BrokenRedrives {
    async fn reserve(
        &self,
        letters: &[DeadLetterId],
        again_after: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let again_after = match self.flaw {
            Flaw::GivesTwice => Duration::ZERO,
            Flaw::HoldsForEver => again_after * 1_000,
            _ => again_after,
        };
        let nobody = Audit { operator: "nobody".into(), reason: String::new() };
        let audit = if self.flaw == Flaw::ForgetsWhoAsked { &nobody } else { audit };
        self.real.reserve(&self.named(letters), again_after, audit).await
    }
    async fn confirm(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        if self.flaw == Flaw::LosesWhatArrived { Ok(()) } else { self.real.confirm(&self.named(letters)).await }
    }
    async fn release(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        if self.flaw == Flaw::ReleasesNothing { Ok(()) } else { self.real.release(&self.named(letters)).await }
    }
    async fn find(&self, letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        self.real.find(&self.named(letters)).await
    }
}

pub(crate) struct BrokenIdempotency {
    pub(crate) real: Arc<dyn Idempotency>,
    pub(crate) flaw: Flaw,
}

impl BrokenIdempotency {
    fn subject(&self, subject: &Subject) -> Subject {
        let anyone = || Subject::new("anyone").expect("a name");
        if self.flaw == Flaw::MixesSubjects { anyone() } else { subject.clone() }
    }
}

#[async_trait]
impl Idempotency for BrokenIdempotency {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        let lock = if self.flaw == Flaw::LocksForEver { lock * 1_000 } else { lock };
        match self.real.begin(&self.subject(subject), key, fingerprint, lock).await? {
            BeginOutcome::InProgress if self.flaw == Flaw::GivesToEveryone => Ok(BeginOutcome::Acquired),
            begun => Ok(begun),
        }
    }
    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        if self.flaw == Flaw::ForgetsWhatWasMade {
            return self.real.abandon(subject, key).await;
        }
        self.real.complete(&self.subject(subject), key, fingerprint, order_id, keep).await
    }
    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        if self.flaw == Flaw::KeepsWhatWasAbandoned {
            return Ok(());
        }
        self.real.abandon(&self.subject(subject), key).await
    }
}

pub(crate) struct BrokenCache {
    pub(crate) real: Arc<dyn OrderCache>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl OrderCache for BrokenCache {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        self.real.get(self.name(id)).await
    }
    async fn put(&self, order: Arc<Order>) -> Result<(), Error> {
        let order = Arc::new(Order { id: self.name(order.id), ..(*order).clone() });
        if self.flaw == Flaw::ShowsTheOlder {
            self.real.evict(order.id).await?;
        }
        self.real.put(order).await
    }
    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        if self.flaw == Flaw::NeverEvicts { Ok(()) } else { self.real.evict(self.name(id)).await }
    }
}

impl BrokenCache {
    fn name(&self, id: OrderId) -> OrderId {
        if self.flaw == Flaw::MixesOrders { OrderId::from_bytes([7; 16]) } else { id }
    }
}

pub(crate) struct BrokenRateLimit {
    pub(crate) real: Arc<dyn RateLimiter>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl RateLimiter for BrokenRateLimit {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        let bucket = if self.flaw == Flaw::SharesOneBucket { "everyone" } else { bucket };
        let throttle = if self.flaw == Flaw::IgnoresTheThrottle { 1.0 } else { throttle };
        // Four fifths of capacity and a quarter are the bare capacity.
        let throttle = if self.flaw == Flaw::HoldsNoMoreThanItsCapacity { throttle * 0.8 } else { throttle };
        let taken = self.real.take(bucket, policy, throttle).await?;
        Ok(RateLimitDecision { allowed: taken.allowed || self.flaw == Flaw::AlwaysAllows, ..taken })
    }
    async fn policy(&self, tier: &str, class: &str) -> Result<Option<RateLimitPolicy>, Error> {
        self.real.policy(tier, class).await
    }
}

pub(crate) struct BrokenProbe {
    pub(crate) real: Arc<dyn Probe>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl Probe for BrokenProbe {
    fn name(&self) -> &'static str {
        if self.flaw == Flaw::HasAnotherName { "database" } else { self.real.name() }
    }
    async fn check(&self) -> Result<ProbeReport, Error> {
        if self.flaw == Flaw::IsAlwaysWell { Ok(ProbeReport::default()) } else { self.real.check().await }
    }
}
