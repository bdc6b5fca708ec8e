//! The dead letters that the broker refused in a redrive.
use super::position::DeadLetterPosition;

/// Refused dead letters that a report names; it counts all of them.
const NAMED_MAX: usize = 20;

/// A dead letter that the broker permanently refuses, such as one that is too large for its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedDeadLetter {
    /// Its position in the dead-letter topic.
    pub position: DeadLetterPosition,
    /// Why the broker refuses the record.
    pub reason: String,
}

/// The dead letters that the broker refused: they stay dead letters, and a further redrive tries them again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedDeadLetters {
    count: u64,
    named: Vec<RefusedDeadLetter>,
}

impl RefusedDeadLetters {
    /// This number of refused dead letters, of which the first are named.
    pub fn new(count: u64, named: Vec<RefusedDeadLetter>) -> Self {
        Self { count, named }
    }

    /// Counts a refused dead letter, and keeps it to name it if it is among the first.
    pub fn push(&mut self, refused: RefusedDeadLetter) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(refused);
        }
    }

    /// Adds those of a later step.
    pub fn append(&mut self, later: Self) {
        let (named, left) = (later.named.into_iter(), NAMED_MAX.saturating_sub(self.named.len()));
        self.named.extend(named.take(left));
        self.count += later.count;
    }

    /// Number of refused dead letters.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first of them.
    pub fn named(&self) -> &[RefusedDeadLetter] {
        &self.named
    }

    /// Which dead letters were refused and why, for operators; `None` if none was.
    pub fn sentence(&self) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let named = self.named.iter().map(|RefusedDeadLetter { position, reason }| format!("{position} ({reason})"));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = self.count.saturating_sub(self.named.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("dead letters that the broker refuses: {named}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(offset: u64) -> RefusedDeadLetter {
        RefusedDeadLetter { position: DeadLetterPosition { partition: 3, offset }, reason: "too large".into() }
    }

    #[test]
    fn report_counts_all_refused_dead_letters_and_names_the_first() {
        let mut refusals = RefusedDeadLetters::default();
        assert_eq!(refusals.sentence(), None);
        refusals.push(refused(1));
        let mut later = RefusedDeadLetters::default();
        (0..30).for_each(|offset| later.push(refused(offset)));

        refusals.append(later);

        assert_eq!((refusals.count(), refusals.named().len()), (31, 20));
        let sentence = refusals.sentence().expect("some were refused");
        let begin = "dead letters that the broker refuses: 3/1 (too large), 3/0 (too large)";
        assert!(sentence.starts_with(begin) && sentence.ends_with("3/18 (too large) and 11 more"), "{sentence}");
    }
}
