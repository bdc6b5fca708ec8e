//! SessionFailure: the error for which a partition's session could not begin, and what it shows about the broker.
use ports::Error;
use ports::broker::BrokerFailure;

use super::report::BrokerSignal;

/// Why a session could not begin, and what the failure says about the broker.
pub struct SessionFailure {
    pub error: Error,
    pub broker: BrokerSignal,
}

impl From<BrokerFailure> for SessionFailure {
    fn from(BrokerFailure { id, error }: BrokerFailure) -> Self {
        Self { error, broker: BrokerSignal::Failed(id) }
    }
}

impl From<Error> for SessionFailure {
    fn from(error: Error) -> Self {
        Self { error, broker: BrokerSignal::None }
    }
}
