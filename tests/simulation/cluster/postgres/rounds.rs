//! Rounds: claims or settlements of several partitions that share one statement. They receive its reply together, or lose it together.
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use ports::Error;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::cluster::network::Link;

/// How long a statement waits for further requests.
const GATHERING_TIME: Duration = Duration::from_millis(1);

type Waiting<T> = (BoxFuture<'static, T>, oneshot::Sender<Result<T, Error>>);

/// The requests of one kind that wait for the next statement.
pub struct Rounds<T> {
    link: Link,
    name: &'static str,
    waiting: Arc<Mutex<Vec<Waiting<T>>>>,
}

impl<T> Clone for Rounds<T> {
    fn clone(&self) -> Self {
        Self { link: self.link.clone(), name: self.name, waiting: Arc::clone(&self.waiting) }
    }
}

impl<T: Send + 'static> Rounds<T> {
    /// A queue without requests. `name` is the statement's name in traces.
    pub fn new(link: Link, name: &'static str) -> Self {
        Self { link, name, waiting: Arc::default() }
    }

    /// Adds a request to the next statement. `serve` executes it on the server.
    ///
    /// # Errors
    /// The errors of the statement that carries it.
    pub async fn call(&self, serve: impl Future<Output = T> + Send + 'static) -> Result<T, Error> {
        let (reply, result) = oneshot::channel();
        let is_first = {
            let mut waiting = self.waiting.lock();
            waiting.push((Box::pin(serve), reply));
            waiting.len() == 1
        };
        if is_first {
            // A task of the instance: it ends with its process, and stands still with it.
            drop(tokio::task::spawn_local(self.clone().run()));
        }
        result.await.unwrap_or_else(|_| Err(Error::Unknown(format!("{}: the instance stopped", self.name))))
    }

    async fn run(self) {
        sleep(GATHERING_TIME).await;
        let (requests, replies): (Vec<_>, Vec<_>) = std::mem::take(&mut *self.waiting.lock()).into_iter().unzip();
        match self.link.call(self.name, join_all(requests)).await {
            Ok(results) => replies.into_iter().zip(results).for_each(|(reply, result)| {
                // The request may have been dropped.
                let _ = reply.send(Ok(result));
            }),
            Err(error) => replies.into_iter().for_each(|reply| {
                let _ = reply.send(Err(error.clone()));
            }),
        }
    }
}
