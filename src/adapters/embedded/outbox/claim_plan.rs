//! ClaimPlan: which of the rows that a scan found an ordinary claim takes, and where the next scan starts.
use ports::outbox::{ClaimedRow, RowId};

/// A row that the claim may take.
pub(crate) struct Candidate {
    pub(crate) row: ClaimedRow,
    pub(crate) deaths: u32,
    pub(crate) kind: CandidateKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CandidateKind {
    /// PENDING: it has not been tried, or an operator made it due.
    Ready,
    /// FAILED and due: the first row of its key.
    Head,
}

/// The candidates of one kind, in id order.
#[derive(Default)]
pub(crate) struct CandidateScan {
    pub(crate) candidates: Vec<Candidate>,
    /// Whether due rows of the kind may follow the last candidate.
    pub(crate) more: bool,
}

/// The rows of an ordinary claim.
pub(crate) struct ClaimPlan {
    pub(crate) taken: Vec<Candidate>,
    pub(crate) last_ready: Option<RowId>,
    /// Whether due rows may be left.
    pub(crate) more: bool,
    pub(crate) next_scan: NextScan,
}

/// Where the next scan for ready rows starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextScan {
    /// Behind every row of the partition: all ready ones are taken.
    BehindAllRows,
    /// Behind the last ready row that is taken.
    Behind(RowId),
    /// Where this one did.
    Unchanged,
}

pub(crate) fn plan(ready: CandidateScan, heads: CandidateScan, limit: u32) -> ClaimPlan {
    // Beyond the last ready row that was read there may be an earlier row of a head's own key, which an operator made due.
    let beyond = ready.candidates.last().filter(|_| ready.more).map(|last| last.row.id);
    let mut taken = ready.candidates;
    taken.extend(heads.candidates.into_iter().filter(|head| beyond.is_none_or(|last| head.row.id < last)));
    taken.sort_by_key(|candidate| candidate.row.id);
    let sizes = taken.iter().map(|candidate| (candidate.deaths, payload_bytes(&candidate.row)));
    let left = taken.split_off(outbox::claim::rows_taken(sizes, limit));
    let is_ready = |candidate: &&Candidate| candidate.kind == CandidateKind::Ready;
    let last_ready = taken.iter().rfind(is_ready).map(|candidate| candidate.row.id);
    let next_scan = match last_ready {
        _ if !ready.more && !left.iter().any(|candidate| is_ready(&candidate)) => NextScan::BehindAllRows,
        Some(last) => NextScan::Behind(last),
        None => NextScan::Unchanged,
    };
    ClaimPlan { taken, last_ready, more: ready.more || heads.more || !left.is_empty(), next_scan }
}

pub(crate) fn payload_bytes(row: &ClaimedRow) -> usize {
    row.payload.as_ref().map_or(0, |payload| payload.len())
}
