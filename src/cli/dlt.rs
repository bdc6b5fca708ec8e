//! `dlt`: look into the dead letters and send them back, also beside a running service.
use api::dead_letter_document;
use app::contract::rfc3339;
use app::dead_letters::{Cursor, DeadLetter, DeadLetterFilter, DeadLetters, Place, Sent};
use app::seen::{Audit, FailureType};
use clap::Subcommand;
use posthaste::Config;
use serde_json::json;

use super::outbox::operator;
use super::values::{failure_type, older_than};
use super::{Failure, block_on, consent, line};

/// Letters of one step of a redrive.
const STEP: u32 = 1_000;

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List dead letters, by partition and offset.
    List {
        #[command(flatten)]
        which: Which,
        /// Only those that went back (true), or only the others (false).
        #[arg(long)]
        redriven: Option<bool>,
        /// Most letters.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one letter with its headers and its value.
    Show {
        /// Its place, as `list` tells it: PARTITION/OFFSET.
        #[arg(value_parser = place)]
        place: Place,
        /// As a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Send dead letters back to their topic, each key's in their order; each goes back once.
    Redrive {
        /// Only the letter at this place: PARTITION/OFFSET.
        #[arg(value_parser = place, conflicts_with_all = ["key", "kind", "failure", "older_than", "after", "limit"])]
        place: Option<Place>,
        #[command(flatten)]
        which: Which,
        /// Most letters.
        #[arg(long, default_value_t = STEP)]
        limit: u32,
        #[command(flatten)]
        terms: consent::Terms,
    },
}

#[derive(clap::Args)]
pub(crate) struct Which {
    /// Only letters of this key.
    #[arg(long)]
    key: Option<String>,
    /// Only letters of this event type.
    #[arg(long = "type")]
    kind: Option<String>,
    /// Only what failed this way: NETWORK, TIMEOUT, VALIDATION or SYSTEM.
    #[arg(long, value_parser = failure_type)]
    failure: Option<FailureType>,
    /// Only what was set aside at least so long ago: 250ms, 5s, 1h, 7d.
    #[arg(long, value_parser = older_than)]
    older_than: Option<std::time::Duration>,
    /// Only behind this place: PARTITION/OFFSET.
    #[arg(long, value_parser = cursor)]
    after: Option<Cursor>,
}

impl Which {
    fn filter(self, redriven: Option<bool>) -> DeadLetterFilter {
        let Self { key, kind, failure, older_than, after } = self;
        DeadLetterFilter { key, kind, failure_type: failure, older_than, redriven, after }
    }
}

fn place(text: &str) -> Result<Place, String> {
    Place::parse(text).ok_or_else(|| "a place is a partition and an offset, such as 3/17".to_owned())
}

fn cursor(text: &str) -> Result<Cursor, String> {
    Cursor::parse(text).ok_or_else(|| "a place is a partition and an offset, such as 3/17".to_owned())
}

pub(crate) fn dlt(config: &Config, verb: Verb) -> Result<u8, Failure> {
    block_on(async {
        let none = || Failure::new("broker.kind = \"none\": there are no dead letters");
        let letters = posthaste::beside(config).await?.dead_letters.ok_or_else(none)?;
        match verb {
            Verb::List { which, redriven, limit, json } => list(&letters, which.filter(redriven), limit, json).await?,
            Verb::Show { place, json } => {
                let found = letters.find(place).await;
                show(&found.map_err(|error| Failure::about(error, format!("dead letter {place}")))?, json)?;
            }
            Verb::Redrive { place, which, limit, terms } => {
                let consent::Terms { dry_run, yes, reason, json } = terms;
                let task = Task { limit, dry_run, yes, json, audit: Audit { operator: operator(), reason: reason } };
                match place {
                    Some(place) => redrive_one(&letters, place, &task).await?,
                    None => redrive(&letters, &which.filter(None), &task).await?,
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
        for letter in &page.letters {
            line(&if json { dead_letter_document(letter).to_string() } else { in_a_line(letter) })?;
        }
        left = left.saturating_sub(page.letters.len() as u32);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    Ok(())
}

fn in_a_line(letter: &DeadLetter) -> String {
    let DeadLetter { delivery, redriven } = letter;
    let place = format!("{}/{}", delivery.position.partition, delivery.position.offset);
    let failure = letter.failure_type().map_or("-", FailureType::as_str);
    let back = redriven.as_ref().map_or(String::new(), |note| {
        let went = if note.arrived { "went back" } else { "on its way back" };
        format!(" ({went}, {} at {})", note.audit.operator, rfc3339(note.at))
    });
    format!(
        "{place:>8} {} {} {} {failure}: {}{back}",
        rfc3339(delivery.record.timestamp),
        letter.kind().unwrap_or("-"),
        delivery.record.key,
        letter.reason().unwrap_or("-"),
    )
}

fn show(letter: &DeadLetter, json: bool) -> Result<(), Failure> {
    let document = dead_letter_document(letter);
    if json { line(&document.to_string()) } else { line(&format!("{document:#}")) }
}

/// What a redrive was told.
struct Task {
    limit: u32,
    dry_run: bool,
    yes: bool,
    json: bool,
    audit: Audit,
}

async fn redrive_one(letters: &DeadLetters, place: Place, task: &Task) -> Result<(), Failure> {
    let told = |error| Failure::about(error, format!("dead letter {place}"));
    let mut letter = letters.redrive_one(place, false, &task.audit).await.map_err(told)?;
    if !task.dry_run {
        consent::given(task.yes, &format!("Send dead letter {place} back?"))?;
        letter = letters.redrive_one(place, true, &task.audit).await.map_err(told)?;
    }
    eprintln!("{place} {}", if task.dry_run { "would go back" } else { "went back" });
    if task.json { show(&letter, true) } else { Ok(()) }
}

async fn redrive(letters: &DeadLetters, filter: &DeadLetterFilter, task: &Task) -> Result<(), Failure> {
    let found = step_by_step(letters, filter, task, task.limit, false).await?;
    eprintln!("{} dead letters match", found.matched);
    let mut sent = found;
    if !task.dry_run && found.matched > 0 {
        consent::given(task.yes, &format!("Send {} dead letters back?", found.matched))?;
        // No more than somebody said yes to, whatever was set aside meanwhile.
        let limit = u32::try_from(found.matched).unwrap_or(task.limit);
        sent = step_by_step(letters, filter, task, limit, true).await?;
        eprintln!("{} went back", sent.redriven);
    }
    if task.json {
        let dry_run = task.dry_run;
        line(&json!({"dryRun": dry_run, "matched": sent.matched, "redriven": sent.redriven}).to_string())?;
    }
    Ok(())
}

/// One call looks through so many letters only: as often as it takes, until the limit is reached.
async fn step_by_step(
    letters: &DeadLetters,
    filter: &DeadLetterFilter,
    task: &Task,
    limit: u32,
    commit: bool,
) -> Result<Sent, Failure> {
    let (mut filter, mut all) = (filter.clone(), Sent::default());
    loop {
        let left = limit.saturating_sub(u32::try_from(all.matched).unwrap_or(u32::MAX));
        if left == 0 {
            return Ok(all);
        }
        let sent = letters.redrive(&filter, left.min(STEP), commit, &task.audit).await?;
        all.matched += sent.matched;
        all.redriven += sent.redriven;
        match sent.next {
            Some(next) => filter.after = Some(next),
            None => return Ok(all),
        }
    }
}
