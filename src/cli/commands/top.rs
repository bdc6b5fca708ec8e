//! `top`: a live overview of a running service in the terminal.
mod dead_letters;
mod metrics_page;
mod overview;

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use posthaste::Config;

use super::super::failure::Failure;
use super::super::output::print_line;
use super::super::output::terminal::TerminalFeatures;
use super::super::running_service::{RunningService, ServiceArguments};
use super::super::runtime::block_on;
use super::super::value_parsers::at_least_one_second;
use dead_letters::DeadLetterCounter;
use metrics_page::MetricsPage;
use overview::{Sample, frame};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    service: ServiceArguments,
    /// Time between two frames; at least a second.
    #[arg(long, default_value = "2s", value_parser = at_least_one_second)]
    interval: Duration,
    /// Print one frame and stop, as without a terminal. Its rates are those of one interval.
    #[arg(long)]
    once: bool,
}

pub(crate) fn top(config: &Config, arguments: &Arguments) -> Result<u8, Failure> {
    block_on(async {
        let service = RunningService::new(config, &arguments.service)?;
        let mut dead_letters = DeadLetterCounter::new(config.external_topics());
        if arguments.once || !stdout().is_terminal() {
            let (before, started) = (sample(&service, &mut dead_letters).await?, Instant::now());
            tokio::time::sleep(arguments.interval).await;
            let now = sample(&service, &mut dead_letters).await?;
            let lines =
                frame(&service.url, &now, &before, started.elapsed().as_secs_f64(), TerminalFeatures::of_stdout());
            print_line(&lines.join("\n"))?;
        } else {
            live(&service, &mut dead_letters, arguments.interval).await?;
        }
        Ok(0)
    })
}

/// Draws frames until `q`, Esc or Ctrl-C. A failed request is shown, and repeated with the next frame.
async fn live(
    service: &RunningService<'_>,
    dead_letters: &mut DeadLetterCounter,
    interval: Duration,
) -> Result<(), Failure> {
    let (mut before, mut started) = (sample(service, dead_letters).await?, Instant::now());
    let _restored = AlternateScreen::enter()?;
    draw(&frame(&service.url, &before, &before, 0.0, TerminalFeatures::of_stdout()))?;
    loop {
        if quits(interval).await? {
            return Ok(());
        }
        match sample(service, dead_letters).await {
            Ok(now) => {
                draw(&frame(
                    &service.url,
                    &now,
                    &before,
                    started.elapsed().as_secs_f64(),
                    TerminalFeatures::of_stdout(),
                ))?;
                (before, started) = (now, Instant::now());
            }
            Err(failure) => draw(&[failure.message])?,
        }
    }
}

async fn sample(service: &RunningService<'_>, dead_letters: &mut DeadLetterCounter) -> Result<Sample, Failure> {
    let (ready, _) = service.text("/readyz").await?;
    let (_, metrics) = service.text("/metrics").await?;
    Ok(Sample {
        metrics: MetricsPage::parse(&metrics),
        actors: service.json("GET", "/admin/actors").await?,
        info: service.json("GET", "/actuator/info").await?,
        is_ready: ready == 200,
        dead_letters: dead_letters.sum(service).await,
    })
}

/// Waits for the interval; returns earlier, and whether the operator quits, when a key is pressed.
async fn quits(interval: Duration) -> Result<bool, Failure> {
    let wait = move || -> std::io::Result<bool> {
        let end = Instant::now() + interval;
        while poll(end.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = read()? {
                let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    };
    Ok(tokio::task::spawn_blocking(wait).await.map_err(Failure::new)??)
}

fn draw(lines: &[String]) -> Result<(), Failure> {
    let mut out = stdout().lock();
    queue!(out, MoveTo(0, 0))?;
    for line in lines.iter().flat_map(|line| line.lines()) {
        queue!(out, Clear(ClearType::CurrentLine))?;
        // In raw mode a line break does not return to the first column.
        write!(out, "{line}\r\n")?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    write!(out, "\r\nq quits")?;
    Ok(out.flush()?)
}

/// The terminal's alternate screen. Dropping it restores the main screen, also after an error.
struct AlternateScreen;

impl AlternateScreen {
    fn enter() -> Result<Self, Failure> {
        enable_raw_mode()?;
        // Before the next call: if that fails, dropping the screen ends the raw mode.
        let screen = Self;
        execute!(stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All))?;
        Ok(screen)
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        // Errors are ignored: the terminal may have been closed.
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
