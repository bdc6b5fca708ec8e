//! The violations that the search reports, and the rules that a test can switch off one at a time.
use std::fmt;

/// An invariant that does not hold in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Guarantee 2: a row is SENT and its event was never committed on the broker.
    Lost,
    /// Guarantee 2: no path leads from here to a state in which each event is SENT or parked for a legitimate cause.
    Stuck,
    /// Guarantee 3: a consumer sees a later event of a key before an earlier one.
    OutOfOrder,
    /// Guarantee 4: a statement of a former owner changed something.
    StaleStatementTookEffect,
    /// Guarantee 4: a claim received a token that is not above every token that was published.
    TokenReused,
    /// A stale lease in a statement of many partitions made the claim of another partition fail.
    OtherPartitionFailed,
    /// Guarantee 5: an event was committed twice, and its settlement was not lost by the store.
    Duplicate,
    /// Guarantee 7: a healthy event was parked for the deaths of its claimers.
    HealthyEventParked,
}

impl Violation {
    /// Whether users see the damage. The others are rules that prevent it; see [`crate::configuration::Configuration::counts_prevention`].
    pub fn is_damage(self) -> bool {
        !matches!(self, Violation::StaleStatementTookEffect | Violation::TokenReused)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Violation::Lost => "an event is SENT and was never committed on the broker",
            Violation::Stuck => "an event can no longer become SENT",
            Violation::OutOfOrder => "a later event of a key is visible before an earlier one",
            Violation::StaleStatementTookEffect => "a statement of a former owner changed something",
            Violation::TokenReused => "a claim received a token that was used before",
            Violation::OtherPartitionFailed => "a stale lease made the claim of another partition fail",
            Violation::Duplicate => "an event was committed twice",
            Violation::HealthyEventParked => "a healthy event was parked for deaths",
        })
    }
}

/// A rule of the protocol that is switched off on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrokenRule {
    /// A resolution does not fence the former transactional id.
    NoFence,
    /// A resolution reads the watermark, and fences afterwards.
    WatermarkBeforeFence,
    /// A resolution does not wait until the last stable offset has reached the end.
    WatermarkBeforeLastStableOffset,
    /// A resolution reads the watermark partition of the acquirer's own transactional id.
    WatermarkOfAnotherId,
    /// A watermark above the open token counts as proof of publication, too.
    HigherWatermarkMeansPublished,
    /// An acquisition replaces the former transactional id in the lease row.
    FormerIdReplacedAtAcquisition,
    /// A claim does not record the transactional id; the acquirer fences its own.
    ClaimRecordsNoId,
    /// A fence reaches only the first producer of the former owner.
    SecondProducerNotFenced,
    /// A settlement closes the open batch, whatever its token is.
    SettlementWithoutToken,
    /// A settlement compares neither owner and epoch nor the token.
    SettlementWithoutEpochAndToken,
    /// A batch is settled when its commit was requested, before the broker has replied.
    SettlementBeforeCommit,
    /// A claim does not require that no batch is open.
    ClaimDespiteOpenBatch,
    /// A claim compares neither owner nor epoch, nor the counter, nor the expiry.
    ClaimWithoutFence,
    /// A claim does not compare the counter known before its read began.
    ClaimWithoutCounter,
    /// A resolution compares neither owner nor epoch nor the counter.
    ResolutionWithoutFence,
    /// An exclusion compares neither owner nor epoch nor the counter.
    ExclusionWithoutFence,
    /// A release compares neither owner nor epoch.
    ReleaseWithoutFence,
    /// A statement that raises the counter compares neither owner nor epoch.
    CounterRaisedWithoutFence,
    /// A failed row is excluded by the settlement, after the commit.
    ExclusionAfterCommit,
    /// An exclusion keeps the batch's token.
    ExclusionKeepsToken,
    /// The reply to an exclusion is missing, and the worker sends the rest under the old token.
    UnansweredExclusionIgnored,
    /// The reply to a commit is missing, and the worker returns the rows as not sent.
    UnknownCommitMeansAborted,
    /// A new producer session sends the claims of the one before it.
    ClaimSurvivesSession,
    /// A worker returns its rows while its transaction is open.
    RowsReturnedInOpenTransaction,
    /// A release is accepted while a batch is open.
    ReleaseWithOpenBatch,
    /// A row in flight becomes due when its own lease time is over.
    RowBecomesDueByTime,
    /// A worker that restarts after a panic reads the watermark without a fence.
    RestartWithoutFence,
    /// An operator's statement touches a row in flight.
    OperatorChangesRowInFlight,
    /// An operator's statement does not raise the counter.
    OperatorKeepsCounter,
    /// A claim takes a row whose key waits.
    BlockedKeyOvertaken,
    /// A scan starts above ids whose transactions had not ended.
    ScanStartForgetsLateCommitters,
    /// A scan starts above the last value of the id sequence.
    ScanStartFromSequence,
    /// A scan starts above rows whose key was blocked and no longer is.
    ScanStartKeptAfterUnblock,
    /// A claim is refused, and the worker keeps the scan start of its read.
    RefusedClaimKeepsItsRead,
    /// A scan starts above rows that were returned.
    ScanStartKeptAfterReturn,
    /// One stale lease makes the whole statement of a cycle fail.
    StaleLeaseFailsCycle,
    /// The rows of a stale lease are claimed together with the others of the cycle.
    StaleLeasePassesInCycle,
    /// The claim of cycle N + 1 is stored without the settlement of cycle N.
    ClaimStoredWithoutSettlement,
    /// The claim of cycle N + 1 is rolled back, and the worker receives it as done.
    ClaimReportedWithoutStore,
    /// Deaths of claimers are not counted.
    DeathsNotCounted,
    /// A trial runs while its process has other work.
    TrialDuringOtherWork,
    /// A trial runs while an open batch of an ended session of its process is not resolved.
    TrialDuringOpenBatch,
    /// A process claims while the trial of an ended session is not resolved.
    ClaimDuringOpenTrial,
    /// A claimer that was fenced counts as dead.
    FencedClaimerCountsAsDead,
    /// After a rewind the counter is not raised above the watermarks.
    CounterNotRaisedAfterRewind,
    /// After a rewind the transactional ids are not fenced.
    IdsNotFencedAfterRewind,
    /// After a rewind the counter is raised above watermarks that were read before the fence.
    CounterRaisedBeforeFence,
    /// After a rewind the counter is raised above watermarks that were read below a last stable offset.
    CounterRaisedBeforeLastStableOffset,
    /// A process that starts again takes the store's timeline as the one it knew, and fences nothing.
    TimelineRememberedInProcess,
    /// After a rewind a worker keeps the position from which it scans.
    ScanStartKeptAfterRewind,
    /// Without transactions, a resolution takes the open batch as published.
    AtLeastOnceResolvesAsPublished,
    /// Without transactions, a key continues behind its failed record.
    KeyContinuesBehindFailedRecord,
    /// Without transactions, several records of a key are in flight at once.
    KeyHasManyRecordsInFlight,
}
