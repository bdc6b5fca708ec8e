//! Watermarks: the highest committed token of each outbox partition, read from the compacted watermark topic.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ports::Error;
use ports::partitions::Token;
use rdkafka::Message;

use crate::options::Options;
use crate::topics::partition_reader::{PartitionReader, ReadControl, SettledEnds};

/// Longest wait for an open transaction: the broker writes its control records within milliseconds of a fence.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest read of all requested partitions.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How many offsets before its end the first read of a partition begins. The last watermark record is two offsets before the end, unless
/// the last transactions were aborted.
const TAIL: u64 = 32;
/// The factor by which the next read begins earlier, when no watermark of this installation was found.
const TAIL_FACTOR: u64 = 32;

/// Reads the watermarks of these outbox partitions; `None` for a partition without one.
pub(crate) fn read(
    reader: &PartitionReader,
    options: &Options,
    partitions: &[u32],
) -> Result<BTreeMap<u32, Option<Token>>, Error> {
    let topic = options.watermark_topic();
    let names: Vec<(String, u32)> = partitions.iter().map(|partition| (topic.clone(), *partition)).collect();
    let ends = match reader.settled_ends(&names, SETTLE_TIMEOUT)? {
        SettledEnds::All(ends) => ends,
        SettledEnds::Undecided { open: (topic, partition), .. } => {
            return Err(Error::Unreachable(format!("a transaction on {topic}-{partition} is still open")));
        }
    };
    let starts = reader.start_offsets(&names)?;
    let mut found: BTreeMap<u32, Option<Token>> = partitions.iter().map(|partition| (*partition, None)).collect();
    let deadline = Instant::now() + READ_TIMEOUT;
    let mut tail = TAIL;
    loop {
        let range =
            |name: &(String, u32)| (starts.get(name).copied().unwrap_or(0), ends.get(name).copied().unwrap_or(0));
        let missing = names.iter().filter(|name| found.get(&name.1) == Some(&None));
        let reads: Vec<(u32, u64, u64)> = missing
            .map(|name| (name.1, range(name)))
            .filter(|(_, (start, end))| start < end)
            .map(|(partition, (start, end))| (partition, start, end.saturating_sub(tail).max(start)))
            .collect();
        let from: Vec<(u32, u64)> = reads.iter().map(|(partition, _, from)| (*partition, *from)).collect();
        reader.read(&topic, &from, deadline, |message| {
            let token = message.payload().and_then(|value| token_of(value, &options.installation));
            let highest = found.entry(message.partition().unsigned_abs()).or_default();
            *highest = (*highest).max(token);
            ReadControl::Continue
        })?;
        let has_more = reads.iter().any(|(partition, start, from)| from > start && found.get(partition) == Some(&None));
        if !has_more {
            return Ok(found);
        }
        tail = tail.saturating_mul(TAIL_FACTOR);
    }
}

/// The token of a watermark record; `None` when the record belongs to another installation.
fn token_of(value: &[u8], installation: &str) -> Option<Token> {
    let (token, owner) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    if owner != installation {
        return None;
    }
    token.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermark_of_another_installation_is_ignored() {
        assert_eq!(token_of(b"17 own", "own"), Some(17));
        assert_eq!(token_of(b"17 other", "own"), None);
        assert_eq!(token_of(b"17", "own"), None);
        assert_eq!(token_of(b"", "own"), None);
    }
}
