//! The last failure of a call that one caller makes at a time: those that were waiting for it share its failure instead of repeating the call.
use std::time::Instant;

use ports::Error;

/// The last failure, if the call has ever failed.
#[derive(Default)]
pub(crate) struct SharedFailure(Option<(Instant, Error)>);

impl SharedFailure {
    pub(crate) fn record(&mut self, error: &Error) {
        self.0 = Some((Instant::now(), error.clone()));
    }

    /// # Errors
    /// The last failure, if the call failed after this moment.
    pub(crate) fn since(&self, requested: Instant) -> Result<(), Error> {
        match &self.0 {
            Some((failed_at, error)) if *failed_at > requested => Err(error.clone()),
            _ => Ok(()),
        }
    }
}
