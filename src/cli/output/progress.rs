//! Progress bars on stderr. Nothing is drawn where stderr is not a terminal.
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two frames of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// A bar over `total` steps: `redriving [####----] 40/100, 20/s, 3s left`.
pub(crate) fn progress_bar(message: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(message);
    let template = "{msg} [{bar:30}] {pos}/{len}, {per_sec}, {eta} left";
    // The template is a constant, so it is valid; otherwise the bar has its default form.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("#>-"));
    }
    bar
}

/// A spinner for a task of unknown length, with the time since its start.
pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    // As above: the template is a constant.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(TICK);
    bar
}
