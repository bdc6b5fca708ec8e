//! Panics in the log: one line like every other, instead of text on standard error that no collector reads as JSON.
use std::cell::Cell;
use std::panic::PanicHookInfo;

thread_local! {
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// From now on a panic that nobody guards is an event of the log. What was there before hears those of the log itself.
pub(crate) fn log_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if TELLING.replace(true) {
            return previous(info);
        }
        tell(info);
        TELLING.set(false);
    }));
}

fn tell(info: &PanicHookInfo<'_>) {
    let detail = info.payload_as_str().unwrap_or("a panic without text");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    tracing::error!(event = "panicked", detail, location, thread, "code panicked outside an actor");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::capture;

    #[test]
    fn a_panic_is_a_line_of_the_log() {
        log_panics();
        let captured = capture();

        let died = std::panic::catch_unwind(|| panic!("boom"));

        assert!(died.is_err());
        let line = &captured.events("panicked")[0];
        assert_eq!((&line["detail"], &line["level"]), (&"boom".into(), &"ERROR".into()));
        assert!(line["location"].as_str().expect("text").contains("panics.rs"));
    }
}
