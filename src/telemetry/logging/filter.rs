//! The level filter: `info`, `debug`, `posthaste=debug,info`.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use super::error::Error;

/// Library names of the service's crates. `tracing` targets begin with them; in a directive `posthaste` stands for all.
pub const SERVICE_CRATES: &[&str] = &[
    "posthaste",
    "domain",
    "ports",
    "memory",
    "outbox",
    "bench",
    "app",
    "telemetry",
    "api",
    "embedded",
    "postgres",
    "endpoints",
    "kafka",
    "redis",
    "actors",
    "supervision",
];

/// Directives for the HTTP library: a client's malformed request is not an error of the service, and the `listening` event
/// already reports the start of the server. Later directives override these.
const HTTP_LIBRARY: &[&str] = &["actix_http=off", "actix_server=warn"];

/// The filter of the log, as a layer above `S`.
pub(crate) type LogFilter<S> = Box<dyn Layer<S> + Send + Sync>;

/// Parses the syntax of `EnvFilter` with two differences: `posthaste=level` applies to every crate of the service, and a
/// bare word must be a level. `EnvFilter` reads `inof` as a target and then logs nothing else.
///
/// Directives without spans become a [`Targets`]: an `EnvFilter` takes a lock of the process each time that a span is entered, left,
/// recorded or closed, which a request does some ten times on several threads.
pub(crate) fn filter<S>(level: &str) -> Result<LogFilter<S>, Error>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let directives: Vec<&str> = level.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    let bare = |directive: &&str| !directive.contains(['=', '[']);
    let unknown = |directive: &&str| directive.parse::<LevelFilter>().is_err();
    if directives.is_empty() {
        return Err(Error::UnknownLevel { level: level.to_owned() });
    }
    if let Some(word) = directives.iter().copied().filter(bare).find(unknown) {
        return Err(Error::UnknownLevel { level: word.to_owned() });
    }
    let http_library = HTTP_LIBRARY.iter().map(|directive| (*directive).to_owned());
    let expanded: Vec<String> = http_library.chain(directives.into_iter().flat_map(expand)).collect();
    let text = expanded.join(",");
    let by_spans =
        EnvFilter::builder().parse(&text).map_err(|source| Error::Directive { level: level.to_owned(), source })?;
    let names_spans = text.contains('[');
    Ok(match text.parse::<Targets>() {
        Ok(targets) if !names_spans => targets.boxed(),
        Ok(_) | Err(_) => by_spans.boxed(),
    })
}

fn expand(directive: &str) -> Vec<String> {
    match directive.strip_prefix("posthaste=") {
        Some(level) => SERVICE_CRATES.iter().map(|name| format!("{name}={level}")).collect(),
        None => vec![directive.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    /// Whether the filter passes a debug event of this crate, and an info event of a foreign crate.
    fn passes(level: &str) -> (bool, bool) {
        let subscriber = tracing_subscriber::registry().with(filter(level).expect("a valid level"));
        tracing::subscriber::with_default(subscriber, || {
            (tracing::enabled!(tracing::Level::DEBUG), tracing::enabled!(target: "foreign", tracing::Level::INFO))
        })
    }

    #[test]
    fn levels_and_targets_select_events() {
        assert_eq!(passes("info"), (false, true));
        assert_eq!(passes("debug"), (true, true));
        assert_eq!(passes("warn"), (false, false));
        assert_eq!(passes("OFF"), (false, false));
        assert_eq!(passes("telemetry=debug,warn"), (true, false));
    }

    #[test]
    fn directives_may_name_spans() {
        let subscriber = tracing_subscriber::registry().with(filter("[request]=debug,warn").expect("a valid level"));
        tracing::subscriber::with_default(subscriber, || {
            assert!(!tracing::enabled!(tracing::Level::DEBUG));
            let span = tracing::error_span!("request");
            span.in_scope(|| assert!(tracing::enabled!(tracing::Level::DEBUG)));
        });
    }

    #[test]
    fn service_name_stands_for_all_crates_of_the_service() {
        assert_eq!(passes("posthaste=debug, info"), (true, true));
        assert_eq!(passes("posthaste=debug,warn"), (true, false));
    }

    #[test]
    fn invalid_level_is_refused_and_named_in_the_error() {
        for level in ["inof", "", "info,inof", "posthaste=inof", "a=b=c"] {
            let error = filter::<tracing_subscriber::Registry>(level).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("log level")), "{level}");
        }
    }
}
