//! `dlt`: lists dead letters and sends them back to their topic, also while the service runs.
use std::time::Duration;

use api::dead_letter_document;
use app::contract::rfc3339;
use app::error::QueryError;
use app::operators::dead_letters::{
    DeadLetter, DeadLetterCursor, DeadLetterFilter, DeadLetterPosition, DeadLetters, ReplayReport,
};
use app::port_types::{Audit, FailureType};
use app::units::duration;
use clap::Subcommand;
use posthaste::Config;
use serde_json::json;

use super::super::confirm::{self, RedriveOptions};
use super::super::failure::Failure;
use super::super::operator::operator;
use super::super::output::print_line;
use super::super::runtime::block_on;
use super::super::value_parsers::failure_type;

/// Maximum number of dead letters that one call examines.
const PAGE: u32 = 1_000;

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List dead letters by partition and offset.
    List {
        #[command(flatten)]
        filter: FilterArguments,
        /// Only dead letters that were sent back (true), or only those that were not (false).
        #[arg(long)]
        redriven: Option<bool>,
        /// Maximum number of dead letters.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one dead letter with its headers and its value.
    Show {
        /// The dead letter's partition and offset, as `dlt list` shows them.
        #[arg(value_name = "PARTITION/OFFSET", value_parser = position)]
        position: DeadLetterPosition,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
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
        filter: FilterArguments,
        /// Maximum number of dead letters.
        #[arg(long, default_value_t = PAGE)]
        limit: u32,
        #[command(flatten)]
        options: RedriveOptions,
    },
}

#[derive(clap::Args)]
pub(crate) struct FilterArguments {
    /// Only dead letters with this key.
    #[arg(long)]
    key: Option<String>,
    /// Only dead letters of this event type.
    #[arg(long = "type")]
    kind: Option<String>,
    /// Only dead letters with this failure type: NETWORK, TIMEOUT, VALIDATION or SYSTEM.
    #[arg(long, value_parser = failure_type)]
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
        DeadLetterFilter { key, kind, failure_type: failure, older_than, redriven, after }
    }
}

fn position(text: &str) -> Result<DeadLetterPosition, String> {
    DeadLetterPosition::parse(text).ok_or_else(|| "a partition and an offset, such as 3/17".to_owned())
}

fn cursor(text: &str) -> Result<DeadLetterCursor, String> {
    DeadLetterCursor::parse(text).ok_or_else(|| "a partition and an offset, such as 3/17".to_owned())
}

pub(crate) fn dlt(config: &Config, verb: Verb) -> Result<u8, Failure> {
    block_on(async {
        let no_broker = || Failure::new("broker.kind = \"none\": there are no dead letters");
        let access = posthaste::open_for_operator(config).await?;
        let dead_letters = access.dead_letters.ok_or_else(no_broker)?;
        match verb {
            Verb::List { filter, redriven, limit, json } => {
                list(&dead_letters, filter.filter(redriven), limit, json).await?;
            }
            Verb::Show { position, json } => {
                let result = dead_letters.find(position).await;
                let dead_letter = result.map_err(|error| not_found(error, position))?;
                print_dead_letter(&dead_letter, json)?;
            }
            Verb::Redrive { position, filter, limit, options } => {
                let RedriveOptions { dry_run, yes, reason, json } = options;
                let audit = Audit { operator: operator(), reason };
                let redrive = Redrive { dead_letters, dry_run, yes, json, audit };
                match position {
                    Some(position) => redrive.one(position).await?,
                    None => redrive.all(&filter.filter(None), limit).await?,
                }
            }
        }
        Ok(0)
    })
}

async fn list(dead_letters: &DeadLetters, mut filter: DeadLetterFilter, limit: u32, json: bool) -> Result<(), Failure> {
    let mut left = limit;
    while left > 0 {
        let page = dead_letters.list(&filter, left).await?;
        for dead_letter in &page.dead_letters {
            print_line(&if json { dead_letter_document(dead_letter).to_string() } else { summary(dead_letter) })?;
        }
        left = left.saturating_sub(page.dead_letters.len() as u32);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    Ok(())
}

fn summary(dead_letter: &DeadLetter) -> String {
    let DeadLetter { delivery, redrive } = dead_letter;
    let position = format!("{}/{}", delivery.position.partition, delivery.position.offset);
    let failure = dead_letter.failure_type().map_or("-", FailureType::as_str);
    let redriven = redrive.as_ref().map_or(String::new(), |record| {
        let state = if record.confirmed { "sent back" } else { "being sent back" };
        format!(" ({state}, {} at {})", record.audit.operator, rfc3339(record.at))
    });
    format!(
        "{position:>8} {} {} {} {failure}: {}{redriven}",
        rfc3339(delivery.record.timestamp),
        dead_letter.kind().unwrap_or("-"),
        delivery.record.key,
        dead_letter.reason().unwrap_or("-"),
    )
}

fn print_dead_letter(dead_letter: &DeadLetter, json: bool) -> Result<(), Failure> {
    let document = dead_letter_document(dead_letter);
    print_line(&if json { document.to_string() } else { format!("{document:#}") })
}

fn not_found(error: QueryError, position: DeadLetterPosition) -> Failure {
    Failure::querying(error, format!("dead letter {position}"))
}

/// One run of `dlt redrive` with its options.
struct Redrive {
    dead_letters: DeadLetters,
    dry_run: bool,
    yes: bool,
    json: bool,
    audit: Audit,
}

impl Redrive {
    async fn one(&self, position: DeadLetterPosition) -> Result<(), Failure> {
        let map_err = |error| not_found(error, position);
        let mut dead_letter = self.dead_letters.redrive_one(position, false, &self.audit).await.map_err(map_err)?;
        if !self.dry_run {
            confirm::require(self.yes, &format!("Send dead letter {position} back?"))?;
            dead_letter = self.dead_letters.redrive_one(position, true, &self.audit).await.map_err(map_err)?;
        }
        eprintln!("{position} {}", if self.dry_run { "would be sent back" } else { "was sent back" });
        if self.json { print_dead_letter(&dead_letter, true) } else { Ok(()) }
    }

    async fn all(&self, filter: &DeadLetterFilter, limit: u32) -> Result<(), Failure> {
        let mut report = self.pages(filter, limit, false).await?;
        eprintln!("{} dead letters match", report.matched);
        if !self.dry_run && report.matched > 0 {
            confirm::require(self.yes, &format!("Send {} dead letters back?", report.matched))?;
            // The operator has confirmed this number, so dead letters that arrived after the count are not sent.
            let limit = u32::try_from(report.matched).unwrap_or(limit);
            report = self.pages(filter, limit, true).await?;
            eprintln!("{} were sent back", report.redriven);
        }
        if self.json {
            let document = json!({"dryRun": self.dry_run, "matched": report.matched, "redriven": report.redriven});
            print_line(&document.to_string())?;
        }
        Ok(())
    }

    /// Repeats the call, which examines a bounded number of dead letters, until the limit or the end is reached.
    async fn pages(&self, filter: &DeadLetterFilter, limit: u32, commit: bool) -> Result<ReplayReport, Failure> {
        let (mut filter, mut total) = (filter.clone(), ReplayReport::default());
        loop {
            let left = limit.saturating_sub(u32::try_from(total.matched).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok(total);
            }
            let page = self.dead_letters.redrive(&filter, left.min(PAGE), commit, &self.audit).await?;
            total.matched += page.matched;
            total.redriven += page.redriven;
            match page.next {
                Some(next) => filter.after = Some(next),
                None => return Ok(total),
            }
        }
    }
}
