//! The part of the tree that consumes topics of other services.
use std::sync::Arc;

use app::consume::topic_chain::group;
use supervision::{Shutdown, SupervisionBus, SupervisorSpec};

use crate::consumer_actor::ConsumerActor;
use crate::consumer_actor::lag_series::LagSeries;
use crate::consumer_actor::topic_pipeline::{TopicConsumers, TopicPipeline};
use crate::system::dependencies::Dependencies;
use crate::system::options::Options;
use crate::system::tree::group_consumers::group_consumers;
use crate::system::tree::limits::{CONSUMER_DRAIN_MAX, Intensity, MAILBOX_SMALL, actor, only_child};
use crate::system::tree::threads::Threads;

/// One supervisor for each consumer; none without a broker. Their lag does not count as pressure: orders do not wait for the endpoint of
/// another service.
pub(crate) fn topic_consumers(
    dependencies: &Dependencies,
    options: &Options,
    bus: &SupervisionBus,
    threads: &Threads,
) -> Vec<SupervisorSpec> {
    dependencies
        .topic_consumers
        .iter()
        .flat_map(|topic| consumers_of(topic, dependencies, options, bus, threads))
        .collect()
}

fn consumers_of(
    consumers: &TopicConsumers,
    dependencies: &Dependencies,
    options: &Options,
    bus: &SupervisionBus,
    threads: &Threads,
) -> Vec<SupervisorSpec> {
    let Some(groups) = group_consumers(dependencies, options, bus) else { return Vec::new() };
    let TopicConsumers { topic, members, chain } = consumers.clone();
    let pipeline =
        Arc::new(TopicPipeline { consumer: groups(group(&topic), &topic, members), chain, batch: options.topic_batch });
    let lag_series = Arc::new(LagSeries::new(Arc::clone(&dependencies.metrics)));
    let consumer = |number: u32| {
        let (pipeline, lag_series) = (Arc::clone(&pipeline), Arc::clone(&lag_series));
        let name = format!("consumer-{topic}-{number}");
        let (_, spec) = actor(bus, &format!("/{name}"), MAILBOX_SMALL, move |_| {
            ConsumerActor::new(Arc::clone(&pipeline) as _, Some(Arc::clone(&lag_series)), number)
        });
        let spec = spec.arbiter(threads.relay()).shutdown(Shutdown::Timeout(CONSUMER_DRAIN_MAX));
        only_child(&name, Intensity::CONSUMER, spec)
    };
    (0..members).map(consumer).collect()
}
