//! The panic hook: logs a panic as one event, because log collectors do not parse panic text on standard error.

use std::cell::Cell;
use std::panic::PanicHookInfo;

thread_local! {
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hook. A panic inside the log itself goes to the previous hook.
pub(crate) fn log_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if IN_HOOK.replace(true) {
            return previous(info);
        }
        log(info);
        IN_HOOK.set(false);
    }));
}

fn log(info: &PanicHookInfo<'_>) {
    let detail = info.payload_as_str().unwrap_or("a panic without text");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    tracing::error!(event = "panicked", detail, location, thread, "code panicked outside an actor");
}

#[cfg(test)]
mod tests {
    use super::super::capture::capture;
    use super::*;

    #[test]
    fn panic_is_logged_as_one_event() {
        log_panics();
        let captured = capture();

        let result = std::panic::catch_unwind(|| panic!("boom"));

        assert!(result.is_err());
        let line = &captured.events("panicked")[0];
        assert_eq!((&line["detail"], &line["level"]), (&"boom".into(), &"ERROR".into()));
        assert!(line["location"].as_str().expect("text").contains("panic_hook.rs"));
    }
}
