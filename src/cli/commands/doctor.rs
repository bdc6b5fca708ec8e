//! `doctor`: checks configuration, dependencies, outbox and partitions, and prints remedies. Exits with 1 if a check fails.
mod dead_letters;
mod finding;
mod relay;
mod service;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use api::auth::{KeySource, masked_url};
use posthaste::config;
use posthaste::{Config, DependencyCheck, Environment, OperatorAccess};

use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::output::print_line;
use super::super::output::terminal::TerminalFeatures;
use super::super::running_service::ServiceArguments;
use super::super::runtime::block_on;
use super::token::accepts_development_secret;
use finding::Finding;
use service::CheckedService;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

pub(crate) fn doctor(file: Option<&Path>, environment: &Environment, arguments: &Arguments) -> Result<u8, Failure> {
    let config = Config::load(file, environment)?;
    let CheckedService { finding, is_development, is_ready } = block_on(service::check(&config, &arguments.service));
    let mut findings = vec![config_origins(file, environment)?, auth_key(&config, is_development)];
    findings.extend(block_on(check_all(&config, is_ready)));
    findings.push(finding);
    if arguments.output.is_json() {
        findings.iter().try_for_each(|finding| print_line(&finding.document().to_string()))?;
    } else {
        let terminal = TerminalFeatures::of_stdout();
        findings.iter().try_for_each(|finding| print_line(&finding.line(terminal)))?;
        print_line(&finding::summary(&findings, terminal))?;
    }
    Ok(u8::from(findings.iter().any(|finding| !finding.ok)))
}

/// Lists the keys that each layer of the configuration sets.
fn config_origins(file: Option<&Path>, environment: &Environment) -> Result<Finding, Failure> {
    let mut counts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for setting in config::masked_settings(file, environment)? {
        counts.entry(setting.origin).or_default().push(setting.key);
    }
    let defaults = counts.remove("default").unwrap_or_default().len();
    let set = counts.iter().map(|(origin, keys)| format!("; {} from {origin}", keys.join(", ")));
    Ok(Finding::new("config", true, format!("{defaults} keys at their defaults{}", set.collect::<String>())))
}

/// Checks the store and what depends on it; `is_ready` is whether a running service is ready.
async fn check_all(config: &Config, is_ready: bool) -> Vec<Finding> {
    let started = Instant::now();
    let access = match posthaste::open_for_operator(config).await {
        Ok(access) => access,
        Err(error) => {
            let mut findings = vec![Finding::failed("store", error)];
            findings.extend(check_dependencies(config).await);
            return findings;
        }
    };
    let (latency, path) = (started.elapsed(), config.store.path.display());
    let ms = latency.as_millis();
    let detail = match config.store.kind {
        config::StoreKind::Embedded => {
            format!("{path} opened in {ms} ms, schema up to date, same machine and same clock")
        }
        config::StoreKind::Postgres | config::StoreKind::Redis => format!("opened in {ms} ms, schema up to date"),
    };
    let mut findings = vec![Finding::new("store", true, detail).with_latency(latency)];
    findings.extend(check_dependencies(config).await);
    let topics = topics(config, &access).await;
    // A broker whose topics cannot be listed has no readable dead letters either.
    let dead_letters = if topics.latency.is_some() { dead_letters::check(&access).await } else { None };
    findings.extend([topics, relay::outbox(config, &access).await, relay::partitions(config, &access, is_ready).await]);
    findings.extend(dead_letters);
    findings
}

async fn check_dependencies(config: &Config) -> Vec<Finding> {
    let checks = posthaste::check_dependencies(config).await.into_iter();
    checks
        .map(|DependencyCheck { name, ok, detail, latency }| Finding { latency, ..Finding::new(name, ok, detail) })
        .collect()
}

async fn topics(config: &Config, access: &OperatorAccess) -> Finding {
    let started = Instant::now();
    let Some(topics) = &access.topics else {
        return Finding::new("topics", true, "no broker is configured: events stay PENDING");
    };
    let views = match topics.list().await {
        Ok(views) => views,
        Err(error) => return Finding::failed("topics", error),
    };
    let latency = started.elapsed();
    let required = config.all_topics();
    let missing: Vec<&str> =
        required.iter().map(String::as_str).filter(|name| !views.iter().any(|view| view.name == *name)).collect();
    let names = missing.join(", ");
    let shown = match (missing.is_empty(), config.broker.create_topics) {
        (true, _) => "none missing".to_owned(),
        (false, true) => format!("missing: {names}; a running service creates them"),
        (false, false) => format!("missing: {names}; create them in Kafka, as broker.create_topics is false"),
    };
    let detail = format!("{} listed in {} ms, {shown}", views.len(), latency.as_millis());
    Finding::new("topics", missing.is_empty(), detail).with_latency(latency)
}

/// Checks the key that verifies tokens. It may be absent where the service runs with `--dev`.
fn auth_key(config: &Config, is_development: bool) -> Finding {
    let (ok, detail) = match config.auth.source() {
        None if is_development => (
            true,
            "the service runs with --dev and accepts the development secret: never do this in production".to_owned(),
        ),
        None => (false, "no key is set: serve refuses to start without --dev; set auth.hs256_secret".to_owned()),
        Some(_) if accepts_development_secret(config) => {
            (false, "the development secret is public: serve refuses it without --dev; set your own".to_owned())
        }
        Some(KeySource::Secret(_)) => (true, "a shared secret".to_owned()),
        Some(KeySource::PublicKeyFile(path)) => (path.is_file(), format!("public key in {}", path.display())),
        Some(KeySource::JwksUrl(url)) => (true, format!("keys from {}", masked_url(&url))),
    };
    Finding::new("auth", ok, detail)
}
