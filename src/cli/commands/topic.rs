//! `topic`: lists and reads the broker's topics, also while the service runs.
use std::collections::BTreeMap;
use std::time::Duration;

use api::record_document;
use app::contract::{framing, rfc3339};
use clap::Subcommand;
use ports::broker::consumer_groups::Delivery;
use ports::broker::topics::{TopicReader, TopicView};
use posthaste::Config;
use serde_json::json;

use super::super::failure::Failure;
use super::super::output::print_line;
use super::super::runtime::block_on;

/// Maximum number of records that one read returns.
const PAGE: u32 = 500;
/// Pause between two reads of `--follow` when there was nothing new.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List every topic with the number of offsets it keeps. On Kafka there are fewer records: each transaction's end marker takes an offset.
    List {
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Print a topic's records, oldest first within each partition.
    Tail {
        /// The topic's name, prefix included.
        topic: String,
        /// Start at the first record that is still kept; by default at the end.
        #[arg(long)]
        from_beginning: bool,
        /// Keep running and print new records, also when the service restarts.
        #[arg(long)]
        follow: bool,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn topic(config: &Config, verb: Verb) -> Result<u8, Failure> {
    block_on(async {
        let no_broker = || Failure::new("broker.kind = \"none\": there are no topics");
        let topics = posthaste::open_for_operator(config).await?.topics.ok_or_else(no_broker)?;
        match verb {
            Verb::List { json } => list(&*topics, json).await,
            Verb::Tail { topic, from_beginning, follow, json } => {
                tail(&*topics, &topic, from_beginning, follow, json).await
            }
        }
    })
}

async fn topic_views(topics: &dyn TopicReader) -> Result<Vec<TopicView>, Failure> {
    topics.list().await.map_err(Failure::new)
}

async fn list(topics: &dyn TopicReader, json: bool) -> Result<u8, Failure> {
    for TopicView { name, partitions } in topic_views(topics).await? {
        let offsets: u64 = partitions.iter().map(|(first, next)| next - first).sum();
        if json {
            print_line(&json!({"topic": name, "partitions": partitions.len(), "offsets": offsets}).to_string())?;
        } else {
            print_line(&format!("{name}  {} partitions  {offsets} offsets", partitions.len()))?;
        }
    }
    Ok(0)
}

async fn tail(topics: &dyn TopicReader, name: &str, beginning: bool, follow: bool, json: bool) -> Result<u8, Failure> {
    let all = topic_views(topics).await?;
    let Some(view) = all.iter().find(|view| view.name == name) else {
        let names: Vec<&str> = all.iter().map(|view| view.name.as_str()).collect();
        let names = if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
        return Err(Failure::new(format!("there is no topic {name}; there are: {names}")));
    };
    let start = |(first, next): &(u64, u64)| if beginning { *first } else { *next };
    let mut next_offsets: BTreeMap<u32, u64> = (0..).zip(view.partitions.iter().map(start)).collect();
    loop {
        let printed = print_new(topics, name, &mut next_offsets, json).await?;
        if printed == 0 {
            if !follow {
                return Ok(0);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

async fn print_new(
    topics: &dyn TopicReader,
    name: &str,
    next_offsets: &mut BTreeMap<u32, u64>,
    json: bool,
) -> Result<usize, Failure> {
    let mut printed = 0;
    for (partition, next_offset) in next_offsets.iter_mut() {
        loop {
            let page = topics.read(name, *partition, *next_offset, PAGE).await.map_err(Failure::new)?;
            for delivery in &page {
                *next_offset = delivery.position.offset + 1;
                print_line(&if json { record_document(delivery).to_string() } else { as_text(delivery) })?;
            }
            printed += page.len();
            if page.len() < PAGE as usize {
                break;
            }
        }
    }
    Ok(printed)
}

fn as_text(Delivery { position, record }: &Delivery) -> String {
    let (partition, offset) = (position.partition, position.offset);
    format!(
        "{} {partition}/{offset} {} {}",
        rfc3339(record.timestamp),
        record.key,
        String::from_utf8_lossy(framing::unframed(&record.value).1)
    )
}
