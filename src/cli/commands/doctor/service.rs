//! `doctor`: checks whether the running service answers, is ready and runs with `--dev`, and reads its version.
use std::time::Instant;

use posthaste::Config;

use super::finding::Finding;
use crate::cli::running_service::{RunningService, ServiceArguments};

/// Results of the requests that `doctor` sends to the running service.
#[derive(Debug, Default)]
pub(super) struct ServiceResponses {
    /// The status and text of `/readyz?verbose`; `None` without a response.
    ready: Option<(u16, String)>,
    /// The version that `/actuator/info` names.
    version: Option<String>,
    /// Why there is no version, or no response at all.
    refused: Option<String>,
    /// Whether it refuses writes although it is ready.
    refuses_writes: bool,
}

/// The running service according to its responses.
pub(super) struct CheckedService {
    pub(super) finding: Finding,
    /// Whether it accepts tokens signed with the development secret, as with `serve --dev` and `demo`.
    pub(super) is_development: bool,
    /// Whether a service of this program answered that it is ready.
    pub(super) is_ready: bool,
}

/// Sends requests to the service. Without `--url`, a service that does not run is not a fault.
pub(super) async fn check(config: &Config, arguments: &ServiceArguments) -> CheckedService {
    let started = Instant::now();
    let service = match RunningService::new(config, arguments) {
        Ok(service) => service,
        Err(failure) => {
            let finding = Finding::new("service", false, failure.message);
            return CheckedService { finding, is_development: false, is_ready: false };
        }
    };
    let mut responses = ServiceResponses::default();
    match service.text("/readyz?verbose").await {
        Ok(ready) => responses.ready = Some(ready),
        Err(failure) => responses.refused = Some(failure.message),
    }
    if responses.ready.is_some() {
        match service.json("GET", "/actuator/info").await {
            Ok(info) => responses.version = info["app"]["version"].as_str().map(str::to_owned),
            Err(failure) => responses.refused = Some(failure.message),
        }
    }
    if responses.version.is_some() {
        // A region that is passive is not ready, and answers with an error.
        let region = service.json("GET", "/actuator/health/region").await;
        responses.refuses_writes = region.is_ok_and(|region| region["details"]["writesAllowed"] == false);
    }
    let (ok, detail) = verdict(&responses, &service.url, arguments.names_url());
    // Without a configured key, the token of the second request was signed with the development secret.
    let is_development = config.auth.source().is_none() && !arguments.names_token() && responses.version.is_some();
    let is_ready = matches!((&responses.ready, &responses.version), (Some((200, _)), Some(_)));
    let finding = Finding::new("service", ok, detail).with_latency(started.elapsed());
    CheckedService { finding, is_development, is_ready }
}

/// Whether the check passes, and its sentence.
fn verdict(responses: &ServiceResponses, url: &str, is_named: bool) -> (bool, String) {
    let ServiceResponses { ready, version, refused, refuses_writes } = responses;
    let reason = || refused.clone().unwrap_or_else(|| "it named no version".to_owned());
    match (ready, version) {
        (None, _) if is_named => (false, reason()),
        (None, _) => (true, format!("none answers at {url} (give another address with --url)")),
        (Some((200, _)), Some(version)) if *refuses_writes => {
            (false, format!("ready at {url}, version {version}, and refuses writes under CRITICAL pressure"))
        }
        (Some((200, _)), Some(version)) => (true, format!("ready at {url}, version {version}")),
        // Another program may use the port.
        (Some((200, _)), None) => (!is_named, format!("ready at {url}, but its version is unknown: {}", reason())),
        (Some((status, _)), _) if !is_named && *status != 503 => {
            (true, format!("another program answers at {url} (give another address with --url)"))
        }
        (Some((status, text)), _) => (false, format!("not ready at {url} ({status}): {}", failed_checks(text))),
    }
}

/// The checks of `/readyz?verbose` that failed.
fn failed_checks(text: &str) -> String {
    let failed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
    if failed.is_empty() { text.trim().replace('\n', ", ") } else { failed.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:8080";

    fn responses(ready: Option<(u16, &str)>, version: Option<&str>) -> ServiceResponses {
        let refused = version.is_none().then(|| "the service answered 401: no token".to_owned());
        let ready = ready.map(|(status, text)| (status, text.to_owned()));
        ServiceResponses { ready, version: version.map(str::to_owned), refused, refuses_writes: false }
    }

    #[test]
    fn a_service_must_be_ready_and_answer_where_its_url_is_named() {
        let unready = "[+]db UP\n[-]region OUT_OF_SERVICE\nnot ok\n";
        let cases = [
            (responses(Some((404, "not found")), None), false, true, "another program answers"),
            (responses(Some((200, "ok")), Some("0.1.0")), true, true, "ready at http://127.0.0.1:8080, version 0.1.0"),
            (
                ServiceResponses { refuses_writes: true, ..responses(Some((200, "ok")), Some("0.1.0")) },
                false,
                false,
                "refuses writes under CRITICAL pressure",
            ),
            (responses(None, None), false, true, "none answers"),
            (responses(None, None), true, false, "401"),
            (responses(Some((503, unready)), Some("0.1.0")), false, false, "(503): region OUT_OF_SERVICE"),
            (responses(Some((200, "ok")), None), false, true, "its version is unknown"),
            (responses(Some((200, "ok")), None), true, false, "401"),
        ];
        for (responses, is_named, ok, part) in cases {
            let (actual, detail) = verdict(&responses, URL, is_named);
            assert!(actual == ok && detail.contains(part), "{responses:?} {is_named}: {detail}");
        }
    }
}
