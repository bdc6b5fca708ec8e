//! RelayStatus: logs when the relay begins to fail and when it recovers, not every failed batch.

use crate::partition_worker::report::BatchReport;

/// Whether the last reports were failures.
#[derive(Debug, Default)]
pub struct RelayStatus {
    failing: bool,
}

impl RelayStatus {
    /// Logs the change that this report brings. Only sent rows end a failure: an empty batch proves nothing.
    pub fn record(&mut self, report: &BatchReport) {
        match &report.error {
            Some(error) if !self.failing => {
                self.failing = true;
                tracing::warn!(event = "relay_failing", error = %error, "events cannot be published at the moment");
            }
            None if self.failing && report.sent > 0 => {
                self.failing = false;
                tracing::info!(event = "relay_recovered", "events are published again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ports::Error;

    use super::*;

    #[test]
    fn a_failure_lasts_until_rows_are_sent() {
        let mut status = RelayStatus::default();
        let error = Some(Error::Unreachable("down".into()));

        status.record(&BatchReport { error, ..BatchReport::default() });
        status.record(&BatchReport::default());
        assert!(status.failing, "a batch without rows is no recovery");
        status.record(&BatchReport { sent: 1, ..BatchReport::default() });

        assert!(!status.failing);
    }
}
