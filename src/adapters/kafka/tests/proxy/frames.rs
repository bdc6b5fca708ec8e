//! Parts of Kafka's frames that the proxy reads or replaces. Lengths and counts take one byte here.

/// The broker's code for a partition without a leader.
const LEADER_NOT_AVAILABLE: u16 = 5;
/// The broker's code for a partition that another broker leads.
pub const NOT_LEADER: u16 = 6;
/// The broker's code for a partition with too few replicas in sync.
pub const NOT_ENOUGH_REPLICAS: u16 = 19;
/// The coordinator's code while it still ends the last transaction.
const CONCURRENT_TRANSACTIONS: u16 = 51;

/// The correlation id at the beginning of a response, or of a request behind its API key and version.
pub fn correlation_id(bytes: &[u8]) -> [u8; 4] {
    bytes[..4].try_into().expect("a frame has a head")
}

/// Whether a frame contains a topic's name.
pub fn contains_topic(frame: &[u8], topic: &str) -> bool {
    position(frame, topic).is_some()
}

fn position(frame: &[u8], topic: &str) -> Option<usize> {
    frame.windows(topic.len()).position(|window| window == topic.as_bytes())
}

/// The transactional id at the beginning of a request, empty for null: API key (2), version (2), correlation id (4), client id behind its length
/// (2), tags (1).
pub fn transactional_id(request: &[u8]) -> Vec<u8> {
    let length = usize::from(u16::from_be_bytes([request[8], request[9]]));
    let at = 10 + length + 1;
    request[at + 1..at + usize::from(request[at].max(1))].to_vec()
}

/// Removes the brokers from a metadata response: correlation id (4), tags (1), throttle time (4), brokers (their count plus one, then id (4),
/// host, port (4), rack, tags), the rest. A length of zero means null.
pub fn remove_brokers(response: &mut Vec<u8>) {
    const BROKERS: usize = 9;
    let mut end = BROKERS + 1;
    for _ in 1..response[BROKERS] {
        for fixed in [4, 4] {
            end += fixed;
            end += 1 + usize::from(response[end].saturating_sub(1));
        }
        end += 1;
    }
    response.splice(BROKERS..end, [1]);
}

/// Removes the leader of a topic's only partition in a metadata response: the topic's name, its id (16), whether it is internal (1), the number of
/// its partitions (1), the partition's error code (2), its number (4), its leader (4).
pub fn remove_leader(response: &mut [u8], topic: &str) {
    let Some(at) = position(response, topic) else { return };
    let (code, leader) = (at + topic.len() + 18, at + topic.len() + 24);
    if response[code - 1] < 2 {
        return;
    }
    response[code..code + 2].copy_from_slice(&LEADER_NOT_AVAILABLE.to_be_bytes());
    response[leader..leader + 4].copy_from_slice(&(-1_i32).to_be_bytes());
}

/// Removes all in-sync replicas of a topic's only partition in a metadata response: behind its leader are the leader's epoch (4), its replicas and
/// those in sync (each a count plus one, then 4 bytes for each).
pub fn remove_in_sync_replicas(response: &mut Vec<u8>, topic: &str) {
    let Some(at) = position(response, topic) else { return };
    let replicas = at + topic.len() + 32;
    if response[at + topic.len() + 17] < 2 {
        return;
    }
    let in_sync = replicas + 1 + 4 * usize::from(response[replicas] - 1);
    let end = in_sync + 1 + 4 * usize::from(response[in_sync] - 1);
    response.splice(in_sync..end, [1]);
}

/// Sets the error of a topic's only partition in a produce response, if the response contains the topic: the topic's name, the number of its
/// partitions (1), the partition's number (4), and its error code (2). Returns whether it does.
pub fn set_produce_error(response: &mut [u8], topic: &str, code: u16) -> bool {
    let Some(at) = position(response, topic) else { return false };
    let at = at + topic.len() + 1 + 4;
    response[at..at + 2].copy_from_slice(&code.to_be_bytes());
    true
}

/// Answers for a topic's only partition as a leader that cannot ask the coordinator about the transaction: behind the error code are three
/// offsets and times (8 each), the invalid records (1), and the error's message (its length plus one; zero for null).
pub fn fail_verification(response: &mut Vec<u8>, topic: &str) {
    const MESSAGE: &str =
        "Unable to verify the partition has been added to the transaction. Underlying error: NOT_COORDINATOR";
    let Some(at) = position(response, topic) else { return };
    set_produce_error(response, topic, NOT_ENOUGH_REPLICAS);
    let at = at + topic.len() + 1 + 4 + 2 + 3 * 8 + 1;
    response
        .splice(at..at + usize::from(response[at].max(1)), [&[MESSAGE.len() as u8 + 1], MESSAGE.as_bytes()].concat());
}

/// Answers the initialisation of a transactional id as if its last transaction was still to be ended: correlation id (4), tags (1), throttle time
/// (4), and the error code (2).
pub fn delay_initialisation(response: &mut [u8]) {
    response[9..11].copy_from_slice(&CONCURRENT_TRANSACTIONS.to_be_bytes());
}
