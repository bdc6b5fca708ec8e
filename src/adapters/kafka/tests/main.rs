//! The adapter against a real Apache Kafka: the conformance suites of the ports, and behaviour that only a real broker shows.
mod at_least_once;
mod conformance;
mod exactly_once;
mod fence_all;
mod groups;
mod outages;
mod proxy;
mod repeated_ends;
mod secured;
mod support;
mod timestamps;
mod topic_creation;
mod unavailable_topics;
mod watermark_layouts;
