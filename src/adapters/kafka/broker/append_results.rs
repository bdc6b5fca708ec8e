//! The results of records that are appended without a watermark, each accepted or refused by itself. A round sends the records that have no result.
use ports::Error;
use ports::broker::{Position, PublishOutcome, Record};
use ports::outbox::RowId;

/// The records of one call and their results. The row id of a record is its index.
pub(super) struct AppendResults {
    records: Vec<Record>,
    results: Vec<Option<Result<Position, Error>>>,
}

impl AppendResults {
    pub(super) fn new(records: Vec<Record>) -> Self {
        Self { results: vec![None; records.len()], records }
    }

    /// The records of the next round; empty when each has a result.
    pub(super) fn unsent(&self) -> Vec<(RowId, Record)> {
        let records = (0..).zip(&self.records).zip(&self.results);
        records.filter(|(_, result)| result.is_none()).map(|((row, record), _)| (row, record.clone())).collect()
    }

    /// Adds the result of a round. Another round follows one in which the broker permanently refused records, or stored only some: it sends the
    /// others. After any other failure they get its error, because a record of a later round would overtake one that is sent again later.
    pub(super) fn add(&mut self, published: PublishOutcome) {
        let (sent, refused, cause) = match published {
            PublishOutcome::Committed(sent) => (sent, Vec::new(), None),
            PublishOutcome::Partial { sent, refused } => (sent, refused, None),
            PublishOutcome::RowsRefused(refused) => (Vec::new(), refused, None),
            PublishOutcome::Aborted { cause: failure, .. }
            | PublishOutcome::Unknown(failure)
            | PublishOutcome::SessionLost(failure) => (Vec::new(), Vec::new(), Some(failure)),
        };
        let is_final = |(_, error): &(RowId, Error)| matches!(error, Error::Rejected(_));
        let has_another_round =
            cause.is_none() && (!sent.is_empty() || !refused.is_empty()) && refused.iter().all(is_final);
        self.set(sent.into_iter().map(|(row, position)| (row, Ok(position))));
        self.set(refused.into_iter().map(|(row, error)| (row, Err(error))));
        if !has_another_round {
            // Of a record that a broker neither stored nor refused, it may be unknown whether the broker has it.
            let unknown = || Error::Unknown("only some of the records could be appended".into());
            let error = cause.map_or_else(unknown, |failure| failure.error);
            self.results
                .iter_mut()
                .filter(|result| result.is_none())
                .for_each(|result| *result = Some(Err(error.clone())));
        }
    }

    fn set(&mut self, results: impl Iterator<Item = (RowId, Result<Position, Error>)>) {
        for (row, result) in results {
            if let Some(slot) = usize::try_from(row).ok().and_then(|index| self.results.get_mut(index)) {
                *slot = Some(result);
            }
        }
    }

    /// One result for each record, in their order.
    pub(super) fn into_results(self) -> Vec<Result<Position, Error>> {
        let unsent = || Err(Error::Unreachable("the record was not sent".into()));
        self.results.into_iter().map(|result| result.unwrap_or_else(unsent)).collect()
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use ports::broker::BrokerFailure;

    use super::*;

    fn results(count: usize) -> AppendResults {
        let (topic, value, timestamp) = ("t".into(), [].into(), Timestamp::from_millis(0));
        let record = Record { topic, key: "k".into(), headers: Default::default(), value, timestamp };
        AppendResults::new(vec![record; count])
    }

    fn stored(row: RowId) -> (RowId, Position) {
        (row, Position { topic: "t".into(), partition: 0, offset: row as u64 })
    }

    fn refused(row: RowId) -> (RowId, Error) {
        (row, Error::Rejected("too large".into()))
    }

    fn unsent(results: &AppendResults) -> Vec<RowId> {
        results.unsent().into_iter().map(|(row, _)| row).collect()
    }

    #[test]
    fn records_without_a_result_are_sent_after_others_were_refused() {
        let mut exactly_once = results(3);
        exactly_once.add(PublishOutcome::RowsRefused(vec![refused(1)]));
        assert_eq!(unsent(&exactly_once), [0, 2]);
        exactly_once.add(PublishOutcome::Committed(vec![stored(0), stored(2)]));

        let mut at_least_once = results(3);
        at_least_once.add(PublishOutcome::Partial { sent: vec![stored(0)], refused: vec![refused(1)] });
        assert_eq!(unsent(&at_least_once), [2], "it waited behind the refused one");
        at_least_once.add(PublishOutcome::Committed(vec![stored(2)]));

        for results in [exactly_once, at_least_once] {
            assert!(results.unsent().is_empty());
            assert!(matches!(&*results.into_results(), [Ok(_), Err(Error::Rejected(_)), Ok(_)]));
        }
    }

    #[test]
    fn no_record_is_sent_after_a_temporary_failure() {
        let unavailable = || (1, Error::Unreachable("no leader".into()));
        let cause = || BrokerFailure::from(Error::Unreachable("no broker".into()));
        let failures = [
            PublishOutcome::Partial { sent: vec![stored(0)], refused: vec![unavailable()] },
            PublishOutcome::Partial { sent: Vec::new(), refused: Vec::new() },
            PublishOutcome::RowsRefused(vec![refused(0), unavailable()]),
            PublishOutcome::Aborted { cause: cause(), reached: false },
            PublishOutcome::Unknown(BrokerFailure::unknown("no reply")),
            PublishOutcome::SessionLost(BrokerFailure::unknown("it ended")),
        ];
        for failure in failures {
            let mut results = results(3);
            results.add(failure.clone());
            assert!(results.unsent().is_empty() && results.into_results()[2].is_err(), "{failure:?}");
        }
    }
}
