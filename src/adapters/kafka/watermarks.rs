//! Watermarks: the highest token of each outbox partition that was ever committed, read from a compacted topic.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ports::Error;
use ports::partitions::Token;
use rdkafka::Message;

use crate::options::Options;
use crate::reader::{Reader, Settled, Then};

/// Longest wait for a transaction that is still open: the broker writes its markers within milliseconds of a fence.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);
/// Longest read of all that is asked at once.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// How far before its end a partition is read first: the last record stands two places before it, unless the last transactions were aborted.
const TAIL: u64 = 32;
/// By how much more, when nothing of ours stands there.
const TAIL_GROWS: u64 = 32;

/// The watermarks of some partitions, in one go.
pub(crate) fn read(
    reader: &Reader,
    options: &Options,
    partitions: &[u32],
) -> Result<BTreeMap<u32, Option<Token>>, Error> {
    let topic = options.watermarks();
    let names: Vec<(String, u32)> = partitions.iter().map(|partition| (topic.clone(), *partition)).collect();
    let ends = match reader.settled_ends(&names, SETTLE_WITHIN)? {
        Settled::All(ends) => ends,
        Settled::Not { open: (topic, partition), .. } => {
            return Err(Error::Unreachable(format!("a transaction on {topic}-{partition} is still open")));
        }
    };
    let firsts = reader.firsts(&names)?;
    let mut found: BTreeMap<u32, Option<Token>> = partitions.iter().map(|partition| (*partition, None)).collect();
    let until = Instant::now() + READ_WITHIN;
    let mut tail = TAIL;
    loop {
        let begin =
            |name: &(String, u32)| (firsts.get(name).copied().unwrap_or(0), ends.get(name).copied().unwrap_or(0));
        let open = names.iter().filter(|name| found.get(&name.1) == Some(&None));
        let from: Vec<(u32, u64, u64)> = open
            .map(|name| (name.1, begin(name)))
            .filter(|(_, (first, end))| first < end)
            .map(|(partition, (first, end))| (partition, first, end.saturating_sub(tail).max(first)))
            .collect();
        let starts: Vec<(u32, u64)> = from.iter().map(|(partition, _, start)| (*partition, *start)).collect();
        reader.read(&topic, &starts, until, |message| {
            let token = message.payload().and_then(|value| token_of(value, &options.installation));
            let slot = found.entry(message.partition().unsigned_abs()).or_default();
            *slot = (*slot).max(token);
            Then::GoOn
        })?;
        let more = from.iter().any(|(partition, first, start)| start > first && found.get(partition) == Some(&None));
        if !more {
            return Ok(found);
        }
        tail = tail.saturating_mul(TAIL_GROWS);
    }
}

/// A watermark's token, if the watermark is ours.
fn token_of(value: &[u8], installation: &str) -> Option<Token> {
    let (token, whose) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    if whose != installation {
        return None;
    }
    token.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_of_another_installation_says_nothing() {
        assert_eq!(token_of(b"17 ours", "ours"), Some(17));
        assert_eq!(token_of(b"17 theirs", "ours"), None);
        assert_eq!(token_of(b"17", "ours"), None);
        assert_eq!(token_of(b"", "ours"), None);
    }
}
