//! The filter of the rows as the query string contains it.
use crate::console::links::link;
use crate::error::Problem;
use crate::request::query::Query;

/// The raw parameters; empty for an absent one.
#[derive(Default)]
pub(super) struct RawRowFilter<'a> {
    pub(super) status: &'a str,
    pub(super) key: &'a str,
    pub(super) kind: &'a str,
    pub(super) after: &'a str,
}

impl<'a> RawRowFilter<'a> {
    pub(super) fn read(query: &'a Query<'_>) -> Result<Self, Problem> {
        let text = |name| query.non_empty(name).map(Option::unwrap_or_default);
        Ok(Self { status: text("status")?, key: text("key")?, kind: text("type")?, after: text("after")? })
    }

    /// As far as the parameters can be read: for the page that says what is wrong with them.
    pub(super) fn lenient(query: &'a Query<'_>) -> Self {
        let text = |name| query.non_empty(name).ok().flatten().unwrap_or_default();
        Self { status: text("status"), key: text("key"), kind: text("type"), after: text("after") }
    }

    /// The parameters under the names of the command line's options too.
    pub(super) fn parameters(&self) -> [(&'static str, &'a str); 4] {
        [("status", self.status), ("key", self.key), ("type", self.kind), ("after", self.after)]
    }

    /// A link to the same filter with another `after`.
    pub(super) fn link(&self, path: &str, after: &str) -> String {
        link(path, &[("status", self.status), ("key", self.key), ("type", self.kind), ("after", after)])
    }

    /// A link to the first page of the same filter with another status.
    pub(super) fn with_status(&self, status: &str) -> String {
        link("/console/outbox", &[("status", status), ("key", self.key), ("type", self.kind)])
    }
}
