//! `topic`: the broker's topics, also beside a running service.
use std::collections::BTreeMap;
use std::time::Duration;

use api::record_document;
use app::contract::{framing, rfc3339};
use clap::Subcommand;
use ports::source::Delivery;
use ports::topics::{TopicReader, TopicView};
use posthaste::Config;
use serde_json::json;

use super::{Failure, block_on, line};

/// Records read at once.
const PAGE: u32 = 500;
/// How often a follower looks for more.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Every topic with the offsets it keeps. On Kafka the marker that ends a transaction takes one, too: there are fewer records.
    List {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Print a topic's records, oldest first within each partition.
    Tail {
        /// Its name.
        topic: String,
        /// From the first record that is still kept; otherwise from the end.
        #[arg(long)]
        from_beginning: bool,
        /// Stay and print what comes, also when the service restarts.
        #[arg(long)]
        follow: bool,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn topic(config: &Config, verb: Verb) -> Result<u8, Failure> {
    block_on(async {
        let none = || Failure::new("broker.kind = \"none\": there are no topics to look into");
        let topics = posthaste::beside(config).await?.topics.ok_or_else(none)?;
        match verb {
            Verb::List { json } => list(&*topics, json).await,
            Verb::Tail { topic, from_beginning, follow, json } => {
                tail(&*topics, &topic, from_beginning, follow, json).await
            }
        }
    })
}

async fn views(topics: &dyn TopicReader) -> Result<Vec<TopicView>, Failure> {
    topics.list().await.map_err(Failure::new)
}

async fn list(topics: &dyn TopicReader, json: bool) -> Result<u8, Failure> {
    for TopicView { name, partitions } in views(topics).await? {
        let offsets: u64 = partitions.iter().map(|(first, next)| next - first).sum();
        if json {
            line(&json!({"topic": name, "partitions": partitions.len(), "offsets": offsets}).to_string())?;
        } else {
            line(&format!("{name}  {} partitions  {offsets} offsets", partitions.len()))?;
        }
    }
    Ok(0)
}

async fn tail(topics: &dyn TopicReader, name: &str, beginning: bool, follow: bool, json: bool) -> Result<u8, Failure> {
    let all = views(topics).await?;
    let Some(view) = all.iter().find(|view| view.name == name) else {
        let names: Vec<&str> = all.iter().map(|view| view.name.as_str()).collect();
        let names = if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
        return Err(Failure::new(format!("there is no topic {name}; there are: {names}")));
    };
    let start = |(first, next): &(u64, u64)| if beginning { *first } else { *next };
    let mut places: BTreeMap<u32, u64> = (0..).zip(view.partitions.iter().map(start)).collect();
    loop {
        let printed = print_new(topics, name, &mut places, json).await?;
        if printed == 0 {
            if !follow {
                return Ok(0);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

async fn print_new(
    topics: &dyn TopicReader,
    name: &str,
    places: &mut BTreeMap<u32, u64>,
    json: bool,
) -> Result<usize, Failure> {
    let mut printed = 0;
    for (partition, place) in places.iter_mut() {
        loop {
            let page = topics.read(name, *partition, *place, PAGE).await.map_err(Failure::new)?;
            for delivery in &page {
                *place = delivery.position.offset + 1;
                line(&if json { record_document(delivery).to_string() } else { as_text(delivery) })?;
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
