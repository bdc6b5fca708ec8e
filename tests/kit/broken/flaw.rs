//! The list of flaws, each with the suite that must detect it.

/// Calls a macro with every suite and its flaws.
macro_rules! with_flaws_by_suite {
    ($macro:ident) => {
        $macro! {
            orders: DropsMark, DropsEvents, OverwritesNewerVersion, ListsOldestFirst, CountIgnoresFilter, SweepsRecentMarks;
            outbox: IgnoresFence, LetsLaterRowsOvertake, RetriesWithoutDelay, ReportsFirstAttempt, SettleReturnsRows,
                ResolvesAsPublished, CountsNoDeaths, ClaimsSuspectsInOrdinaryClaims, DropsPayload, OutboxSweepIgnoresLimit,
                SweepsRecentRows, ExclusionReturnsOldToken, AcceptsOldToken, ClaimsWithoutSettlement,
                ClaimsUnderOldCounter, IgnoresPoisonPolicy, HidesParkedRows, ExclusionIgnoresAttempts, ContainsEveryEvent;
            events: PublishesEventsTwice, DropsRecordOfEvents, ReversesBatches, ScattersKeysOfEvents;
            operators: DryRunRedrives, RetryChangesNothing, ParkChangesNothing, ListIgnoresFilter, HidesBlockingRow,
                 HidesPayload, AuditIgnoresFilter, AuditRepeatsFirstPage;
            redrives: ReservesTwice, ReservationNeverExpires, ConfirmChangesNothing, ForgetsOperator, ReleaseChangesNothing,
                IgnoresTopic;
            webhooks: ForgetsSecretsOfWebhooks, SavesAnyVersion, KeepsDeletedWebhooks, ListsOldestDeliveriesFirst, SharesDeliveries;
            partitions: HidesOpenBatch, IgnoresWatermark, TakesLeaseOfLiveOwner, TreatsUncertainAsDeath, RenewsLostLeases,
                ReleasesWithOpenBatch, HidesOtherMembers, ShowsHalfOfPartitions, CountsNoLeases, HidesFreePartitions,
                OffersHeldPartitions, ShowsNewestFreeFirst;
            inbox: ReportsDuplicatesAsNew, DropsEffects, SharesInboxBetweenGroups, NeverEndsRetryRoutes, EndsRetryRoutesEarly, InboxSweepIgnoresLimit,
                SweepsRecentEvents;
            broker: PublishesAfterFence, HidesWatermark, ShowsAbortedRecords, CommitsAfterLease, DropsHeaders, ScattersKeys,
                AppendsPartially, FencesNoSessionInAll, ReturnsNoWatermarkOfAll;
            consumer_groups: AcknowledgesOnPoll, NeverRewinds, NeverPauses, ReportsNoLag, PollIgnoresLimit, BeginsAtStart;
            topics: ReadIgnoresOffset, ReadIgnoresLimit, ListsUnsorted, GroupOffsetsOfAnotherGroup;
            idempotency: AcquiresKeysInUse, ForgetsCompletedKeys, SharesKeysBetweenSubjects, KeepsAbandonedKeys,
                LockNeverExpires;
            cache: AcceptsOlderVersions, NeverEvicts, SharesEntryBetweenOrders, KeepsListsOfChangedOwners,
                SharesListsBetweenOwners, CachesListsReadBeforeChanges, CachesOrdersReadBeforeUnknownCommits,
                KeepsEntriesOfLostVersions;
            rate_limit: AllowsEverything, IgnoresThrottle, SharesBucket, AllowsNoBurst;
            probe: HasUnknownName, ReportsAlwaysHealthy, ReportsFullWhileIdle;
        }
    };
}

macro_rules! define_flaws {
    ($($suite:ident: $($flaw:ident),+;)+) => {
        /// The deliberate flaw of a broken backend.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Flaw {
            $($($flaw,)+)+
        }

        impl Flaw {
            /// Every flaw of every suite.
            pub const ALL: &[Flaw] = &[$($(Flaw::$flaw,)+)+];
        }
    };
}

with_flaws_by_suite!(define_flaws);

pub(crate) use with_flaws_by_suite;
