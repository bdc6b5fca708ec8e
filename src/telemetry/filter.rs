//! Which events are logged: `info`, `debug`, `posthaste=debug,info`.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::logging::Error;

/// The crates of the service. A target is a crate's name, and people know the service, not its crates.
const ROOMS: &[&str] = &[
    "posthaste",
    "domain",
    "ports",
    "app",
    "telemetry",
    "api",
    "embedded",
    "postgres",
    "kafka",
    "redis",
    "actors",
    "supervision",
];

/// What the HTTP library says of its own: a client's broken request is no error of ours, and its start-up is told by our `listening`.
/// A directive that is given later overrules these.
const QUIET: &[&str] = &["actix_http=off", "actix_server=warn"];

/// Reads the syntax of `EnvFilter`, with two differences: `posthaste=…` stands for every crate of the service, and a
/// bare word must be a level. `EnvFilter` takes `inof` for a target and then logs nothing else.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, Error> {
    let directives: Vec<&str> = level.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    let bare = |directive: &&str| !directive.contains(['=', '[']);
    let unknown = |directive: &&str| directive.parse::<LevelFilter>().is_err();
    if directives.is_empty() {
        return Err(Error::UnknownLevel { level: level.to_owned() });
    }
    if let Some(word) = directives.iter().copied().filter(bare).find(unknown) {
        return Err(Error::UnknownLevel { level: word.to_owned() });
    }
    let quiet = QUIET.iter().map(|directive| (*directive).to_owned());
    let expanded: Vec<String> = quiet.chain(directives.into_iter().flat_map(expand)).collect();
    EnvFilter::builder()
        .parse(expanded.join(","))
        .map_err(|source| Error::Directive { level: level.to_owned(), source })
}

fn expand(directive: &str) -> Vec<String> {
    match directive.strip_prefix("posthaste=") {
        Some(level) => ROOMS.iter().map(|room| format!("{room}={level}")).collect(),
        None => vec![directive.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    /// Whether an event of this crate at debug, and one of a foreign crate at info, pass.
    fn passes(level: &str) -> (bool, bool) {
        let subscriber = tracing_subscriber::registry().with(filter(level).expect("legal"));
        tracing::subscriber::with_default(subscriber, || {
            (tracing::enabled!(tracing::Level::DEBUG), tracing::enabled!(target: "foreign", tracing::Level::INFO))
        })
    }

    #[test]
    fn levels_and_targets_decide() {
        assert_eq!(passes("info"), (false, true));
        assert_eq!(passes("debug"), (true, true));
        assert_eq!(passes("warn"), (false, false));
        assert_eq!(passes("OFF"), (false, false));
        assert_eq!(passes("telemetry=debug,warn"), (true, false));
    }

    #[test]
    fn the_services_name_stands_for_all_its_crates() {
        assert_eq!(passes("posthaste=debug, info"), (true, true));
        assert_eq!(passes("posthaste=debug,warn"), (true, false));
    }

    #[test]
    fn what_is_no_level_is_refused_by_name() {
        for level in ["inof", "", "info,inof", "posthaste=inof", "a=b=c"] {
            let error = filter(level).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("log level")), "{level}");
        }
    }
}
