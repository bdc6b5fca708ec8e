//! Background tasks that outlive the requests that started them: a stop waits for their end.
use std::sync::Arc;

use app::operators::dead_letters::SpawnTask;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::Instrument;

/// The tasks of one process. Clones share them.
#[derive(Clone)]
pub(in crate::wiring) struct RunningTasks {
    /// The runtime of the process: a thread that serves requests ends, with its own runtime, when its last connection is closed.
    runtime: Handle,
    running: watch::Sender<usize>,
}

impl RunningTasks {
    /// Must be called inside the runtime that is to run the tasks.
    pub(in crate::wiring) fn new() -> Self {
        Self { runtime: Handle::current(), running: watch::Sender::new(0) }
    }

    /// Starts tasks that are counted here.
    pub(in crate::wiring) fn spawner(&self) -> SpawnTask {
        let tasks = self.clone();
        Arc::new(move |task| {
            let running = RunningTask::begin(tasks.running.clone());
            let counted = async move {
                task.await;
                drop(running);
            };
            drop(tasks.runtime.spawn(counted.in_current_span()));
        })
    }

    /// Resolves when no task runs. Cancel-safe.
    pub(super) async fn ended(&self) {
        // The sender lives as long as this value.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

/// Counts a task until it is dropped, also by a panic.
struct RunningTask(watch::Sender<usize>);

impl RunningTask {
    fn begin(running: watch::Sender<usize>) -> Self {
        running.send_modify(|running| *running += 1);
        Self(running)
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn task_ends_after_the_runtime_of_its_request() {
        let tasks = RunningTasks::new();
        let (release, released) = oneshot::channel::<()>();
        let (finish, finished) = oneshot::channel();
        let spawn = tasks.spawner();
        let request = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                spawn(Box::pin(async {
                    released.await.expect("released");
                    finish.send(()).expect("the test waits");
                }));
            });
        };
        std::thread::spawn(request).join().expect("the request ended");

        assert!(tasks.ended().now_or_never().is_none(), "a stop waits for the task");
        release.send(()).expect("the task waits");
        timeout(TIMEOUT, finished).await.expect("in time").expect("the task reached its end");
        timeout(TIMEOUT, tasks.ended()).await.expect("a stop waits no longer");
    }

    #[tokio::test]
    async fn task_that_panics_has_ended() {
        let tasks = RunningTasks::new();

        (tasks.spawner())(Box::pin(async { panic!("as a test") }));

        timeout(TIMEOUT, tasks.ended()).await.expect("a stop does not wait for it");
    }
}
