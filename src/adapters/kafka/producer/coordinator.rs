//! Requests of one transactional id to its coordinator, repeated while the coordinator moves, starts or still ends the last transaction.
use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode as Code;

use crate::protocol::calls::Call;
use crate::protocol::cluster::Cluster;
use crate::protocol::connection::CallError;
use crate::protocol::response_code::{error_code, is_coordinator_moving};

/// First pause before a request is repeated: the coordinator writes the markers of a transaction within a millisecond or two.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest pause between two repetitions.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The coordinator of a transactional id.
pub(crate) struct Coordinator {
    pub(crate) transactional_id: String,
    /// `host:port`, while it is known.
    address: Option<String>,
}

/// How long a request is repeated.
#[derive(Clone, Copy)]
pub(crate) struct RetryLimits {
    pub(crate) deadline: Instant,
    /// Longest time without a connection to any broker.
    pub(crate) unreachable_max: Duration,
}

/// A response of the coordinator.
pub(crate) struct CoordinatorResponse<R> {
    pub(crate) response: R,
    /// The error code in the response.
    pub(crate) code: Option<Code>,
    /// The request was sent before without a response: it may have had its effect then.
    pub(crate) is_repetition: bool,
}

/// The error of a request without a response.
#[derive(Debug)]
pub(crate) struct CoordinatorCallError {
    pub(crate) error: CallError,
    /// The coordinator still ends the last transaction.
    pub(crate) is_transaction_pending: bool,
}

impl Coordinator {
    pub(crate) fn new(transactional_id: &str) -> Self {
        Self { transactional_id: transactional_id.to_owned(), address: None }
    }

    /// Sends a request, and repeats it until the coordinator has handled it. All requests of a transactional id may be repeated.
    pub(crate) fn call<C: Call>(
        &mut self,
        cluster: &mut Cluster,
        request: &C,
        error_code_of: impl Fn(&C::Response) -> i16,
        limits: RetryLimits,
    ) -> Result<CoordinatorResponse<C::Response>, CoordinatorCallError> {
        let (started, mut pause, mut may_have_arrived) = (Instant::now(), PAUSE_MIN, false);
        // The last repetition may have too little time left for a response.
        let mut is_transaction_pending = false;
        loop {
            let (error, is_unreachable) = match self.call_once(cluster, request, limits.deadline) {
                Ok(response) => match error_code(error_code_of(&response)) {
                    Some(Code::ConcurrentTransactions) => {
                        is_transaction_pending = true;
                        (delayed(Code::ConcurrentTransactions), false)
                    }
                    Some(code) if is_coordinator_moving(code) => {
                        self.address = None;
                        (delayed(code), false)
                    }
                    code => return Ok(CoordinatorResponse { response, code, is_repetition: may_have_arrived }),
                },
                Err(error @ CallError::Refused(_)) => {
                    return Err(CoordinatorCallError { error, is_transaction_pending });
                }
                Err(error) => {
                    self.address = None;
                    may_have_arrived |= matches!(error, CallError::Unanswered(_));
                    let is_unreachable = matches!(error, CallError::NotSent(_));
                    (error, is_unreachable)
                }
            };
            let now = Instant::now();
            if now + pause >= limits.deadline || (is_unreachable && started.elapsed() >= limits.unreachable_max) {
                return Err(CoordinatorCallError { error, is_transaction_pending });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn call_once<C: Call>(
        &mut self,
        cluster: &mut Cluster,
        request: &C,
        deadline: Instant,
    ) -> Result<C::Response, CallError> {
        let address = match &self.address {
            Some(address) => address.clone(),
            None => {
                let found = cluster.find_coordinator(&self.transactional_id, deadline);
                let found = found.map_err(CallError::into_not_sent)?;
                let address = found.map_err(|code| match code {
                    Code::TransactionalIdAuthorizationFailed => CallError::Refused(code.to_string()),
                    code => delayed(code),
                })?;
                self.address.insert(address).clone()
            }
        };
        cluster.call(&address, request, deadline)
    }
}

fn delayed(code: Code) -> CallError {
    CallError::NotSent(format!("the coordinator of the transaction answers: {code}"))
}
