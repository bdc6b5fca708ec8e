//! World: the instances of a run. They run only inside [`World::run`].
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
pub struct Directory(Arc<Mutex<Vec<InstanceApi>>>);

/// The API of an instance; `None` while its process does not run.
type InstanceApi = Option<Arc<dyn Dispatch>>;

impl Directory {
    /// The API of an instance, if its process runs. A number above the last counts from the first again.
    pub fn find(&self, number: u64) -> Option<Arc<dyn Dispatch>> {
        let instances = self.0.lock();
        instances.get(number.checked_rem(instances.len() as u64)? as usize)?.clone()
    }
}

/// One instance: its process while it runs, and whether that is frozen.
#[derive(Default)]
struct Place {
    process: Option<Instance>,
    is_frozen: bool,
}

/// All instances of a run.
pub struct World {
    cluster_context: ClusterContext,
    trace: Trace,
    places: Vec<Place>,
    directory: Directory,
}

impl World {
    /// Slots for this many instances, none of which runs yet.
    pub fn new(instances: usize, cluster_context: ClusterContext, trace: Trace) -> Self {
        let places = (0..instances).map(|_| Place::default()).collect();
        let directory = Directory::default();
        directory.0.lock().resize_with(instances, || None);
        Self { cluster_context, trace, places, directory }
    }

    /// The APIs of the running instances, kept up to date.
    pub fn directory(&self) -> Directory {
        self.directory.clone()
    }

    /// The number of instances, running or not.
    pub fn instances(&self) -> usize {
        self.places.len()
    }

    /// Runs the instances until `work` is done.
    pub async fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let places = &mut self.places;
        poll_fn(|context| {
            if let Poll::Ready(result) = work.as_mut().poll(context) {
                return Poll::Ready(result);
            }
            for place in places.iter_mut().filter(|place| !place.is_frozen) {
                if let Some(process) = &mut place.process {
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
        if self.places[number].process.is_none() {
            self.note("start", number);
            let cluster_context = self.cluster_context.clone();
            let process = self.run(Instance::start(number, &cluster_context)).await;
            self.directory.0.lock()[number] = Some(process.dispatch());
            self.places[number] = Place { process: Some(process), is_frozen: false };
        }
    }

    /// Kills an instance: it neither finishes its work nor releases its leases.
    pub fn kill(&mut self, number: usize) {
        self.note("kill", number);
        self.directory.0.lock()[number] = None;
        self.places[number] = Place::default();
    }

    /// Stops an instance gracefully.
    pub async fn stop(&mut self, number: usize) {
        if self.places[number].is_frozen {
            return;
        }
        let Some(process) = self.places[number].process.take() else { return };
        self.note("stop", number);
        self.directory.0.lock()[number] = None;
        self.run(process.stop(STOP_DEADLINE)).await;
    }

    /// Freezes an instance, or lets it continue.
    pub fn set_frozen(&mut self, number: usize, is_frozen: bool) {
        self.note(if is_frozen { "freeze" } else { "thaw" }, number);
        self.places[number].is_frozen = is_frozen;
    }

    /// The process of an instance, if it runs.
    pub fn process(&self, number: usize) -> Option<&Instance> {
        self.places[number].process.as_ref()
    }

    /// Restarts each process with a root supervisor that has given up, as the platform does.
    pub async fn restart_those_that_gave_up(&mut self) {
        for number in 0..self.places.len() {
            if self.places[number].process.as_ref().is_some_and(Instance::escalated) {
                self.kill(number);
                self.start(number).await;
            }
        }
    }

    fn note(&self, what: &'static str, number: usize) {
        self.trace.add(what, number as u64, 0);
        self.trace.print(format_args!("{what} instance {number}"));
    }
}
