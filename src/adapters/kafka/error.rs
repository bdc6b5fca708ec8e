//! The client library's errors as the port's, in one table: what each leaves behind decides its name.
use ports::Error;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// The port's error; `doing` says what was being done and to which id.
pub(crate) fn of(error: &KafkaError, doing: &str) -> Error {
    let said = format!("{doing}: {error}");
    match error {
        KafkaError::Transaction(inner) if inner.code() == Code::Fatal => Error::Broken(said),
        KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) => Error::Broken(said),
        KafkaError::Canceled => Error::Unreachable(said),
        other => match other.rdkafka_error_code() {
            Some(code) => of_code(code, said),
            None => Error::Unreachable(said),
        },
    }
}

/// The port's error for a code of the broker or the library.
pub(crate) fn of_code(code: Code, said: String) -> Error {
    match code {
        // Nobody there, on the move, or in the middle of something: nothing was changed.
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
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
        | Code::ISRInsufficient
        | Code::AssignmentLost
        | Code::UnknownBroker
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
        | Code::RebootstrapRequired => Error::Unreachable(said),
        // Sent, and never or badly answered: it may stand there.
        Code::MessageTimedOut
        | Code::RequestTimedOut
        | Code::PurgeInflight
        | Code::NotEnoughReplicasAfterAppend
        | Code::InvalidDifferentRecord => Error::Unknown(said),
        Code::QueueFull | Code::ThrottlingQuotaExceeded | Code::GroupMaxSizeReached => Error::Overloaded(said),
        Code::KafkaStorageError => Error::Full(said),
        // The record, or the request, itself.
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::MessageBatchTooLarge
        | Code::InvalidMessage
        | Code::InvalidTimestamp
        | Code::InvalidRecord
        | Code::BadMessage
        | Code::InvalidArgument
        | Code::InvalidTopic
        | Code::InvalidRequest
        | Code::OffsetMetadataTooLarge
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType => Error::Rejected(said),
        // Missing topics, missing rights, other versions, fenced ids: a human mends it, or somebody else goes on.
        _ => Error::Broken(said),
    }
}

/// Who is to blame that a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// A record of the request it travelled in: this one, unless it had company.
    Record,
    /// Another record of that request: this one is innocent.
    Neighbour,
    /// The broker, or the way there.
    Broker,
}

/// Who is to blame for a record's code.
pub(crate) fn blame(code: Code) -> Blame {
    match code {
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::MessageBatchTooLarge
        | Code::InvalidMessage
        | Code::InvalidTimestamp
        | Code::InvalidRecord
        | Code::BadMessage
        | Code::InvalidArgument
        | Code::UnsupportedForMessageFormat => Blame::Record,
        Code::InvalidDifferentRecord => Blame::Neighbour,
        _ => Blame::Broker,
    }
}

/// Whether a record that failed so has surely never left this process.
pub(crate) fn never_left(code: Code) -> bool {
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
    use ports::Fault;

    use super::*;

    fn named(code: Code) -> Error {
        of(&KafkaError::MessageProduction(code), "sending")
    }

    #[test]
    fn an_outage_is_no_fault_of_the_data() {
        for code in [Code::AllBrokersDown, Code::BrokerTransportFailure, Code::NotEnoughReplicas, Code::NotCoordinator]
        {
            assert!(matches!(named(code), Error::Unreachable(_)), "{code:?}");
            assert_eq!(blame(code), Blame::Broker);
        }
    }

    #[test]
    fn what_was_sent_and_not_answered_is_unknown() {
        for code in [Code::MessageTimedOut, Code::RequestTimedOut, Code::PurgeInflight] {
            assert!(named(code).outcome_unknown(), "{code:?}");
            assert!(!never_left(code), "{code:?}");
        }
    }

    #[test]
    fn what_never_left_can_be_given_back() {
        assert!(never_left(Code::PurgeQueue));
        assert!(never_left(Code::UnknownTopicOrPartition));
    }

    #[test]
    fn a_record_that_cannot_be_taken_is_rejected_for_good() {
        for code in [Code::MessageSizeTooLarge, Code::InvalidTimestamp, Code::InvalidRecord] {
            assert_eq!(named(code).fault(), Fault::Permanent, "{code:?}");
            assert_eq!(blame(code), Blame::Record);
        }
        assert_eq!(blame(Code::InvalidDifferentRecord), Blame::Neighbour);
    }

    #[test]
    fn missing_topics_and_rights_wait_for_a_human_and_blame_no_record() {
        for code in [Code::UnknownTopicOrPartition, Code::TopicAuthorizationFailed, Code::SaslAuthenticationFailed] {
            assert!(matches!(named(code), Error::Broken(_)), "{code:?}");
            assert_eq!(blame(code), Blame::Broker);
        }
    }

    #[test]
    fn the_doing_is_told() {
        assert!(named(Code::QueueFull).to_string().contains("sending"));
    }
}
