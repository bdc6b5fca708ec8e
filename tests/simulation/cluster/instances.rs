//! SimulatedInstances: the instances of a run. They run only inside [`SimulatedInstances::run`].
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use app::dispatch::Dispatch;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::cluster::instance::{ClusterContext, Instance};
use crate::cluster::trace::Trace;

/// Longest time that a graceful stop may take.
const STOP_DEADLINE: Duration = Duration::from_secs(4);

/// The APIs of the instances by their numbers, from which clients choose as a load balancer does. Clones share it.
#[derive(Clone, Default)]
pub struct InstanceRegistry(Arc<Mutex<Vec<InstanceApi>>>);

/// The API of an instance; `None` while its process does not run.
type InstanceApi = Option<Arc<dyn Dispatch>>;

impl InstanceRegistry {
    /// The API of an instance, if its process runs. A number above the last counts from the first again.
    pub fn find(&self, number: u64) -> Option<Arc<dyn Dispatch>> {
        let instances = self.0.lock();
        instances.get(number.checked_rem(instances.len() as u64)? as usize)?.clone()
    }
}

/// One instance: its process while it runs, and whether that is frozen.
#[derive(Default)]
struct InstanceSlot {
    process: Option<Instance>,
    is_frozen: bool,
}

/// All instances of a run.
pub struct SimulatedInstances {
    cluster_context: ClusterContext,
    trace: Trace,
    slots: Vec<InstanceSlot>,
    registry: InstanceRegistry,
}

impl SimulatedInstances {
    /// Slots for this many instances, none of which runs yet.
    pub fn new(instances: usize, cluster_context: ClusterContext, trace: Trace) -> Self {
        let slots = (0..instances).map(|_| InstanceSlot::default()).collect();
        let registry = InstanceRegistry::default();
        registry.0.lock().resize_with(instances, || None);
        Self { cluster_context, trace, slots, registry }
    }

    /// The APIs of the running instances, kept up to date.
    pub fn registry(&self) -> InstanceRegistry {
        self.registry.clone()
    }

    /// The number of instances, running or not.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Runs the instances until `work` is done.
    pub async fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let slots = &mut self.slots;
        poll_fn(|context| {
            if let Poll::Ready(result) = work.as_mut().poll(context) {
                return Poll::Ready(result);
            }
            for slot in slots.iter_mut().filter(|slot| !slot.is_frozen) {
                if let Some(process) = &mut slot.process {
                    process.poll(context);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Runs the instances for this much virtual time.
    pub async fn advance(&mut self, time: Duration) {
        self.run(sleep(time)).await;
    }

    /// Starts an instance that does not run.
    pub async fn start(&mut self, number: usize) {
        if self.slots[number].process.is_none() {
            self.trace_event("start", number);
            let cluster_context = self.cluster_context.clone();
            let process = self.run(Instance::start(number, &cluster_context)).await;
            self.registry.0.lock()[number] = Some(process.dispatch());
            self.slots[number] = InstanceSlot { process: Some(process), is_frozen: false };
        }
    }

    /// Kills an instance: it neither finishes its work nor releases its leases.
    pub fn kill(&mut self, number: usize) {
        self.trace_event("kill", number);
        self.registry.0.lock()[number] = None;
        self.slots[number] = InstanceSlot::default();
    }

    /// Stops an instance gracefully.
    pub async fn stop(&mut self, number: usize) {
        if self.slots[number].is_frozen {
            return;
        }
        let Some(process) = self.slots[number].process.take() else { return };
        self.trace_event("stop", number);
        self.registry.0.lock()[number] = None;
        self.run(process.stop(STOP_DEADLINE)).await;
    }

    /// Freezes an instance, or lets it continue.
    pub fn set_frozen(&mut self, number: usize, is_frozen: bool) {
        self.trace_event(if is_frozen { "freeze" } else { "thaw" }, number);
        self.slots[number].is_frozen = is_frozen;
    }

    /// The process of an instance, if it runs.
    pub fn process(&self, number: usize) -> Option<&Instance> {
        self.slots[number].process.as_ref()
    }

    /// Restarts each process with a root supervisor that has given up, as the platform does.
    pub async fn restart_escalated(&mut self) {
        for number in 0..self.slots.len() {
            if self.slots[number].process.as_ref().is_some_and(Instance::escalated) {
                self.kill(number);
                self.start(number).await;
            }
        }
    }

    fn trace_event(&self, event: &'static str, number: usize) {
        self.trace.add(event, number as u64, 0);
        self.trace.print(format_args!("{event} instance {number}"));
    }
}
