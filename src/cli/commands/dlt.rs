//! `dlt`: lists dead letters and sends them back to their topic, also while the service runs.
use std::time::Duration;

use api::letter_document;
use app::contract::rfc3339;
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

/// Dead letters that one call of a redrive examines.
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
        /// PARTITION/OFFSET of the dead letter, as `list` shows it.
        #[arg(value_parser = place)]
        place: DeadLetterPosition,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Send dead letters back to their topic, in order for each key; each is sent back once.
    Redrive {
        /// Only the dead letter at this PARTITION/OFFSET.
        #[arg(value_parser = place, conflicts_with_all = ["key", "kind", "failure", "older_than", "after", "limit"])]
        place: Option<DeadLetterPosition>,
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
    /// Only dead letters after this PARTITION/OFFSET.
    #[arg(long, value_parser = cursor)]
    after: Option<DeadLetterCursor>,
}

impl FilterArguments {
    fn filter(self, redriven: Option<bool>) -> DeadLetterFilter {
        let Self { key, kind, failure, older_than, after } = self;
        DeadLetterFilter { key, kind, failure_type: failure, older_than, redriven, after }
    }
}

fn place(text: &str) -> Result<DeadLetterPosition, String> {
    DeadLetterPosition::parse(text).ok_or_else(|| "a partition and an offset, such as 3/17".to_owned())
}

fn cursor(text: &str) -> Result<DeadLetterCursor, String> {
    DeadLetterCursor::parse(text).ok_or_else(|| "a partition and an offset, such as 3/17".to_owned())
}

pub(crate) fn dlt(config: &Config, verb: Verb) -> Result<u8, Failure> {
    block_on(async {
        let no_broker = || Failure::new("broker.kind = \"none\": there are no dead letters");
        let letters = posthaste::beside(config).await?.dead_letters.ok_or_else(no_broker)?;
        match verb {
            Verb::List { filter, redriven, limit, json } => {
                list(&letters, filter.filter(redriven), limit, json).await?;
            }
            Verb::Show { place, json } => {
                let letter = letters.find(place).await;
                print_letter(&letter.map_err(|error| Failure::querying(error, format!("dead letter {place}")))?, json)?;
            }
            Verb::Redrive { place, filter, limit, options } => {
                let RedriveOptions { dry_run, yes, reason, json } = options;
                let redrive = Redrive { letters, dry_run, yes, json, audit: Audit { operator: operator(), reason } };
                match place {
                    Some(place) => redrive.one(place).await?,
                    None => redrive.all(&filter.filter(None), limit).await?,
                }
            }
        }
        Ok(0)
    })
}

async fn list(letters: &DeadLetters, mut filter: DeadLetterFilter, limit: u32, json: bool) -> Result<(), Failure> {
    let mut left = limit;
    while left > 0 {
        let page = letters.list(&filter, left).await?;
        for letter in &page.dead_letters {
            print_line(&if json { letter_document(letter).to_string() } else { summary(letter) })?;
        }
        left = left.saturating_sub(page.dead_letters.len() as u32);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    Ok(())
}

fn summary(letter: &DeadLetter) -> String {
    let DeadLetter { delivery, redrive } = letter;
    let place = format!("{}/{}", delivery.position.partition, delivery.position.offset);
    let failure = letter.failure_type().map_or("-", FailureType::as_str);
    let redriven = redrive.as_ref().map_or(String::new(), |record| {
        let state = if record.confirmed { "sent back" } else { "being sent back" };
        format!(" ({state}, {} at {})", record.audit.operator, rfc3339(record.at))
    });
    format!(
        "{place:>8} {} {} {} {failure}: {}{redriven}",
        rfc3339(delivery.record.timestamp),
        letter.kind().unwrap_or("-"),
        delivery.record.key,
        letter.reason().unwrap_or("-"),
    )
}

fn print_letter(letter: &DeadLetter, json: bool) -> Result<(), Failure> {
    let document = letter_document(letter);
    print_line(&if json { document.to_string() } else { format!("{document:#}") })
}

/// One `dlt redrive`.
struct Redrive {
    letters: DeadLetters,
    dry_run: bool,
    yes: bool,
    json: bool,
    audit: Audit,
}

impl Redrive {
    async fn one(&self, place: DeadLetterPosition) -> Result<(), Failure> {
        let map_err = |error| Failure::querying(error, format!("dead letter {place}"));
        let mut letter = self.letters.redrive_one(place, false, &self.audit).await.map_err(map_err)?;
        if !self.dry_run {
            confirm::require(self.yes, &format!("Send dead letter {place} back?"))?;
            letter = self.letters.redrive_one(place, true, &self.audit).await.map_err(map_err)?;
        }
        eprintln!("{place} {}", if self.dry_run { "would be sent back" } else { "was sent back" });
        if self.json { print_letter(&letter, true) } else { Ok(()) }
    }

    async fn all(&self, filter: &DeadLetterFilter, limit: u32) -> Result<(), Failure> {
        let found = self.pages(filter, limit, false).await?;
        eprintln!("{} dead letters match", found.matched);
        let mut sent = found;
        if !self.dry_run && found.matched > 0 {
            confirm::require(self.yes, &format!("Send {} dead letters back?", found.matched))?;
            // Dead letters that were set aside after the count are not confirmed, so the limit is the count.
            let limit = u32::try_from(found.matched).unwrap_or(limit);
            sent = self.pages(filter, limit, true).await?;
            eprintln!("{} were sent back", sent.redriven);
        }
        if self.json {
            let document = json!({"dryRun": self.dry_run, "matched": sent.matched, "redriven": sent.redriven});
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
            let sent = self.letters.redrive(&filter, left.min(PAGE), commit, &self.audit).await?;
            total.matched += sent.matched;
            total.redriven += sent.redriven;
            match sent.next {
                Some(next) => filter.after = Some(next),
                None => return Ok(total),
            }
        }
    }
}
