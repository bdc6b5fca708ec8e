//! `dlt redrive`: sends one dead letter back, or those that match a filter, at a rate.
use api::{Pace, PacedRedrive, RefusalsBody, dead_letter_document};
use app::consume::order_topic::OrderTopic;
use app::operators::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterPosition, DeadLetters, RedriveReport};
use app::port_types::{Audit, RedriveMode};
use serde::Serialize;
use serde_json::value::RawValue;

use super::list::{dead_letters_table, first, not_found, print_dead_letter};
use crate::cli::confirm::{self, RedriveOptions};
use crate::cli::failure::Failure;
use crate::cli::operator::operator;
use crate::cli::output::format::OutputFormat;
use crate::cli::output::progress::progress_bar;
use crate::cli::output::terminal::TerminalFeatures;
use crate::cli::output::{pluralize, print_line, print_message};

/// Maximum number of dead letters that one call of a count examines.
const PAGE: u32 = 1_000;
/// Dead letters that a dry run lists.
const LISTED_MAX: u32 = 10;

/// One run of `dlt redrive` with its options.
pub(super) struct RedriveCommand {
    dead_letters: DeadLetters,
    orders: OrderTopic,
    dry_run: bool,
    yes: bool,
    format: OutputFormat,
    pace: Pace,
    audit: Audit,
}

/// The output of a redrive with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RedriveDocument {
    dry_run: bool,
    /// The first dead letters of a dry run.
    #[serde(rename = "letters", skip_serializing_if = "Option::is_none")]
    listed: Option<Vec<Box<RawValue>>>,
    matched: u64,
    redriven: u64,
    /// Dead letters that wait for another redrive: of themselves, or of an earlier one of their key. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<u64>,
    /// The dead letters that the broker refused. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusalsBody>,
    /// `--after` of a further redrive, when there may be more than `--limit` permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl RedriveCommand {
    pub(super) fn new(dead_letters: DeadLetters, orders: OrderTopic, options: RedriveOptions, reason: String) -> Self {
        let RedriveOptions { dry_run, rate, yes, output } = options;
        let audit = Audit { operator: operator(), reason };
        Self { dead_letters, orders, dry_run, yes, format: output.format(), pace: Pace::from_rate(rate), audit }
    }

    pub(super) async fn one(&self, position: DeadLetterPosition) -> Result<(), Failure> {
        let map_err = |error| not_found(error, position, self.dead_letters.topic());
        let mut dead_letter =
            self.dead_letters.redrive_one(position, RedriveMode::DryRun, &self.audit).await.map_err(map_err)?;
        if !self.dry_run {
            confirm::require(self.yes, &format!("Send dead letter {position} back?"))?;
            dead_letter =
                self.dead_letters.redrive_one(position, RedriveMode::Execute, &self.audit).await.map_err(map_err)?;
        }
        print_message(format_args!("{position} {}", if self.dry_run { "would be sent back" } else { "was sent back" }));
        if self.format.is_json() { print_dead_letter(&dead_letter, &self.orders, self.format) } else { Ok(()) }
    }

    pub(super) async fn all(&self, filter: &DeadLetterFilter, limit: u32) -> Result<(), Failure> {
        let mut report = self.count(filter, limit).await?;
        let (next, topic) = (report.next, self.dead_letters.topic());
        match next {
            None => print_message(format_args!(
                "{} in {topic}",
                pluralize(report.matched, "dead letter matches", "dead letters match")
            )),
            Some(_) => print_message(format_args!(
                "at least {} in {topic}: raise --limit for more",
                pluralize(report.matched, "dead letter matches", "dead letters match")
            )),
        }
        let mut listed = Vec::new();
        if self.dry_run {
            let filter = DeadLetterFilter { redriven: Some(false), ..filter.clone() };
            listed = first(&self.dead_letters, filter, LISTED_MAX.min(limit)).await?.dead_letters;
        } else if report.matched > 0 {
            confirm::require(
                self.yes,
                &format!("Send {} back?", pluralize(report.matched, "dead letter", "dead letters")),
            )?;
            // The operator has confirmed this number, so dead letters that arrived after the count are not sent.
            report = RedriveReport { next, ..self.send_back(filter, report.matched).await? }.ended();
            print_message(format_args!(
                "{} sent back",
                pluralize(report.redriven, "dead letter was", "dead letters were")
            ));
        }
        self.print(&report, &listed)?;
        report.unsent_summary().map_or(Ok(()), |unsent_summary| Err(Failure::new(unsent_summary)))
    }

    /// Repeats the call, which examines a bounded number of dead letters, until the limit or the end is reached.
    async fn count(&self, filter: &DeadLetterFilter, limit: u32) -> Result<RedriveReport, Failure> {
        let (mut filter, mut total) = (filter.clone(), RedriveReport::default());
        loop {
            let left = limit.saturating_sub(u32::try_from(total.matched).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok(total);
            }
            let page = self.dead_letters.count(&filter, left.min(PAGE)).await?;
            total.matched += page.matched;
            total.next = page.next;
            match page.next {
                Some(next) => filter.after = Some(next),
                None => return Ok(total),
            }
        }
    }

    /// Sends the first `limit` dead letters back.
    async fn send_back(&self, filter: &DeadLetterFilter, limit: u64) -> Result<RedriveReport, Failure> {
        let bar = progress_bar("sending back", limit);
        let progress = |seen| bar.set_position(seen);
        let redrive = PacedRedrive { limit, pace: self.pace, time_max: None, progress: &progress };
        let report = redrive.dead_letters(&self.dead_letters, filter, &self.audit).await?;
        bar.finish_and_clear();
        Ok(report)
    }

    fn print(&self, report: &RedriveReport, listed: &[DeadLetter]) -> Result<(), Failure> {
        if self.format.is_json() {
            let listed = listed.iter().map(|dead_letter| dead_letter_document(dead_letter, &self.orders));
            let document = RedriveDocument {
                dry_run: self.dry_run,
                listed: self.dry_run.then(|| listed.collect()),
                matched: report.matched,
                redriven: report.redriven,
                held: report.held_back_if_any(),
                refused: RefusalsBody::from_refusals(&report.refusals),
                next: report.next.map(|next| next.to_string()),
            };
            return print_line(&serde_json::to_string(&document).expect("text and numbers always serialise"));
        }
        if listed.is_empty() {
            return Ok(());
        }
        print_line(&dead_letters_table(listed, TerminalFeatures::of_stdout()))?;
        let more = report.matched.saturating_sub(listed.len() as u64);
        if more > 0 {
            let at_least = if report.next.is_some() { "at least " } else { "" };
            print_message(format_args!("and {at_least}{more} more"));
        }
        Ok(())
    }
}
