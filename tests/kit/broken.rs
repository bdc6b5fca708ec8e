//! Backends that are wrong on purpose. A suite that passes on one of them does not test what it says, so each flaw must make a case fail.
//! They are wrappers: they break the reference here, and a real adapter as well.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::broker::Broker;
use ports::cache::OrderCache;
use ports::idempotency::Idempotency;
use ports::inbox::Inbox;
use ports::operators::{Audit, OutboxOperators};
use ports::orders::OrderStore;
use ports::outbox::{OutboxStore, RowId};
use ports::partitions::PartitionLeases;
use ports::probe::Probe;
use ports::rate_limit::{RateLimitPolicy, RateLimiter};
use ports::redrives::RedriveLedger;
use ports::source::ConsumerGroups;
use ports::topics::TopicReader;
use tokio::runtime::Runtime;

use crate::backend::Backend;
use crate::broken_broker::{BrokenBroker, BrokenSources, BrokenTopics};
use crate::broken_small::{BrokenCache, BrokenIdempotency, BrokenInbox, BrokenProbe, BrokenRateLimit, BrokenRedrives};
use crate::broken_store::{BrokenLeases, BrokenOperators, BrokenOrders, BrokenOutbox};
use crate::conformance::{self, Report};

macro_rules! flaws {
    ($($suite:ident: $($flaw:ident),+;)+) => {
        /// What is wrong with a backend.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Flaw {
            $($($flaw,)+)+
        }

        impl Flaw {
            /// Every flaw.
            pub const ALL: &[Flaw] = &[$($(Flaw::$flaw,)+)+];
        }

        /// Runs the suite that must find this flaw, on a backend that has it.
        pub async fn judge<B: Backend>(flaw: Flaw) -> Report {
            let suite = async {
                match flaw {
                    $($(Flaw::$flaw)|+ => Box::pin(conformance::$suite::all::<Broken<B>>()).await,)+
                }
            };
            FLAW.scope(flaw, suite).await
        }
    };
}

flaws! {
    orders: DropsTheMark, DropsTheEvents, OverwritesWhatIsNewer, ListsOldestFirst, CountsWhateverIsThere, SweepsYoungMarks;
    outbox: IgnoresTheFence, LetsLaterRowsOvertake, RetriesAtOnce, ForgetsAttempts, SettlesNothing, SettlesForGood,
        ForgetsDeaths, TriesSuspectsAsOrdinary, DropsThePayload, SweepsWithoutLimit, SweepsYoungRows;
    operators: RedrivesWhenDry, RetriesNothing, ParksNothing, IgnoresTheFilter, HidesTheHead;
    redrives: GivesTwice, HoldsForEver, LosesWhatArrived, ForgetsWhoAsked, ReleasesNothing, SeesOneTopic;
    partitions: ForgetsTheOpenBatch, IgnoresTheWatermark, StealsFromTheLiving, TakesDoubtForDeath, RenewsEverything,
        ReleasesWhatIsInFlight, SeesNobody, ShowsHalf;
    inbox: TakesAllForNew, DropsEffects, SharesGroups, EndsNoDetour, SweepsTooMuch, SweepsYoungMessages;
    broker: PublishesBehindTheFence, ForgetsTheWatermark, ShowsWhatWasAborted, OutlivesItsLease, DropsHeaders, ScattersKeys,
        AppendsHalf;
    source: AcknowledgesWhatItHandsOut, NeverRewinds, NeverPauses, HasNoLag, IgnoresTheLimit;
    topics: ReadsFromTheStart, ReadsWithoutEnd, ListsInAnyOrder;
    idempotency: GivesToEveryone, ForgetsWhatWasMade, MixesSubjects, KeepsWhatWasAbandoned, LocksForEver;
    cache: ShowsTheOlder, NeverEvicts, MixesOrders;
    rate_limit: AlwaysAllows, IgnoresTheThrottle, SharesOneBucket, HoldsNoMoreThanItsCapacity;
    probe: HasAnotherName, IsAlwaysWell;
}

tokio::task_local! {
    /// The flaw of the backends that are made in this task: a suite makes its backends by itself and has nothing to hand them.
    static FLAW: Flaw;
}

/// A backend with a flaw.
pub struct Broken<B> {
    real: B,
    flaw: Flaw,
}

/// What no suite noticed.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Flaws that passed for right: each is a hole in its suite.
    pub unnoticed: Vec<Flaw>,
    /// The others, and the cases that noticed.
    pub noticed: Vec<(Flaw, Vec<String>)>,
}

/// Tries every flaw around this backend.
pub async fn judge_all<B: Backend>() -> Judged {
    let mut judged = Judged::default();
    for flaw in Flaw::ALL {
        let failed: Vec<String> = judge::<B>(*flaw).await.failed.into_iter().map(|(case, _)| case).collect();
        if failed.is_empty() {
            judged.unnoticed.push(*flaw);
        } else {
            judged.noticed.push((*flaw, failed));
        }
    }
    judged
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.noticed.iter().try_for_each(|(flaw, cases)| writeln!(f, "{flaw:?}: {}", cases.join(", ")))?;
        self.unnoticed.iter().try_for_each(|flaw| writeln!(f, "{flaw:?}: NOT NOTICED"))
    }
}

#[async_trait]
impl<B: Backend> Backend for Broken<B> {
    async fn fresh() -> Self {
        Self { real: B::fresh().await, flaw: FLAW.get() }
    }
    async fn advance(&self, by: Duration) {
        self.real.advance(by).await;
    }
    fn runtime() -> Runtime {
        B::runtime()
    }
    fn partitions(&self) -> u32 {
        self.real.partitions()
    }
    fn topic(&self) -> Arc<str> {
        self.real.topic()
    }
    fn patience(&self) -> Duration {
        self.real.patience()
    }
    fn orders(&self) -> Arc<dyn OrderStore> {
        Arc::new(BrokenOrders { real: self.real.orders(), flaw: self.flaw })
    }
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        Arc::new(BrokenOutbox { real: self.real.outbox(), leases: self.real.leases(), flaw: self.flaw })
    }
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        Arc::new(BrokenOperators { real: self.real.operators(), flaw: self.flaw })
    }
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
        Arc::new(BrokenRedrives { real: self.real.redrives(), flaw: self.flaw })
    }
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        Arc::new(BrokenLeases { real: self.real.leases(), flaw: self.flaw })
    }
    fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(BrokenInbox { real: self.real.inbox(), flaw: self.flaw })
    }
    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(BrokenBroker { real: self.real.broker(), flaw: self.flaw })
    }
    fn sources(&self) -> Arc<dyn ConsumerGroups> {
        Arc::new(BrokenSources { real: self.real.sources(), flaw: self.flaw })
    }
    fn topics(&self) -> Arc<dyn TopicReader> {
        Arc::new(BrokenTopics { real: self.real.topics(), flaw: self.flaw })
    }
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        Arc::new(BrokenIdempotency { real: self.real.idempotency(), flaw: self.flaw })
    }
    fn cache(&self) -> Arc<dyn OrderCache> {
        Arc::new(BrokenCache { real: self.real.cache(), flaw: self.flaw })
    }
    fn rate_limit(&self) -> Arc<dyn RateLimiter> {
        Arc::new(BrokenRateLimit { real: self.real.rate_limit(), flaw: self.flaw })
    }
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        let broken = |real| Arc::new(BrokenProbe { real, flaw: self.flaw }) as Arc<dyn Probe>;
        self.real.probes().into_iter().map(broken).collect()
    }
    async fn audits(&self) -> Option<Vec<Audit>> {
        self.real.audits().await
    }
    async fn lose_payload(&self, row: RowId) -> bool {
        self.real.lose_payload(row).await
    }
    async fn set_policy(&self, tier: &str, class: &str, policy: &RateLimitPolicy) -> bool {
        self.real.set_policy(tier, class, policy).await
    }
    async fn cut_off(&self) -> bool {
        self.real.cut_off().await
    }
}
