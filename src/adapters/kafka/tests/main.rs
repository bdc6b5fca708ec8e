//! The adapter against a real Apache Kafka: every port's word, and what only a real broker can prove.
mod at_least_once;
mod conformance;
mod groups;
mod outages;
mod provisions;
mod proxy;
mod support;
mod trials;
