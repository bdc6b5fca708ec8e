//! The filter of the rows as the query string contains it.
use app::port_types::{PartitionNo, RowStatus};

use crate::console::links::link;
use crate::error::Problem;
use crate::request::query::Query;

/// The raw parameters; empty for an absent one.
#[derive(Default)]
pub(super) struct RawRowFilter<'a> {
    pub(super) status: &'a str,
    pub(super) key: &'a str,
    pub(super) event_type: &'a str,
    pub(super) failure: &'a str,
    pub(super) partition: &'a str,
    pub(super) after: &'a str,
}

impl<'a> RawRowFilter<'a> {
    pub(super) fn read(query: &'a Query<'_>) -> Result<Self, Problem> {
        Self::from_texts(|name| query.non_empty(name).map(Option::unwrap_or_default))
    }

    /// Reads the parameters that can be decoded, for the page that reports the errors of the others.
    pub(super) fn lenient(query: &'a Query<'_>) -> Self {
        let text = |name: &'static str| Ok::<_, Problem>(query.non_empty(name).ok().flatten().unwrap_or_default());
        Self::from_texts(text).unwrap_or_default()
    }

    fn from_texts(text: impl Fn(&'static str) -> Result<&'a str, Problem>) -> Result<Self, Problem> {
        let (status, key, event_type) = (text("status")?, text("key")?, text("type")?);
        let (failure, partition) = (text("failureType")?, text("partition")?);
        Ok(Self { status, key, event_type, failure, partition, after: text("after")? })
    }

    /// The parameters under the names of the command line's options.
    pub(super) fn options(&self) -> [(&'static str, &'a str); 6] {
        let [key, event_type, _, partition] = self.conditions();
        [("status", self.status), key, event_type, ("failure", self.failure), partition, ("after", self.after)]
    }

    /// The conditions that are not the status, under the names of the parameters.
    pub(super) fn conditions(&self) -> [(&'static str, &'a str); 4] {
        let [key, event_type] = [("key", self.key), ("type", self.event_type)];
        [key, event_type, ("failureType", self.failure), ("partition", self.partition)]
    }

    /// Whether rows are left out for another reason than their status.
    pub(super) fn has_conditions(&self) -> bool {
        self.conditions().iter().any(|(_, value)| !value.is_empty())
    }

    /// Whether stores find the first rows without reading many others, so that the page can be updated every few seconds. No store has an index
    /// of a partition's SENT rows.
    pub(super) fn is_cheap(&self) -> bool {
        self.partition.is_empty() || !matches!(self.status, "" | "SENT")
    }

    /// A link to the same filter with another `after`.
    pub(super) fn page_link(&self, after: &str) -> String {
        self.link_with("/console/outbox", self.status, after)
    }

    /// The same rows in the HTTP API.
    pub(super) fn api_link(&self) -> String {
        self.link_with("/admin/outbox", self.status, self.after)
    }

    /// A link to the first page of the same filter with another status.
    pub(super) fn with_status(&self, status: &str) -> String {
        self.link_with("/console/outbox", status, "")
    }

    /// A link to an action on all rows with a status that meet the other conditions.
    pub(super) fn matching_link(&self, action: &str, status: &str) -> String {
        let [key, event_type, failure, partition] = self.conditions();
        let parameters = [("action", action), ("status", status), key, event_type, failure, partition];
        link("/console/outbox/matching", &parameters)
    }

    fn link_with(&self, path: &str, status: &str, after: &str) -> String {
        let [key, event_type, failure, partition] = self.conditions();
        link(path, &[("status", status), key, event_type, failure, partition, ("after", after)])
    }
}

/// The waiting rows of a partition.
pub(super) fn partition_link(partition: PartitionNo) -> String {
    link("/console/outbox", &[("status", RowStatus::Pending.as_str()), ("partition", &partition.0.to_string())])
}
