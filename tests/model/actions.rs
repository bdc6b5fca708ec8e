//! All steps. Each file holds the steps of one part of the protocol.
pub mod at_least_once;
pub mod cycle;
pub mod environment;
pub mod exclude;
pub mod issue;
pub mod ownership;
pub mod processes;
pub mod publish;
pub mod resolve;
pub mod rewind;

use crate::configuration::{Configuration, DeliveryGuarantee, INSTANCES};
use crate::state::system::System;
use crate::successors::{Label, Successors};

/// Collects all successors of a state, always in the same order. A state with a violation has none.
pub fn successors(config: &Configuration, from: &System, found: &mut Vec<(Label, System)>) {
    found.clear();
    if from.violation.is_some() {
        return;
    }
    let mut steps = Successors { config, from, found };
    environment::steps(&mut steps);
    rewind::store_steps(&mut steps);
    issue::late_statements(&mut steps);
    for instance in 0..INSTANCES {
        processes::steps(&mut steps, instance);
        if !from.instances[instance].is_alive {
            continue;
        }
        match config.guarantee {
            DeliveryGuarantee::ExactlyOnce => publish::steps(&mut steps, instance),
            DeliveryGuarantee::AtLeastOnce => at_least_once::steps(&mut steps, instance),
        }
        for partition in 0..config.partitions {
            ownership::local_steps(&mut steps, instance, partition);
            resolve::broker_steps(&mut steps, instance, partition);
        }
        if from.instances[instance].timeline != from.store.timeline {
            rewind::detect_rewind(&mut steps, instance);
            continue;
        }
        rewind::fence_all(&mut steps, instance);
        cycle::steps(&mut steps, instance);
        for partition in 0..config.partitions {
            ownership::statements(&mut steps, instance, partition);
            resolve::statements(&mut steps, instance, partition);
            exclude::steps(&mut steps, instance, partition);
        }
    }
}
