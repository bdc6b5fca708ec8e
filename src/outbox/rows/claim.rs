//! The size of a batch: how many of the candidate rows one claim takes, and which rows only a trial takes.
use crate::limits::{BATCH_BYTES_MAX, CLAIM_SHRINK, SUSPECT_DEATHS};

/// Most rows of a batch that contains a row with this many deaths: `limit` / 8^`deaths`, at least one.
pub fn claim_size(limit: u32, deaths: u32) -> u32 {
    (limit / CLAIM_SHRINK.saturating_pow(deaths)).max(1)
}

/// Whether a row with this many deaths is claimed only by a trial, as the single row of its batch.
pub fn is_suspect(deaths: u32) -> bool {
    deaths >= SUSPECT_DEATHS
}

/// Decides row by row, in id order, how far an ordinary claim reaches.
#[derive(Clone, Debug)]
pub struct BatchQuota {
    limit: u32,
    rows_max: u32,
    rows: u32,
    bytes: usize,
}

impl BatchQuota {
    /// An empty batch of at most `limit` rows; a limit of zero counts as one.
    pub fn new(limit: u32) -> Self {
        Self { limit, rows_max: limit.max(1), rows: 0, bytes: 0 }
    }

    /// Adds the next candidate if the batch is not full. After the first `false` the batch is complete: later candidates must not
    /// be offered, or they would overtake earlier rows.
    pub fn admit(&mut self, deaths: u32, payload_bytes: usize) -> bool {
        self.rows_max = self.rows_max.min(claim_size(self.limit, deaths));
        if self.rows >= self.rows_max || self.bytes >= BATCH_BYTES_MAX {
            return false;
        }
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(payload_bytes);
        true
    }
}

/// How many of the candidates, given in id order as (deaths, payload bytes), one claim takes. The result is a prefix: no row is skipped.
pub fn rows_taken(candidates: impl IntoIterator<Item = (u32, usize)>, limit: u32) -> usize {
    let mut quota = BatchQuota::new(limit);
    candidates.into_iter().take_while(|(deaths, bytes)| quota.admit(*deaths, *bytes)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn claim_size_is_divided_by_eight_for_each_death() {
        let cases = [
            (1_000, 0, 1_000),
            (1_000, 1, 125),
            (1_000, 2, 15),
            (1_000, 3, 1),
            (1_000, 4, 1),
            (7, 1, 1),
            (1, 0, 1),
            (0, 0, 1),
            (u32::MAX, 10, 3),
            (u32::MAX, u32::MAX, 1),
        ];

        for (limit, deaths, size) in cases {
            assert_eq!(claim_size(limit, deaths), size, "{limit} rows, {deaths} deaths");
        }
    }

    #[test]
    fn three_deaths_make_a_suspect() {
        assert_eq!([0, 1, 2, 3, 4].map(is_suspect), [false, false, false, true, true]);
    }

    #[test]
    fn batch_ends_before_a_row_with_too_many_deaths_for_its_size() {
        let cases: [(&[u32], u32, usize); 9] = [
            (&[], 10, 0),
            (&[0, 0, 0], 10, 3),
            (&[0, 0, 0], 2, 2),
            (&[0, 0, 0], 0, 1),
            (&[1, 0, 0, 0], 16, 2),
            (&[0, 1, 0, 0], 16, 2),
            (&[0, 0, 1, 0], 16, 2),
            (&[2, 0, 0], 16, 1),
            (&[0, 0, 2, 1], 128, 2),
        ];

        for (deaths, limit, taken) in cases {
            let candidates = deaths.iter().map(|deaths| (*deaths, 1));
            assert_eq!(rows_taken(candidates, limit), taken, "{deaths:?} of {limit}");
        }
    }

    #[test]
    fn batch_ends_with_the_row_that_reaches_the_byte_limit() {
        let cases: [(&[usize], usize); 5] = [
            (&[15 * MIB, 1, 1], 3),
            (&[16 * MIB - 1, MIB, 1], 2),
            (&[16 * MIB, 1], 1),
            (&[100 * MIB, 1], 1),
            (&[8 * MIB, 8 * MIB, 0], 2),
        ];

        for (sizes, taken) in cases {
            let candidates = sizes.iter().map(|bytes| (0, *bytes));
            assert_eq!(rows_taken(candidates, 1_000), taken, "{sizes:?}");
        }
    }
}
