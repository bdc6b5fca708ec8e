//! `dlt`: lists dead letters and sends them back to their topic, also while the service runs.
mod list;
mod redrive;

use std::time::Duration;

use app::consume::order_topic::OrderTopic;
use app::operators::dead_letters::{DeadLetterCursor, DeadLetterFilter, DeadLetterPosition};
use app::port_types::FailureType;
use app::units::duration;
use clap::Subcommand;
use posthaste::Config;

use super::super::confirm::RedriveOptions;
use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::runtime::block_on;
use super::super::value_parsers::{at_least_one, failure_type};

#[derive(Subcommand)]
pub(crate) enum DltCommand {
    /// List dead letters by partition and offset.
    List {
        #[command(flatten)]
        topic: TopicArgument,
        #[command(flatten)]
        filter: FilterArguments,
        /// Only dead letters that were sent back (true), or only those that were not (false).
        #[arg(long)]
        redriven: Option<bool>,
        /// Maximum number of dead letters; stderr names the dead letter to continue after.
        #[arg(short = 'n', long, default_value_t = 100, value_parser = at_least_one())]
        limit: u32,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Show one dead letter with its headers and its value.
    Show {
        /// The dead letter's partition and offset, as `dlt list` shows them.
        #[arg(value_name = "PARTITION/OFFSET", value_parser = position)]
        position: DeadLetterPosition,
        #[command(flatten)]
        topic: TopicArgument,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Send dead letters back to their topic, in order for each key; each is sent back once.
    Redrive {
        /// Only the dead letter at this partition and offset.
        #[arg(
            value_name = "PARTITION/OFFSET",
            value_parser = position,
            conflicts_with_all = ["key", "kind", "failure", "older_than", "after", "limit"]
        )]
        position: Option<DeadLetterPosition>,
        #[command(flatten)]
        topic: TopicArgument,
        #[command(flatten)]
        filter: FilterArguments,
        /// Maximum number of dead letters.
        #[arg(short = 'n', long, default_value_t = 1_000, value_parser = at_least_one())]
        limit: u32,
        /// The reason; kept with the dead letter, and printed by `dlt show` and `dlt list --json`.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        options: RedriveOptions,
    },
}

#[derive(clap::Args)]
pub(crate) struct TopicArgument {
    /// Full name of the topic whose dead letters are meant, such as invoices. By default that of the orders.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct FilterArguments {
    /// Only dead letters with this key.
    #[arg(short, long)]
    key: Option<String>,
    /// Only dead letters of this event type.
    #[arg(long = "type")]
    kind: Option<String>,
    /// Only dead letters with this failure type.
    #[arg(long, value_parser = failure_type(), ignore_case = true)]
    failure: Option<FailureType>,
    /// Only dead letters set aside at least this long ago: 250ms, 5s, 1h, 7d.
    #[arg(long, value_parser = duration)]
    older_than: Option<Duration>,
    /// Only dead letters after this partition and offset.
    #[arg(long, value_name = "PARTITION/OFFSET", value_parser = cursor)]
    after: Option<DeadLetterCursor>,
}

impl FilterArguments {
    fn filter(self, redriven: Option<bool>) -> DeadLetterFilter {
        let Self { key, kind, failure, older_than, after } = self;
        DeadLetterFilter { key, event_type: kind, failure_type: failure, older_than, redriven, webhook: None, after }
    }
}

pub(crate) fn position(text: &str) -> Result<DeadLetterPosition, String> {
    DeadLetterPosition::parse(text).ok_or_else(|| "a partition and an offset, such as 3/17".to_owned())
}

pub(crate) fn cursor(text: &str) -> Result<DeadLetterCursor, String> {
    DeadLetterCursor::parse(text).ok_or_else(|| "a partition and an offset, such as 3/17".to_owned())
}

pub(crate) fn dlt(config: &Config, command: DltCommand) -> Result<u8, Failure> {
    block_on(async {
        let no_broker = || Failure::new("broker.kind = \"none\": there are no dead letters");
        let access = posthaste::open_for_operator(config).await?;
        let by_topic = access.dead_letters.ok_or_else(no_broker)?;
        let orders = OrderTopic::new(&config.topic());
        let dead_letters_of = |TopicArgument { topic }| by_topic.for_topic(topic.as_deref()).map_err(Failure::new);
        match command {
            DltCommand::List { topic, filter, redriven, limit, output } => {
                let dead_letters = dead_letters_of(topic)?;
                list::list(dead_letters, filter.filter(redriven), limit, output.format(), &orders).await?;
                if by_topic.has_others() && !output.is_json() {
                    list::print_other_topics(&by_topic, dead_letters.topic()).await?;
                }
            }
            DltCommand::Show { position, topic, output } => {
                let dead_letters = dead_letters_of(topic)?;
                let map_err = |error| list::not_found(error, position, dead_letters.topic());
                let dead_letter = dead_letters.find(position).await.map_err(map_err)?;
                list::print_dead_letter(&dead_letter, &orders, output.format())?;
            }
            DltCommand::Redrive { position, topic, filter, limit, reason, options } => {
                let redrive = redrive::RedriveCommand::new(dead_letters_of(topic)?.clone(), orders, options, reason);
                match position {
                    Some(position) => redrive.one(position).await?,
                    None => redrive.all(&filter.filter(None), limit).await?,
                }
            }
        }
        Ok(0)
    })
}
