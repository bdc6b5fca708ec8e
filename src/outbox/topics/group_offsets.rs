//! Effect of a commit on a consumer group's offset in one topic partition.

/// Whether a commit may move a group back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetCommitMode {
    /// The larger of the former and the requested offset counts, so that a late or repeated commit changes nothing.
    Forward,
    /// The requested offset counts, also when it is smaller: the group reads records again.
    Reset,
}

/// The offset at which the group continues after a commit; `None` if the commit is refused, because the partition ends before it.
pub fn offset_after_commit(former: Option<u64>, requested: u64, end: u64, mode: OffsetCommitMode) -> Option<u64> {
    if requested > end {
        return None;
    }
    Some(match mode {
        OffsetCommitMode::Forward => former.unwrap_or(0).max(requested),
        OffsetCommitMode::Reset => requested,
    })
}

#[cfg(test)]
mod tests {
    use super::OffsetCommitMode::{Forward, Reset};
    use super::*;

    #[test]
    fn a_commit_moves_back_only_with_reset_and_never_beyond_the_end() {
        let cases = [
            (None, 0, 0, Forward, Some(0)),
            (None, 3, 5, Forward, Some(3)),
            (Some(3), 5, 5, Forward, Some(5)),
            (Some(3), 3, 5, Forward, Some(3)),
            (Some(4), 2, 5, Forward, Some(4)),
            (Some(4), 2, 5, Reset, Some(2)),
            (Some(4), 6, 5, Forward, None),
            (Some(4), 6, 5, Reset, None),
        ];
        for (former, requested, end, mode, expected) in cases {
            let after = offset_after_commit(former, requested, end, mode);
            assert_eq!(after, expected, "{former:?} {requested} {end} {mode:?}");
        }
    }
}
