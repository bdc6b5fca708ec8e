//! TopicFailures: the topics that are missing or have wrong settings, with the errors.
use std::collections::BTreeSet;

use ports::Error;

use crate::error::is_temporary;

/// Topics that cannot be used now, with the reasons. If it is empty, all topics can be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopicFailures {
    topics: BTreeSet<String>,
    errors: Vec<Error>,
}

impl TopicFailures {
    /// Adds an error and the topics that it concerns: none if nothing is known of a topic.
    pub(crate) fn add<N: Into<String>>(&mut self, topics: impl IntoIterator<Item = N>, error: Error) {
        self.topics.extend(topics.into_iter().map(Into::into));
        self.errors.push(error);
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.topics.extend(other.topics);
        self.errors.extend(other.errors);
    }

    /// All errors as one, which is temporary only if each of them is.
    pub(crate) fn result(&self) -> Result<(), Error> {
        let [first, others @ ..] = &*self.errors else { return Ok(()) };
        if others.is_empty() {
            return Err(first.clone());
        }
        let text = self.errors.iter().map(Error::to_string).collect::<Vec<_>>().join("; ");
        Err(if self.errors.iter().all(is_temporary) { Error::Unreachable(text) } else { Error::Broken(text) })
    }

    /// The error of [`Self::result`], if one of these topics cannot be used.
    pub(crate) fn check(&self, topics: &[String]) -> Result<(), Error> {
        if topics.iter().any(|topic| self.topics.contains(topic)) { self.result() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_failure_is_temporary_only_if_each_failure_is() {
        let mut failures = TopicFailures::default();
        assert!(failures.result().is_ok());

        failures.add(["a"], Error::Unreachable("first".into()));
        assert!(matches!(failures.result(), Err(Error::Unreachable(_))));
        failures.add(["b"], Error::Unknown("second".into()));
        assert!(failures.result().is_err_and(|error| is_temporary(&error)));
        failures.add(["c"], Error::Broken("third".into()));

        let Err(Error::Broken(text)) = failures.result() else { panic!("{failures:?}") };
        assert!(["first", "second", "third"].iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn failure_concerns_only_its_topics() {
        let mut failures = TopicFailures::default();
        failures.add(["a", "b"], Error::Broken("missing".into()));

        let is_refused = |topics: &[&str]| {
            let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
            failures.check(&topics).is_err()
        };

        assert_eq!([is_refused(&["c"]), is_refused(&["c", "b"]), is_refused(&[])], [false, true, false]);
    }
}
