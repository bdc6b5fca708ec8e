//! Throwaway data around a measurement: removed when it ends, when it fails, and when the operator interrupts it.
use crate::error::Error;
use crate::program::{BrokerUse, Program, ThrowawayData};

/// Measures on data of its own. An interrupt drops the measurement, which kills the processes that it started, and then removes the data.
pub(crate) async fn with_data<P: Program, T>(
    program: &P,
    broker: BrokerUse,
    measure: impl AsyncFnOnce(&P::Data) -> Result<T, Error>,
) -> Result<T, Error> {
    let data = program.create_data(broker).await?;
    let measured = tokio::select! {
        measured = measure(&data) => measured,
        interrupted = program.interrupted() => interrupted.and(Err(Error::new("interrupted"))),
    };
    let removed = data.remove().await;
    match (measured, removed) {
        (measured, Ok(())) => measured,
        (Ok(_), Err(left)) => Err(left),
        (Err(error), Err(left)) => Err(Error::new(format!("{error}; {left}"))),
    }
}
