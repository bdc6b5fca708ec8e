//! The tasks that run for as long as the store is open.
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// Tasks of one store, aborted together when it closes.
#[derive(Default)]
pub(crate) struct BackgroundTasks(Mutex<Vec<JoinHandle<()>>>);

impl BackgroundTasks {
    pub(crate) fn add(&self, task: JoinHandle<()>) {
        self.0.lock().push(task);
    }

    /// Aborts every task without waiting for it to end.
    pub(crate) fn abort(&self) {
        self.0.lock().drain(..).for_each(|task| task.abort());
    }
}
