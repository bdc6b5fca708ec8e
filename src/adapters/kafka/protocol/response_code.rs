//! The error codes of responses, as librdkafka names them: the adapter's table of errors is written for those.
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::types::RDKafkaRespErr;

/// The name of an error code of the protocol; `None` for success.
pub(crate) fn error_code(code: i16) -> Option<Code> {
    match RDKafkaRespErr::try_from(i32::from(code)) {
        Ok(RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR) => None,
        Ok(known) => Some(Code::from(known)),
        Err(_) => Some(Code::Unknown),
    }
}

/// How the message begins with which a leader that cannot ask the coordinator about the transaction refuses a batch (Kafka 3.6 and later).
const UNVERIFIED: &str = "Unable to verify the partition has been added to the transaction";

/// The name of a partition's error code in a Produce response. A leader that could not ask the coordinator about the transaction answers with
/// NOT_ENOUGH_REPLICAS, because all clients repeat a request after this code; only the message shows that no replica is missing.
pub(crate) fn produce_error_code(code: i16, message: Option<&str>) -> Option<Code> {
    match error_code(code) {
        Some(Code::NotEnoughReplicas) if message.is_some_and(|message| message.starts_with(UNVERIFIED)) => {
            Some(Code::CoordinatorNotAvailable)
        }
        code => code,
    }
}

/// Whether the coordinator of a transactional id is somewhere else, or not ready yet.
pub(crate) fn is_coordinator_moving(code: Code) -> bool {
    matches!(code, Code::CoordinatorNotAvailable | Code::NotCoordinator | Code::CoordinatorLoadInProgress)
}

/// Whether another producer has taken the transactional id, or the coordinator has ended the transaction for its timeout.
pub(crate) fn is_fenced(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidProducerEpoch
            | Code::ProducerFenced
            | Code::InvalidProducerIdMapping
            | Code::TransactionCoordinatorFenced
    )
}

/// Whether a partition takes no records for now, while its topic may: it has no leader, or not enough replicas in sync. A leader
/// that loses its partition while it waits for the replicas may have appended the records.
pub(crate) fn is_partition_unavailable(code: Code) -> bool {
    matches!(
        code,
        Code::NotLeaderForPartition
            | Code::LeaderNotAvailable
            | Code::UnknownLeaderEpoch
            | Code::FencedLeaderEpoch
            | Code::ReplicaNotAvailable
            | Code::NotEnoughReplicas
    )
}

/// Whether the same records may be accepted in a moment, perhaps by another leader.
pub(crate) fn is_retriable(code: Code) -> bool {
    is_partition_unavailable(code)
        || matches!(code, Code::UnknownTopicOrPartition | Code::KafkaStorageError | Code::CoordinatorNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_protocol_have_their_names() {
        let codes = [0, 3, 10, 15, 47, 51, 87, 90, 120, 9_999].map(error_code);

        assert_eq!(
            codes,
            [
                None,
                Some(Code::UnknownTopicOrPartition),
                Some(Code::MessageSizeTooLarge),
                Some(Code::CoordinatorNotAvailable),
                Some(Code::InvalidProducerEpoch),
                Some(Code::ConcurrentTransactions),
                Some(Code::InvalidRecord),
                Some(Code::ProducerFenced),
                // Newer than librdkafka's table.
                Some(Code::Unknown),
                Some(Code::Unknown),
            ]
        );
    }

    #[test]
    fn leader_that_cannot_verify_a_transaction_lacks_no_replicas() {
        let message = format!("{UNVERIFIED}. Underlying error: COORDINATOR_NOT_AVAILABLE");
        let codes = [None, Some("too few"), Some(message.as_str())].map(|message| produce_error_code(19, message));

        let [without, other, unverified] = codes.map(|code| code.expect("an error"));
        assert_eq!([without, other], [Code::NotEnoughReplicas; 2]);
        assert!(is_retriable(unverified) && !is_partition_unavailable(unverified));
    }
}
