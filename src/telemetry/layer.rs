//! The tracing layer: turns each event into one line and writes it in one call.

use std::io;

use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::fact::Fact;

/// Formats with `format`, hands each whole line to `write`.
pub(crate) struct LineLayer<W> {
    pub(crate) format: fn(&Fact) -> String,
    pub(crate) write: W,
}

impl<S, W> Layer<S> for LineLayer<W>
where
    S: Subscriber,
    W: Fn(&str) -> io::Result<()> + 'static,
{
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = (self.format)(&Fact::read(event));
        // A closed pipe or a full disk must not stop the service, and there is nowhere left to say so.
        let _ = (self.write)(&line);
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;
    use crate::json_line::json_line;

    #[test]
    fn a_closed_output_stops_nobody() {
        let write = |_: &str| Err(io::Error::from(io::ErrorKind::BrokenPipe));
        let subscriber = tracing_subscriber::registry().with(LineLayer { format: json_line, write });

        tracing::subscriber::with_default(subscriber, || tracing::info!("said to nobody"));
    }
}
