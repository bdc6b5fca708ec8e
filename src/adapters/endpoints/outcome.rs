//! Classifies the status of a response, or a transport error, as accepted, temporary or permanent.
use outbox::{FailureType, FaultClass};
use ports::endpoint::EndpointError;

/// A status of 2xx accepts the event. Time-outs, overload and failures of the endpoint (408, 429, 5xx) are temporary; every other status
/// refuses this event, also a redirect, which is not followed.
pub(crate) fn check_status(host: &str, status: u16) -> Result<(), EndpointError> {
    let (fault, failure_type) = match status {
        200..=299 => return Ok(()),
        408 => (FaultClass::Transient, FailureType::Timeout),
        429 | 500..=599 => (FaultClass::SemiTransient, FailureType::System),
        _ => (FaultClass::Permanent, FailureType::Validation),
    };
    let redirect = if (300..=399).contains(&status) { "; redirects are not followed" } else { "" };
    Err(EndpointError { fault, failure_type, reason: format!("{host} answered with status {status}{redirect}") })
}

/// A call without a response. A request that cannot be written will never succeed; every other failure is temporary.
pub(crate) fn transport_error(host: &str, error: &ureq::Error) -> EndpointError {
    let (fault, failure_type, reason) = match error {
        ureq::Error::Timeout(_) => {
            (FaultClass::Transient, FailureType::Timeout, format!("{host} did not respond in time"))
        }
        ureq::Error::Http(_) | ureq::Error::BadUri(_) => {
            (FaultClass::Permanent, FailureType::Validation, format!("the request to {host} cannot be written"))
        }
        other => (FaultClass::Transient, FailureType::Network, format!("{host} was not reached: {other}")),
    };
    EndpointError { fault, failure_type, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_decides_between_done_retry_and_poison() {
        let done = [200, 201, 202, 204, 299];
        let retried = [
            (408, FailureType::Timeout),
            (429, FailureType::System),
            (500, FailureType::System),
            (501, FailureType::System),
            (503, FailureType::System),
            (599, FailureType::System),
        ];
        let poison = [301, 302, 304, 307, 308, 400, 401, 403, 404, 409, 410, 413, 422, 425, 431, 451, 101, 600];

        for code in done {
            assert_eq!(check_status("host", code), Ok(()), "{code}");
        }
        for (code, failure_type) in retried {
            let error = check_status("host", code).unwrap_err();
            assert!(error.fault != FaultClass::Permanent && error.failure_type == failure_type, "{code}: {error:?}");
        }
        for code in poison {
            let error = check_status("host", code).unwrap_err();
            let validation = (FaultClass::Permanent, FailureType::Validation);
            assert_eq!((error.fault, error.failure_type), validation, "{code}");
            assert!(error.reason.contains(&code.to_string()), "{}", error.reason);
        }
    }
}
