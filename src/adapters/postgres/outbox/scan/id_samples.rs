//! IdSamples: a lower bound of the event ids that a transaction can have drawn, by its xid.
//!
//! Event ids are the values of one sequence, drawn in ascending order, and a writer has its xid before it draws one. A *sample* is a pair of an xid
//! and a sequence value that was drawn before that xid was assigned. Therefore a transaction with xid > X can only have drawn sequence values
//! above the value of the sample of X.
//!
//! Example: the samples (100, 10) and (110, 20) mean that value 10 was drawn before xid 100 was assigned, and 20 before 110. Xid 105 was
//! assigned after 100, so its transaction draws 11 or more: `id_below(105)` is 10. Transaction 111 draws 21 or more: `id_below(111)` is 20. No
//! sample precedes transaction 99, which may have drawn any value: `id_below(99)` is 0.
use std::collections::VecDeque;

/// Most samples that are remembered: some seconds at full load. Older ones are thinned, which only lowers the result of [`IdSamples::id_below`].
const SAMPLES_MAX: usize = 128;

/// Where the ids came from when a statement ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IdSource {
    /// The server's start and the file of the events, as a hash. Another server may reuse the xids of lost transactions, and a table that was
    /// restored has other ids.
    pub(crate) source: i64,
    /// The last value of the sequence of the ids, unless the role may not read it. It never falls, not even by a rollback, except in a restore.
    pub(crate) sequence_value: Option<i64>,
}

/// An event id, and the source that it came from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SourcedId {
    pub(crate) source: i64,
    pub(crate) id: i64,
}

/// A sequence value that was drawn before an xid was assigned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IdSample {
    pub(crate) xid: i64,
    pub(crate) id: i64,
}

/// Samples of one source, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct IdSamples(VecDeque<IdSample>);

impl IdSamples {
    pub(crate) fn add(&mut self, sample: IdSample) {
        // Replies of two sessions may arrive in another order than their transactions began; a sample that is late adds nothing.
        if self.0.back().is_some_and(|last| sample.xid <= last.xid || sample.id <= last.id) {
            return;
        }
        if self.0.len() >= SAMPLES_MAX {
            self.thin();
        }
        self.0.push_back(sample);
    }

    /// A value below every sequence value that a transaction with this xid, or a larger one, has drawn or will draw.
    pub(crate) fn id_below(&self, xid: i64) -> i64 {
        let before = self.0.partition_point(|sample| sample.xid < xid);
        before.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |sample| sample.id)
    }

    /// Removes every second sample of the older half, so that the distance between two samples grows with their age.
    fn thin(&mut self) {
        let half = self.0.len() / 2;
        let mut index = 0;
        self.0.retain(|_| {
            index += 1;
            index > half || index % 2 == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_below_a_transaction_is_that_of_the_last_sample_before_it() {
        let mut samples = IdSamples::default();
        assert_eq!(samples.id_below(100), 0);
        samples.add(IdSample { xid: 100, id: 10 });
        samples.add(IdSample { xid: 110, id: 20 });
        let cases = [(99, 0), (100, 0), (101, 10), (110, 10), (111, 20), (i64::MAX, 20)];
        for (xid, id) in cases {
            assert_eq!(samples.id_below(xid), id, "{xid}");
        }
    }

    #[test]
    fn late_samples_are_ignored() {
        let mut samples = IdSamples::default();
        samples.add(IdSample { xid: 110, id: 20 });
        for (xid, id) in [(100, 30), (120, 15), (110, 21), (120, 20)] {
            samples.add(IdSample { xid, id });
        }
        assert_eq!((samples.id_below(111), samples.id_below(i64::MAX)), (20, 20));
    }

    #[test]
    fn samples_are_bounded_and_never_raise_an_answer_when_they_are_thinned() {
        let mut samples = IdSamples::default();
        for number in 1..100_000_i64 {
            samples.add(IdSample { xid: number * 2, id: number });
            assert!(samples.0.len() <= SAMPLES_MAX);
        }
        for xid in [2, 1_000, 150_000, 199_000, 199_998] {
            assert!(samples.id_below(xid) < (xid + 1) / 2, "{xid}: {}", samples.id_below(xid));
        }
        assert_eq!(samples.id_below(i64::MAX), 99_999);
        assert!(samples.id_below(199_990) > 99_900, "recent samples are kept");
    }
}
