//! Throwaway data around a piece of work: removed when it is done, when it fails, and after Ctrl-C.
use posthaste::{Config, Throwaway};

use super::super::commands::serve::Signals;
use super::super::failure::Failure;

/// Does the work on data of its own.
pub(super) async fn on_ground<T>(
    config: &Config,
    work: impl AsyncFnOnce(&Throwaway) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let ground = Box::pin(Throwaway::make(config)).await?;
    let mut signals = Signals::listen()?;
    let done = tokio::select! {
        // Dropping the work kills the processes that it started; its data go below.
        done = work(&ground) => done,
        () = signals.next() => Err(Failure::new("interrupted")),
    };
    let removed = Box::pin(ground.remove()).await;
    match (done, removed) {
        (Ok(done), Ok(())) => Ok(done),
        (Err(failure), Ok(())) => Err(failure),
        (Ok(_), Err(left)) => Err(left.into()),
        (Err(failure), Err(left)) => Err(Failure { message: format!("{}; {left}", failure.message), ..failure }),
    }
}
