//! `doctor`: checks configuration, dependencies, outbox and partitions, and prints remedies. Exits with 1 if a check fails.
mod finding;
mod service;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use api::auth::KeySource;
use app::contract::rfc3339;
use posthaste::config::{self, BrokerKind};
use posthaste::{Config, DependencyCheck, Environment, OperatorAccess};

use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::output::print_line;
use super::super::output::screen::Screen;
use super::super::running_service::ServiceArguments;
use super::super::runtime::block_on;
use super::token::accepts_development_secret;
use finding::Finding;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

pub(crate) fn doctor(file: Option<&Path>, environment: &Environment, arguments: &Arguments) -> Result<u8, Failure> {
    let config = Config::load(file, environment)?;
    let (service, is_development) = block_on(service::check(&config, &arguments.service));
    let mut findings = vec![config_origins(file, environment)?, auth_key(&config, is_development)];
    findings.extend(block_on(check_all(&config)));
    findings.push(service);
    if arguments.output.is_json() {
        findings.iter().try_for_each(|finding| print_line(&finding.document().to_string()))?;
    } else {
        let screen = Screen::of_stdout();
        findings.iter().try_for_each(|finding| print_line(&finding.line(screen)))?;
        print_line(&finding::summary(&findings, screen))?;
    }
    Ok(u8::from(findings.iter().any(|finding| !finding.ok)))
}

/// Lists the keys that each layer of the configuration sets.
fn config_origins(file: Option<&Path>, environment: &Environment) -> Result<Finding, Failure> {
    let mut counts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, _, origin) in config::masked(file, environment)? {
        counts.entry(origin).or_default().push(key);
    }
    let defaults = counts.remove("default").unwrap_or_default().len();
    let set = counts.iter().map(|(origin, keys)| format!("; {} from {origin}", keys.join(", ")));
    Ok(Finding::new("config", true, format!("{defaults} keys at their defaults{}", set.collect::<String>())))
}

async fn check_all(config: &Config) -> Vec<Finding> {
    let begun = Instant::now();
    let access = match posthaste::open_for_operator(config).await {
        Ok(access) => access,
        Err(error) => {
            let mut findings = vec![failed("store", error)];
            findings.extend(check_dependencies(config).await);
            return findings;
        }
    };
    let (latency, path) = (begun.elapsed(), config.store.path.display());
    let ms = latency.as_millis();
    let detail = match config.store.kind {
        config::StoreKind::Embedded => {
            format!("{path} opened in {ms} ms, schema up to date, same machine and same clock")
        }
        config::StoreKind::Postgres | config::StoreKind::Redis => format!("opened in {ms} ms, schema up to date"),
    };
    let mut findings = vec![Finding::new("store", true, detail).with_latency(latency)];
    findings.extend(check_dependencies(config).await);
    findings.extend([topics(config, &access).await, outbox(&access).await, partitions(config, &access).await]);
    findings
}

async fn check_dependencies(config: &Config) -> Vec<Finding> {
    let checks = posthaste::check_dependencies(config).await.into_iter();
    checks.map(|DependencyCheck { name, ok, detail, latency }| Finding { check: name, ok, detail, latency }).collect()
}

fn failed(check: &'static str, error: impl std::fmt::Display) -> Finding {
    Finding::new(check, false, error.to_string())
}

async fn topics(config: &Config, access: &OperatorAccess) -> Finding {
    let begun = Instant::now();
    let Some(topics) = &access.topics else {
        return Finding::new("topics", true, "no broker is configured: events stay PENDING");
    };
    let views = match topics.list().await {
        Ok(views) => views,
        Err(error) => return failed("topics", error),
    };
    let latency = begun.elapsed();
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

async fn outbox(access: &OperatorAccess) -> Finding {
    let depth = match access.operations.depth().await {
        Ok(depth) => depth,
        Err(error) => return failed("outbox", error),
    };
    let waiting = depth.pending + depth.failed;
    let age = depth.oldest_unsent.unwrap_or_default().as_secs();
    let parked = match depth.parked {
        0 => "0 parked".to_owned(),
        parked => format!("{parked} parked: see `posthaste outbox list --status PARKED`"),
    };
    let detail = format!("{waiting} waiting (oldest {age} s), {} in flight, {parked}", depth.in_flight);
    Finding::new("outbox", depth.parked == 0, detail)
}

async fn partitions(config: &Config, access: &OperatorAccess) -> Finding {
    let views = match access.operations.partitions().await {
        Ok(views) => views,
        Err(error) => return failed("partitions", error),
    };
    let (installed, configured) = (views.len(), config.outbox.partitions);
    if installed != configured as usize {
        let detail = format!(
            "outbox.partitions is {configured}, and the store was created with {installed}: set it to {installed}"
        );
        return Finding::new("partitions", false, detail);
    }
    let without_owner: Vec<String> =
        views.iter().filter(|view| view.owner.is_none()).map(|view| view.partition.to_string()).collect();
    let unowned = without_owner.len();
    let first_expiry = views.iter().filter_map(|view| view.expires_at).min().map(rfc3339).unwrap_or_default();
    let detail = match (config.broker.kind, unowned == installed) {
        (BrokerKind::None, true) => "none is owned: no broker is configured, so no event is sent".to_owned(),
        (_, true) => "none is owned: no instance runs on this store".to_owned(),
        (_, false) => {
            let names =
                if unowned == 0 { String::new() } else { format!(", without owner: {}", without_owner.join(", ")) };
            format!("{} of {installed} owned{names}, first lease expires at {first_expiry}", installed - unowned)
        }
    };
    Finding::new("partitions", unowned == 0 || unowned == installed, detail)
}

/// The key that verifies tokens. Without one, a service that runs with `--dev` is as its operator wants it.
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
        Some(KeySource::JwksUrl(url)) => (true, format!("keys from {url}")),
    };
    Finding::new("auth", ok, detail)
}
