//! A walk through the dead letters, partition by partition, as long as one call may take.
use std::collections::VecDeque;
use std::time::Duration;

use domain::Timestamp;
use ports::source::Delivery;

use super::position::{DeadLetterCursor, DeadLetterPosition};

/// Longest that one call looks, well within a request's time. A broker shows some ten thousand letters a second.
const LOOKS_FOR: Duration = Duration::from_secs(4);

/// What is left to look through.
pub(super) struct Walk {
    spans: VecDeque<Span>,
    last: Option<DeadLetterPosition>,
    /// When the walk began that this call goes on with.
    begun: Option<Timestamp>,
    now: Timestamp,
}

struct Span {
    partition: u32,
    from: u64,
    end: u64,
}

impl Walk {
    /// From behind a cursor to where each partition ends now, given its first offset and its end.
    pub(super) fn behind(cursor: Option<DeadLetterCursor>, ends: Vec<(u64, u64)>, now: Timestamp) -> Self {
        let after = cursor.map(|cursor| cursor.after);
        let span = |(partition, (first, end)): (u32, (u64, u64))| {
            let from = match after {
                Some(after) if partition < after.partition => end,
                Some(after) if partition == after.partition => first.max(after.offset.saturating_add(1)),
                _ => first,
            };
            Span { partition, from, end }
        };
        let spans = (0..).zip(ends).map(span).filter(|span| span.from < span.end).collect();
        Self { spans, last: after, begun: cursor.and_then(|cursor| cursor.begun), now }
    }

    /// Where to read next; nowhere when all was seen, or enough for one call.
    pub(super) fn here(&self, now: Timestamp) -> Option<(u32, u64)> {
        let span = self.spans.front().filter(|_| now.since(self.now) < LOOKS_FOR)?;
        Some((span.partition, span.from))
    }

    /// Looks at a letter and says whether it is of this walk; one that was set aside after it began is not.
    pub(super) fn takes(&mut self, letter: &Delivery) -> bool {
        let at = &letter.position;
        let Some(span) = self.spans.front_mut() else { return false };
        // A page may reach beyond the end that was seen when this call began.
        if span.partition != at.partition || at.offset >= span.end {
            return false;
        }
        self.last = Some(DeadLetterPosition { partition: at.partition, offset: at.offset });
        span.from = at.offset + 1;
        if span.from >= span.end {
            self.spans.pop_front();
        }
        self.begun.is_none_or(|begun| letter.record.timestamp < begun)
    }

    /// A page was read that moved nothing on: what is left of this partition was forgotten, or is no letter.
    pub(super) fn skip_if_still_at(&mut self, partition: u32, from: u64) {
        if self.spans.front().is_some_and(|span| (span.partition, span.from) == (partition, from)) {
            self.spans.pop_front();
        }
    }

    /// Whether this call has looked at all there is, or long enough.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.here(now).is_none()
    }

    /// Where another call goes on, if anything is left.
    pub(super) fn next(&self) -> Option<DeadLetterCursor> {
        let after = self.last.filter(|_| !self.spans.is_empty())?;
        Some(DeadLetterCursor { after, begun: self.begun.or(Some(self.now)) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ports::broker::{Position, Record};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(7);

    fn letter(partition: u32, offset: u64) -> Delivery {
        let (topic, nothing) = (Arc::<str>::from("t"), Arc::<[u8]>::from([]));
        let timestamp = Timestamp::from_millis(0);
        let record = Record { topic: topic.clone(), key: "k".into(), headers: Vec::new(), value: nothing, timestamp };
        Delivery { position: Position { topic, partition, offset }, record }
    }

    fn cursor(text: &str) -> Option<DeadLetterCursor> {
        DeadLetterCursor::parse(text)
    }

    #[test]
    fn a_walk_goes_from_behind_its_beginning_through_what_is_kept_to_the_end() {
        let mut walk = Walk::behind(cursor("1/3"), vec![(0, 9), (2, 6), (4, 4), (7, 8)], NOW);
        let mut seen = Vec::new();
        while let Some((partition, offset)) = walk.here(NOW) {
            seen.push((partition, offset));
            assert!(walk.takes(&letter(partition, offset)));
        }
        assert_eq!((seen, walk.next()), (vec![(1, 4), (1, 5), (3, 7)], None));
    }

    #[test]
    fn what_was_forgotten_meanwhile_or_never_was_is_passed_by() {
        let mut walk = Walk::behind(None, vec![(0, 5), (0, 2)], NOW);
        // A transaction's marker, or a record that is gone: offsets jump.
        assert!(walk.takes(&letter(0, 3)));
        assert_eq!((walk.here(NOW), walk.next()), (Some((0, 4)), cursor("0/3@7")));
        walk.skip_if_still_at(0, 3);
        assert_eq!(walk.here(NOW), Some((0, 4)));
        assert!(!walk.takes(&letter(0, 9)));
        walk.skip_if_still_at(0, 4);
        assert_eq!((walk.here(NOW), walk.next()), (Some((1, 0)), cursor("0/3@7")));
    }

    #[test]
    fn one_call_looks_for_so_long_and_tells_where_to_go_on() {
        let mut walk = Walk::behind(None, vec![(0, 50_000)], NOW);
        let (last, late) = (NOW.after(LOOKS_FOR - Duration::from_millis(1)), NOW.after(LOOKS_FOR));
        assert!(walk.takes(&letter(0, 0)));
        assert_eq!((walk.here(last), walk.here(late)), (Some((0, 1)), None));
        assert_eq!((walk.is_over(late), walk.next()), (true, cursor("0/0@7")));
    }

    #[test]
    fn a_page_that_reaches_beyond_the_end_moves_no_other_partition_on() {
        let mut walk = Walk::behind(None, vec![(0, 2), (0, 2)], NOW);
        let page: Vec<bool> = (0..4).map(|offset| walk.takes(&letter(0, offset))).collect();
        assert_eq!((page, walk.here(NOW)), (vec![true, true, false, false], Some((1, 0))));
    }

    #[test]
    fn letters_that_came_after_the_walk_began_are_not_of_it() {
        let set_aside = |millis| {
            let mut letter = letter(0, 9);
            letter.record.timestamp = Timestamp::from_millis(millis);
            letter
        };
        let mut later = Walk::behind(cursor("0/3@7"), vec![(0, 20)], NOW);
        assert!(later.takes(&set_aside(6)) && !later.takes(&set_aside(7)));
        assert_eq!(later.next(), cursor("0/9@7"), "it stays the same walk");
    }

    #[test]
    fn the_largest_place_is_behind_everything() {
        assert!(Walk::behind(cursor("0/18446744073709551615"), vec![(0, 5)], NOW).is_over(NOW));
    }
}
