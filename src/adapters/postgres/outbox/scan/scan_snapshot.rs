//! The snapshot of a claim: which transactions it did not see, and what it shows about the ids that later transactions draw.
use std::sync::Arc;

use crate::connection::statement_error::{StatementResult, broken};
use crate::outbox::scan::id_samples::{IdSample, IdSource, SourcedId};

/// The transactions that a snapshot did not see.
#[derive(Debug, PartialEq)]
pub(crate) struct BaseSnapshot {
    pub(crate) source: i64,
    /// One past the last transaction that had ended.
    pub(crate) xmax: i64,
    /// The transactions below `xmax` that were running.
    pub(crate) running: Vec<i64>,
}

impl BaseSnapshot {
    /// Parses the text of a `pg_snapshot`: `xmin:xmax:xip,xip,…`.
    pub(crate) fn parse(source: i64, text: &str) -> StatementResult<Self> {
        let invalid = || broken(format!("the server's snapshot {text:?} is not readable"));
        let mut parts = text.splitn(3, ':').skip(1);
        let (xmax, running) = (parts.next().ok_or_else(invalid)?, parts.next().ok_or_else(invalid)?);
        let number = |text: &str| text.parse::<i64>().map_err(|_| invalid());
        let running = running.split(',').filter(|text| !text.is_empty()).map(number).collect::<StatementResult<_>>()?;
        Ok(Self { source, xmax: number(xmax)?, running })
    }
}

/// The snapshot of a statement that scanned one or more partitions.
pub(crate) struct ScanSnapshot {
    pub(crate) base: Arc<BaseSnapshot>,
    /// The highest id that the statement's snapshot showed, at most the last value of the sequence: a writer may have chosen a higher one.
    pub(crate) highest: Option<i64>,
    /// The last value of the sequence of the ids.
    pub(crate) sequence_value: Option<i64>,
    /// Whether the sequence went back since an earlier statement of this process.
    pub(crate) was_rewound: bool,
    /// The xid of the statement's transaction, with an id that was drawn before that xid was assigned.
    pub(crate) sample: Option<IdSample>,
}

/// What a claim's statement returns of its snapshot.
pub(crate) struct SnapshotRow<'a> {
    pub(crate) source: IdSource,
    /// The text of the `pg_snapshot`.
    pub(crate) text: &'a str,
    /// The highest id that the snapshot showed.
    pub(crate) highest: Option<i64>,
    /// The xid of the statement's transaction.
    pub(crate) xid: Option<i64>,
}

/// Which id was drawn before the xid of a claim's transaction was assigned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SampleId {
    /// The highest that the claim's snapshot shows: the claim is the transaction's first statement, so its xid is assigned later.
    FromSnapshot,
    /// The highest that this process had seen before the transaction, of this source: an earlier statement caused the xid to be assigned.
    BeforeTransaction(Option<SourcedId>),
}

impl ScanSnapshot {
    /// The snapshot that a claim returned. `bounds` are those of the claim.
    pub(crate) fn parse(row: SnapshotRow<'_>, bounds: &ScanBounds, sample: SampleId) -> StatementResult<Self> {
        let SnapshotRow { source: IdSource { source, sequence_value }, text, highest, xid } = row;
        let highest = highest.map(|id| sequence_value.map_or(id, |value| id.min(value)));
        let was_rewound = source == bounds.source && sequence_value.is_some_and(|value| value < bounds.sequence_value);
        let id = match sample {
            SampleId::FromSnapshot => highest,
            SampleId::BeforeTransaction(_) if was_rewound => None,
            SampleId::BeforeTransaction(known) => known.filter(|known| known.source == source).map(|known| known.id),
        };
        let base = Arc::new(BaseSnapshot::parse(source, text)?);
        let sample = xid.zip(id).map(|(xid, id)| IdSample { xid, id });
        Ok(Self { base, highest, sequence_value, was_rewound, sample })
    }
}

/// The starts of a statement's partitions as parameters: `starts` apply to the rows of transactions that the base did not
/// know, the bounds to those of the base's running transactions that have ended.
#[derive(Debug, Default)]
pub(crate) struct ScanBounds {
    /// The source of ids for which the rest is valid.
    pub(crate) source: i64,
    /// The rest is valid while the last value of the sequence is at least this.
    pub(crate) sequence_value: i64,
    /// Per partition the id above which the scan begins.
    pub(crate) starts: Vec<i64>,
    /// Per partition the number of its base.
    pub(crate) bases: Vec<i32>,
    /// Per bound the number of its base.
    pub(crate) base_numbers: Vec<i32>,
    /// Per bound the transaction that was running.
    pub(crate) running: Vec<i64>,
    /// Per bound an id below all ids of that transaction.
    pub(crate) ids_below: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_parsed() {
        let cases =
            [("10:10:", (10, vec![])), ("10:20:10,14,15", (20, vec![10, 14, 15])), ("10:20:11", (20, vec![11]))];
        for (text, (xmax, running)) in cases {
            assert_eq!(BaseSnapshot::parse(1, text).unwrap(), BaseSnapshot { source: 1, xmax, running });
        }
        for text in ["", "10", "10:20", "a:b:c", "1:2:x"] {
            assert!(BaseSnapshot::parse(1, text).is_err(), "{text}");
        }
    }
}
