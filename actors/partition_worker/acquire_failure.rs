//! AcquireFailure: the error for which a partition could not be acquired or handed over, and what it shows about the broker.
use ports::Error;
use ports::broker::BrokerFailure;

use super::report::BrokerSignal;

/// Why a partition could not be acquired or handed over, and what the failure says about the broker.
pub struct AcquireFailure {
    pub error: Error,
    pub broker: BrokerSignal,
}

impl From<BrokerFailure> for AcquireFailure {
    fn from(BrokerFailure { id, error }: BrokerFailure) -> Self {
        Self { error, broker: BrokerSignal::Failed(id) }
    }
}

impl From<Error> for AcquireFailure {
    fn from(error: Error) -> Self {
        Self { error, broker: BrokerSignal::None }
    }
}
