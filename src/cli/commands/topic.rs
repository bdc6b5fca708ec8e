//! `topic`: lists and reads the broker's topics, also while the service runs.
mod tail;

use app::consume::order_topic::OrderTopic;
use clap::Subcommand;
use ports::broker::topics::{TopicReader, TopicView};
use posthaste::Config;
use serde_json::json;

use super::super::failure::Failure;
use super::super::output::format::{OutputArguments, OutputFormat};
use super::super::output::table::{TableCell, TableColumn, table, table_row};
use super::super::output::terminal::TerminalFeatures;
use super::super::output::{print_line, print_message};
use super::super::runtime::block_on;

const COLUMNS: [TableColumn; 3] =
    [TableColumn::text("TOPIC"), TableColumn::number("PARTITIONS"), TableColumn::number("OFFSETS")];

#[derive(Subcommand)]
pub(crate) enum TopicCommand {
    /// List every topic with the number of offsets it keeps. On Kafka there are fewer records: each transaction's end marker takes an offset.
    List {
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Print a topic's records, oldest first within each partition. On a terminal, wait for new ones.
    Tail(tail::Arguments),
}

pub(crate) fn topic(config: &Config, command: TopicCommand) -> Result<u8, Failure> {
    block_on(async {
        let no_broker = || Failure::new("broker.kind = \"none\": there are no topics");
        let access = posthaste::open_for_operator(config).await?;
        let topics = access.topics.ok_or_else(no_broker)?;
        match command {
            TopicCommand::List { output } => list(&*topics, output.format()).await,
            TopicCommand::Tail(arguments) => {
                let orders = OrderTopic::new(&config.topic());
                tail::tail(&*topics, &orders, access.operations.now(), &arguments).await
            }
        }
    })
}

async fn topic_views(topics: &dyn TopicReader) -> Result<Vec<TopicView>, Failure> {
    topics.list().await.map_err(Failure::new)
}

async fn list(topics: &dyn TopicReader, format: OutputFormat) -> Result<u8, Failure> {
    let views = topic_views(topics).await?;
    let offsets = |view: &TopicView| view.partitions.iter().map(|kept| kept.end - kept.start).sum::<u64>();
    if format.is_json() {
        for view in &views {
            let (partitions, offsets) = (view.partitions.len(), offsets(view));
            print_line(&json!({"topic": view.name, "partitions": partitions, "offsets": offsets}).to_string())?;
        }
    } else if views.is_empty() {
        print_message(format_args!("there are no topics yet"));
    } else {
        let cells =
            |view: &TopicView| -> Vec<TableCell> { table_row![&view.name, view.partitions.len(), offsets(view)] };
        print_line(&table(&COLUMNS, &views.iter().map(cells).collect::<Vec<_>>(), TerminalFeatures::of_stdout()))?;
    }
    Ok(0)
}
