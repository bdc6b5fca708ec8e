//! `topic tail`: prints a topic's records from a position, until its end or continuously.
use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::ops::Range;
use std::time::Duration;

use api::record_document;
use app::consume::order_topic::OrderTopic;
use app::contract::rfc3339;
use app::operators::dead_letters::DeadLetterPosition;
use app::units::duration;
use domain::Timestamp;
use ports::broker::Position;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topics::TopicReader;

use crate::cli::failure::Failure;
use crate::cli::output::format::OutputArguments;
use crate::cli::output::table::printable;
use crate::cli::output::{print_line, print_message};

/// Maximum number of records that one read returns.
const PAGE: u32 = 500;
/// Pause between two reads of `--follow` when there was nothing new.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The topic's name, prefix included.
    topic: String,
    /// Start at the first record that is still kept; by default at the end.
    #[arg(long)]
    from_beginning: bool,
    /// Start after this partition and offset; may be given once for each partition. The others start at their first record.
    #[arg(long, value_name = "PARTITION/OFFSET", value_parser = position, conflicts_with = "from_beginning")]
    after: Vec<(u32, u64)>,
    /// Start where this consumer group continues; on Kafka the group of this installation, named without its prefix. Reading acknowledges
    /// nothing. A group that has acknowledged nothing starts at the first record.
    #[arg(short, long, conflicts_with_all = ["from_beginning", "after"])]
    group: Option<String>,
    /// Only records that are at most this old, such as 10m: starts at the first record that is still kept.
    #[arg(long, value_name = "AGE", value_parser = duration)]
    since: Option<Duration>,
    /// Only records with this key.
    #[arg(short, long)]
    key: Option<String>,
    /// Stop after this many records.
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Keep running and print new records, also when the service restarts. The default on a terminal, where the output is not JSON.
    #[arg(short, long)]
    follow: bool,
    /// Stop at the end of the topic. The default in a pipe.
    #[arg(long, conflicts_with = "follow")]
    no_follow: bool,
    #[command(flatten)]
    output: OutputArguments,
}

impl Arguments {
    /// Whether the command waits for new records at the end of the topic.
    fn follows(&self, is_terminal: bool) -> bool {
        self.follow || (is_terminal && !self.no_follow && !self.output.is_json())
    }

    /// Whether an option names a position before the end of the topic.
    fn starts_in_the_past(&self) -> bool {
        self.from_beginning || self.since.is_some() || !self.after.is_empty() || self.group.is_some()
    }

    /// The offset to start from for each partition, given the kept offsets of each, and where the group continues.
    fn starts(&self, partitions: &[Range<u64>], group_offsets: &[Option<u64>]) -> BTreeMap<u32, u64> {
        let from_first = self.starts_in_the_past();
        let start = |(partition, kept): (u32, &Range<u64>)| {
            let after =
                self.after.iter().find(|(named, _)| *named == partition).map(|(_, offset)| offset.saturating_add(1));
            let after = after.or_else(|| group_offsets.get(partition as usize).copied().flatten());
            let start = after.unwrap_or(if from_first { kept.start } else { kept.end });
            // Deleted records cannot be read, and the command waits for records that do not exist yet.
            (partition, start.clamp(kept.start, kept.end.max(kept.start)))
        };
        (0..).zip(partitions).map(start).collect()
    }
}

fn position(text: &str) -> Result<(u32, u64), String> {
    let position =
        DeadLetterPosition::parse(text).ok_or_else(|| "a partition and an offset, such as 3/17".to_owned())?;
    Ok((position.partition, position.offset))
}

/// The records to print: their key, their age, and how many more.
struct RecordSelection {
    key: Option<String>,
    oldest: Option<Timestamp>,
    remaining: Option<u64>,
}

impl RecordSelection {
    /// Whether a record is printed; counts it if it is.
    fn selects(&mut self, ConsumerRecord { record, .. }: &ConsumerRecord) -> bool {
        let matches = self.key.as_ref().is_none_or(|key| **key == *record.key)
            && self.oldest.is_none_or(|oldest| record.timestamp >= oldest);
        if let (true, Some(remaining)) = (matches, &mut self.remaining) {
            *remaining = remaining.saturating_sub(1);
        }
        matches
    }

    fn is_complete(&self) -> bool {
        self.remaining == Some(0)
    }
}

pub(super) async fn tail(
    topics: &dyn TopicReader,
    orders: &OrderTopic,
    now: Timestamp,
    arguments: &Arguments,
) -> Result<u8, Failure> {
    let all = topics.list().await.map_err(Failure::new)?;
    let name = arguments.topic.as_str();
    let Some(view) = all.iter().find(|view| view.name == name) else {
        let names: Vec<&str> = all.iter().map(|view| view.name.as_str()).collect();
        let names = if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
        return Err(Failure::new(format!("there is no topic {name}; there are: {names}")));
    };
    if let Some((unknown, _)) = arguments.after.iter().find(|(named, _)| *named as usize >= view.partitions.len()) {
        let count = view.partitions.len();
        return Err(Failure::new(format!("{name} has no partition {unknown}: it has {count}, numbered from 0")));
    }
    let millis = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let oldest = arguments.since.map(|age| Timestamp::from_millis(now.millis().saturating_sub(millis(age))));
    let mut selection = RecordSelection { key: arguments.key.clone(), oldest, remaining: arguments.limit };
    let group_offsets = match &arguments.group {
        Some(group) => topics.group_offsets(group, name).await.map_err(Failure::new)?,
        None => Vec::new(),
    };
    let mut next_offsets = arguments.starts(&view.partitions, &group_offsets);
    let follows = arguments.follows(stdout().is_terminal());
    if follows {
        print_message(format_args!("following {name}; Ctrl-C ends"));
    }
    let mut read_any = false;
    // Without --follow the end is where the topic ended at the start: events that arrive meanwhile must not keep the command running.
    let ends = (!follows).then(|| view.partitions.iter().map(|kept| kept.end).collect::<Vec<u64>>());
    while !selection.is_complete() {
        let part = TopicPart { name, ends: ends.as_deref() };
        let format = if arguments.output.is_json() { json_line } else { as_text };
        let print = |message: &ConsumerRecord| print_line(&format(message, orders));
        let read = print_new(topics, part, &mut next_offsets, &mut selection, print).await?;
        read_any |= read > 0;
        if read == 0 {
            if !follows {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    if !read_any && view.partitions.iter().any(|kept| !kept.is_empty()) && !arguments.starts_in_the_past() {
        print_message(format_args!(
            "began at the end of {name}: --from-beginning prints the records before it, --follow waits for new ones"
        ));
    }
    Ok(0)
}

/// The part of a topic that is printed.
#[derive(Clone, Copy)]
struct TopicPart<'a> {
    name: &'a str,
    /// The offset before which each partition ends; `None` to follow the topic.
    ends: Option<&'a [u64]>,
}

impl TopicPart<'_> {
    fn is_past_end(self, partition: u32, offset: u64) -> bool {
        self.ends.is_some_and(|ends| ends.get(partition as usize).is_none_or(|end| offset >= *end))
    }
}

/// Prints the new records of every partition; returns the number of records that were printed or skipped.
async fn print_new(
    topics: &dyn TopicReader,
    part: TopicPart<'_>,
    next_offsets: &mut BTreeMap<u32, u64>,
    selection: &mut RecordSelection,
    print: impl Fn(&ConsumerRecord) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let mut read = 0;
    for (partition, next_offset) in next_offsets.iter_mut() {
        while !part.is_past_end(*partition, *next_offset) {
            let mut page = topics.read(part.name, *partition, *next_offset, PAGE).await.map_err(Failure::new)?;
            let is_full = page.len() >= PAGE as usize;
            page.retain(|message| !part.is_past_end(*partition, message.position.offset));
            for message in &page {
                if selection.is_complete() {
                    return Ok(read);
                }
                read += 1;
                *next_offset = message.position.offset + 1;
                if selection.selects(message) {
                    print(message)?;
                }
            }
            if !is_full || page.is_empty() {
                break;
            }
        }
    }
    Ok(read)
}

fn json_line(message: &ConsumerRecord, orders: &OrderTopic) -> String {
    record_document(message, orders).to_string()
}

fn as_text(message: &ConsumerRecord, orders: &OrderTopic) -> String {
    let ConsumerRecord { position: Position { partition, offset, .. }, record } = message;
    format!(
        "{} {partition}/{offset} {} {}",
        rfc3339(record.timestamp),
        printable(&record.key),
        printable(&String::from_utf8_lossy(orders.unframed(message).1))
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use async_trait::async_trait;
    use clap::Parser;
    use ports::Error;
    use ports::broker::Record;
    use ports::broker::topics::TopicView;

    use super::*;

    /// A topic of one partition that receives a record with each read.
    struct GrowingTopic(AtomicU64);

    #[async_trait]
    impl TopicReader for GrowingTopic {
        async fn list(&self) -> Result<Vec<TopicView>, Error> {
            Ok(vec![TopicView { name: "order.events".into(), partitions: vec![0..self.0.load(Relaxed); 1] }])
        }

        async fn read(
            &self,
            topic: &str,
            partition: u32,
            offset: u64,
            limit: u32,
        ) -> Result<Vec<ConsumerRecord>, Error> {
            let next = self.0.fetch_add(1, Relaxed) + 1;
            assert!(next < 100, "it is read without an end");
            let message = |offset| ConsumerRecord {
                position: Position { topic: topic.into(), partition, offset },
                record: Record {
                    topic: topic.into(),
                    key: "other".into(),
                    headers: Default::default(),
                    value: Vec::new().into(),
                    timestamp: Timestamp::from_millis(0),
                },
            };
            Ok((offset..next).take(limit as usize).map(message).collect())
        }

        async fn group_offsets(&self, _: &str, _: &str) -> Result<Vec<Option<u64>>, Error> {
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn a_topic_that_grows_is_printed_to_the_end_that_it_had_at_the_start() {
        let topic = GrowingTopic(AtomicU64::new(10));
        // No record has this key: the test prints nothing.
        let arguments = parsed(&["--from-beginning", "--json", "--key", "none"]);

        let orders = OrderTopic::new("order.events");
        assert!(matches!(tail(&topic, &orders, Timestamp::from_millis(0), &arguments).await, Ok(0)));

        assert_eq!(topic.0.load(Relaxed), 11, "one read reached the end");
    }

    #[tokio::test]
    async fn a_start_in_a_partition_that_does_not_exist_is_refused() {
        let (topic, orders) = (GrowingTopic(AtomicU64::new(10)), OrderTopic::new("order.events"));
        let arguments = parsed(&["--after", "0/3", "--after", "1/7"]);

        let refused = tail(&topic, &orders, Timestamp::from_millis(0), &arguments).await.expect_err("no partition 1");

        assert_eq!(refused.message, "order.events has no partition 1: it has 1, numbered from 0");
    }

    #[derive(Parser)]
    struct TailCommand {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(arguments: &[&str]) -> Arguments {
        let command = ["tail", "order.events"].iter().chain(arguments);
        TailCommand::try_parse_from(command).expect("valid arguments").arguments
    }

    #[test]
    fn a_terminal_is_followed_unless_it_gets_json() {
        let cases: [(&[&str], bool, bool); 7] = [
            (&[], true, true),
            (&[], false, false),
            (&["--follow"], false, true),
            (&["--no-follow"], true, false),
            (&["--from-beginning"], true, true),
            (&["--from-beginning", "--json"], true, false),
            (&["-f", "-o", "json"], false, true),
        ];
        for (arguments, is_terminal, expected) in cases {
            assert_eq!(parsed(arguments).follows(is_terminal), expected, "{arguments:?} {is_terminal}");
        }
    }

    #[test]
    fn a_start_after_a_position_reads_the_other_partitions_whole() {
        let starts = |arguments: &[&str]| -> Vec<u64> {
            parsed(arguments).starts(&[0..10, 4..8, 0..0], &[]).into_values().collect()
        };

        assert_eq!(starts(&[]), [10, 8, 0]);
        assert_eq!(starts(&["--from-beginning"]), [0, 4, 0]);
        assert_eq!(starts(&["--since", "1h"]), [0, 4, 0]);
        assert_eq!(starts(&["--after", "0/6"]), [7, 4, 0]);
        assert_eq!(starts(&["--after", "0/9", "--after", "1/1"]), [10, 4, 0], "a deleted offset is passed over");
        assert_eq!(starts(&["--after", "0/99"]), [10, 4, 0]);
    }

    #[test]
    fn a_group_starts_where_it_continues_and_a_new_one_at_the_first_record() {
        let starts = |group_offsets: &[Option<u64>]| -> Vec<u64> {
            parsed(&["--group", "billing"]).starts(&[0..10, 4..8, 0..0], group_offsets).into_values().collect()
        };

        assert_eq!(starts(&[Some(3), Some(1), None]), [3, 4, 0], "a deleted offset is passed over");
        assert_eq!(starts(&[None, Some(8), Some(0)]), [0, 8, 0]);
        assert!(TailCommand::try_parse_from(["tail", "t", "--group", "g", "--from-beginning"]).is_err());
    }
}
