//! The ports that consumer groups of every kind have in common.
use std::sync::Arc;

use outbox::topics::consumed_topics;
use supervision::SupervisionBus;

use crate::consumer_actor::clock_skews::ClockSkews;
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::system::dependencies::Dependencies;
use crate::system::options::Options;

/// Makes a group of a name, the topic that it reads with its retry topics, and its number of members; `None` without a broker.
pub(crate) fn group_consumers(
    dependencies: &Dependencies,
    options: &Options,
    bus: &SupervisionBus,
) -> Option<impl Fn(String, &str, u32) -> GroupConsumer + Send + Sync + use<>> {
    let (groups, broker) = (dependencies.consumer_groups.clone()?, dependencies.broker.clone()?);
    let (inbox, clock) = (Arc::clone(&dependencies.inbox), Arc::clone(&dependencies.clock));
    let (metrics, bus) = (Arc::clone(&dependencies.metrics), bus.clone());
    let (parallel_keys, retry_delays) = (options.consumer_parallel_keys, options.retry_delays);
    Some(move |group, topic: &str, members| GroupConsumer {
        group,
        topics: consumed_topics(topic),
        members,
        clock_skews: ClockSkews::default(),
        base: topic.to_owned(),
        added_header: None,
        parallel_keys,
        retry_delays,
        groups: Arc::clone(&groups),
        broker: Arc::clone(&broker),
        inbox: Arc::clone(&inbox),
        clock: Arc::clone(&clock),
        metrics: Arc::clone(&metrics),
        bus: bus.clone(),
    })
}
