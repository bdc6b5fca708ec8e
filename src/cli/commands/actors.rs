//! `actors`: the supervision tree of a running service, read from its admin port.
mod tree;

use std::io::{Write, stdout};
use std::time::Duration;

use clap::Subcommand;
use crossterm::cursor::MoveTo;
use crossterm::queue;
use crossterm::terminal::{Clear, ClearType};
use posthaste::Config;

use super::super::confirm::require_if_interactive;
use super::super::failure::Failure;
use super::super::output::format::{OutputArguments, OutputFormat};
use super::super::output::terminal::TerminalFeatures;
use super::super::output::{print_line, print_message};
use super::super::running_service::{RunningService, ServiceArguments};
use super::super::runtime::block_on;
use tree::ActorLine;

/// Time between two frames of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct TreeArguments {
    /// Show every actor with its path, instead of one line for equal siblings. A pipe always gets every actor.
    #[arg(short, long)]
    all: bool,
    /// Only actors that do not run, were restarted, or have a mailbox that is nearly full.
    #[arg(short, long)]
    problems: bool,
    /// Show the tree again every 2 s, until Ctrl-C.
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

#[derive(Subcommand)]
pub(crate) enum ActorsCommand {
    /// Show the supervision tree: state, restarts, mailbox and last exit of the actors.
    Tree(TreeArguments),
    /// Make an actor panic (needs fault_injection.enabled); its supervisor restarts it.
    Kill {
        /// The actor's path, as `actors tree --all` shows it.
        path: String,
        /// Do not ask for confirmation; without a terminal there is no question.
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        output: OutputArguments,
        #[command(flatten)]
        service: ServiceArguments,
    },
}

pub(crate) fn actors(config: &Config, command: ActorsCommand) -> Result<u8, Failure> {
    match command {
        ActorsCommand::Tree(arguments) => block_on(show(config, &arguments)),
        ActorsCommand::Kill { path, yes, output, service } => {
            require_if_interactive(yes, &format!("Make {path} panic?"))?;
            block_on(kill(config, &service, &path, output.format()))
        }
    }
}

async fn show(config: &Config, arguments: &TreeArguments) -> Result<u8, Failure> {
    let service = RunningService::new(config, &arguments.service)?;
    let (terminal, mut was_shown) = (TerminalFeatures::of_stdout(), false);
    loop {
        let response = match service.json("GET", "/admin/actors").await {
            Ok(response) => response,
            // A service that restarts does not respond for a while: the request is repeated.
            Err(failure) if arguments.watch && was_shown => {
                clear(terminal)?;
                print_message(failure.message);
                tokio::time::sleep(WATCH_INTERVAL).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if arguments.output.is_json() {
            let actors = response["actors"].as_array().into_iter().flatten();
            let is_shown = |actor: &&serde_json::Value| !arguments.problems || ActorLine::from_json(actor).is_problem();
            actors.filter(is_shown).try_for_each(|actor| print_line(&actor.to_string()))?;
            return Ok(0);
        }
        let text = render(ActorLine::all(&response), arguments, terminal);
        if !arguments.watch {
            match text {
                Some(text) => print_line(&text)?,
                None => print_message(format_args!("no actor has a problem")),
            }
            return Ok(0);
        }
        clear(terminal)?;
        print_line(text.as_deref().unwrap_or("no actor has a problem"))?;
        stdout().flush()?;
        was_shown = true;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Begins a new frame on a terminal; a pipe gets the frames one after the other.
fn clear(terminal: TerminalFeatures) -> Result<(), Failure> {
    if terminal.width.is_some() {
        queue!(stdout(), Clear(ClearType::All), MoveTo(0, 0))?;
    }
    Ok(stdout().flush()?)
}

/// The actors as text; `None` if none is to be shown.
fn render(mut actors: Vec<ActorLine>, arguments: &TreeArguments, terminal: TerminalFeatures) -> Option<String> {
    if arguments.problems {
        actors.retain(ActorLine::is_problem);
    }
    if actors.is_empty() {
        return None;
    }
    let is_flat = arguments.all || arguments.problems || terminal.width.is_none();
    Some(if is_flat { tree::flat(&actors, terminal) } else { tree::tree(&actors, terminal).join("\n") })
}

async fn kill(config: &Config, service: &ServiceArguments, path: &str, format: OutputFormat) -> Result<u8, Failure> {
    let path = path.trim_start_matches('/');
    let service = RunningService::new(config, service)?;
    let injected = service.json("POST", &format!("/admin/actors/{path}/panic")).await?;
    print_message(format_args!("/{path} was made to panic"));
    if format.is_json() {
        print_line(&injected.to_string())?;
    }
    Ok(0)
}
