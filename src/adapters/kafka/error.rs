//! librdkafka's errors as the port's, in one table: the state that an error leaves behind decides its variant.
use ports::Error;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// The port's error for an error of librdkafka; `action` names what the caller was doing and with which id.
pub(crate) fn map_err(error: &KafkaError, action: &str) -> Error {
    let message = format!("{action}: {error}");
    match error {
        KafkaError::Transaction(inner) if inner.code() == Code::Fatal => Error::Broken(message),
        KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) => Error::Broken(message),
        KafkaError::Canceled => Error::Unreachable(message),
        other => match other.rdkafka_error_code() {
            Some(code) => map_code(code, message),
            None => Error::Unreachable(message),
        },
    }
}

/// Whether the same request may succeed later without any other change.
pub(crate) fn is_temporary(error: &Error) -> bool {
    matches!(error, Error::Unreachable(_) | Error::Unknown(_))
}

/// The port's error for an error code of the broker or of librdkafka.
pub(crate) fn map_code(code: Code, message: String) -> Error {
    if is_client_outage(code) || is_broker_in_transition(code) {
        return Error::Unreachable(message);
    }
    match code {
        // The request was sent, and the answer is missing or leaves the outcome open: the broker may have stored the records.
        Code::MessageTimedOut
        | Code::RequestTimedOut
        | Code::PurgeInflight
        | Code::NotEnoughReplicasAfterAppend
        | Code::InvalidDifferentRecord => Error::Unknown(message),
        Code::QueueFull | Code::ThrottlingQuotaExceeded | Code::GroupMaxSizeReached => Error::Overloaded(message),
        Code::KafkaStorageError => Error::Full(message),
        // The record or the request itself is invalid.
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::MessageBatchTooLarge
        | Code::InvalidMessage
        | Code::InvalidRecord
        | Code::BadMessage
        | Code::InvalidArgument
        | Code::InvalidTopic
        | Code::InvalidRequest
        | Code::OffsetMetadataTooLarge
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType => Error::Rejected(message),
        // Missing topics, missing permissions, unsupported versions, fenced ids, a clock that is ahead: an operator must act, or another instance
        // continues.
        _ => Error::Broken(message),
    }
}

/// Codes of librdkafka: no broker is reachable, or the call ended before anything changed.
fn is_client_outage(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Partial
            | Code::Resolve
            | Code::DestroyBroker
            | Code::BrokerDestroy
            | Code::NodeUpdate
            | Code::OperationTimedOut
            | Code::TimedOutQueue
            | Code::PurgeQueue
            | Code::WaitingForCoordinator
            | Code::WaitCache
            | Code::Retry
            | Code::InProgress
            | Code::PreviousInProgress
            | Code::Interrupted
            | Code::Outdated
            | Code::AssignmentLost
            | Code::UnknownBroker
    )
}

/// Codes of brokers whose leaders, coordinators or group members are changing; the broker changed nothing.
fn is_broker_in_transition(code: Code) -> bool {
    matches!(
        code,
        Code::ISRInsufficient
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::BrokerNotAvailable
            | Code::ReplicaNotAvailable
            | Code::NetworkException
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::NotController
            | Code::NotEnoughReplicas
            | Code::StaleControllerEpoch
            | Code::StaleBrokerEpoch
            | Code::RebalanceInProgress
            | Code::IllegalGeneration
            | Code::UnknownMemberId
            | Code::MemberIdRequired
            | Code::FencedMemberEpoch
            | Code::StaleMemberEpoch
            | Code::ConcurrentTransactions
            | Code::UnstableOffsetCommit
            | Code::ListenerNotFound
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::OffsetNotAvailable
            | Code::PreferredLeaderNotAvailable
            | Code::EligibleLeadersNotAvailable
            | Code::ReassignmentInProgress
            | Code::FetchSessionIdNotFound
            | Code::InvalidFetchSessionEpoch
            | Code::UnknownTopicId
            | Code::RebootstrapRequired
    )
}

/// Which part caused the failure of a record's delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// A record of its produce request: this one when the request had no other, otherwise an unknown one.
    Record,
    /// Another record of its produce request; this one is valid.
    OtherRecord,
    /// The broker, or the connection to it.
    Broker,
}

/// The cause behind the error code of a record's delivery report.
pub(crate) fn failure_cause(code: Code) -> FailureCause {
    match code {
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::MessageBatchTooLarge
        | Code::InvalidMessage
        | Code::InvalidTimestamp
        | Code::InvalidRecord
        | Code::BadMessage
        | Code::InvalidArgument
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat => FailureCause::Record,
        Code::InvalidDifferentRecord => FailureCause::OtherRecord,
        _ => FailureCause::Broker,
    }
}

/// Whether the broker refuses every record of a topic: the topic does not exist, may not be written to, or is one of the broker's own. A topic of
/// another service that was never created is not the relay's outage; one of the installation's own topics is.
pub(crate) fn is_topic_failure(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::TopicAuthorizationFailed | Code::InvalidTopic
    )
}

/// Whether a record that failed with this code certainly never left this process.
pub(crate) fn was_never_sent(code: Code) -> bool {
    matches!(
        code,
        Code::PurgeQueue
            | Code::TimedOutQueue
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::UnknownTopicOrPartition
            | Code::TopicAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
    )
}

#[cfg(test)]
mod tests {
    use ports::FaultClass;

    use super::*;

    fn mapped(code: Code) -> Error {
        map_err(&KafkaError::MessageProduction(code), "sending")
    }

    #[test]
    fn outage_codes_are_unreachable_and_caused_by_the_broker() {
        for code in [Code::AllBrokersDown, Code::BrokerTransportFailure, Code::NotEnoughReplicas, Code::NotCoordinator]
        {
            assert!(matches!(mapped(code), Error::Unreachable(_)), "{code:?}");
            assert_eq!(failure_cause(code), FailureCause::Broker);
        }
    }

    #[test]
    fn sent_and_unanswered_records_have_an_unknown_outcome() {
        for code in [Code::MessageTimedOut, Code::RequestTimedOut, Code::PurgeInflight] {
            assert!(mapped(code).outcome_unknown(), "{code:?}");
            assert!(!was_never_sent(code), "{code:?}");
        }
    }

    #[test]
    fn records_that_never_left_the_process_count_as_never_sent() {
        assert!(was_never_sent(Code::PurgeQueue));
        assert!(was_never_sent(Code::UnknownTopicOrPartition));
    }

    #[test]
    fn invalid_record_is_rejected_permanently() {
        for code in [Code::MessageSizeTooLarge, Code::InvalidRecord, Code::PolicyViolation] {
            assert_eq!(mapped(code).fault(), FaultClass::Permanent, "{code:?}");
            assert_eq!(failure_cause(code), FailureCause::Record);
        }
        assert_eq!(failure_cause(Code::InvalidDifferentRecord), FailureCause::OtherRecord);
    }

    #[test]
    fn record_with_a_timestamp_that_the_broker_refuses_is_tried_again() {
        assert_eq!(mapped(Code::InvalidTimestamp).fault(), FaultClass::SemiTransient);
        assert_eq!(failure_cause(Code::InvalidTimestamp), FailureCause::Record);
    }

    #[test]
    fn missing_topics_and_permissions_are_broken_and_caused_by_no_record() {
        for code in [Code::UnknownTopicOrPartition, Code::TopicAuthorizationFailed, Code::SaslAuthenticationFailed] {
            assert!(matches!(mapped(code), Error::Broken(_)), "{code:?}");
            assert_eq!(failure_cause(code), FailureCause::Broker);
        }
    }

    #[test]
    fn error_message_names_the_action() {
        assert!(mapped(Code::QueueFull).to_string().contains("sending"));
    }
}
