//! `doctor`: what is wrong, and what to do. Exit 1 when something is.
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use app::contract::rfc3339;
use posthaste::config::{self, AuthKey, BrokerKind};
use posthaste::{Beside, Config, Environment};

use super::token::DEVELOPMENT_SECRET;
use super::{Failure, block_on, line};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// One finding.
struct Finding {
    what: &'static str,
    fine: bool,
    detail: String,
    latency: Option<Duration>,
}

impl Finding {
    fn new(what: &'static str, fine: bool, detail: impl Into<String>) -> Self {
        Self { what, fine, detail: detail.into(), latency: None }
    }

    fn after(self, latency: Duration) -> Self {
        Self { latency: Some(latency), ..self }
    }
}

pub(crate) fn doctor(file: Option<&Path>, environment: &Environment, arguments: &Arguments) -> Result<u8, Failure> {
    let config = Config::load(file, environment)?;
    let mut findings = vec![sources(file, environment)?, key(&config)];
    findings.extend(block_on(examine(&config)));
    for Finding { what, fine, detail, latency } in &findings {
        if arguments.json {
            let latency = latency.map(|latency| latency.as_secs_f64() * 1e3);
            line(&serde_json::json!({"check": what, "ok": fine, "detail": detail, "latencyMs": latency}).to_string())?;
        } else {
            line(&format!("{} {what}: {detail}", if *fine { "ok  " } else { "BAD " }))?;
        }
    }
    Ok(u8::from(findings.iter().any(|finding| !finding.fine)))
}

/// How many keys each layer sets.
fn sources(file: Option<&Path>, environment: &Environment) -> Result<Finding, Failure> {
    let mut counts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, _, origin) in config::masked(file, environment)? {
        counts.entry(origin).or_default().push(key);
    }
    let defaults = counts.remove("default").unwrap_or_default().len();
    let told = counts.iter().map(|(origin, keys)| format!("; {} from {origin}", keys.join(", ")));
    Ok(Finding::new("config", true, format!("{defaults} keys at their defaults{}", told.collect::<String>())))
}

async fn examine(config: &Config) -> Vec<Finding> {
    let begun = Instant::now();
    let beside = match posthaste::beside(config).await {
        Ok(beside) => beside,
        Err(error) => {
            let mut findings = vec![bad("store", error)];
            findings.extend(checked(config).await);
            return findings;
        }
    };
    let (latency, path) = (begun.elapsed(), config.store_path.display());
    let took = latency.as_millis();
    let detail = match config.store_kind {
        config::StoreKind::Embedded => {
            format!("{path} opened in {took} ms, schema up to date, same machine and same clock")
        }
        config::StoreKind::Postgres | config::StoreKind::Redis => format!("opened in {took} ms, schema up to date"),
    };
    let mut findings = vec![Finding::new("store", true, detail).after(latency)];
    findings.extend(checked(config).await);
    findings.extend([topics(config, &beside).await, outbox(&beside).await, partitions(config, &beside).await]);
    findings
}

async fn checked(config: &Config) -> Vec<Finding> {
    let found = posthaste::checkup(config).await.into_iter();
    found.map(|posthaste::Checked { what, fine, detail, latency }| Finding { what, fine, detail, latency }).collect()
}

fn bad(what: &'static str, error: impl std::fmt::Display) -> Finding {
    Finding::new(what, false, error.to_string())
}

async fn topics(config: &Config, beside: &Beside) -> Finding {
    let begun = Instant::now();
    let Some(topics) = &beside.topics else {
        return Finding::new("topics", true, "no broker is configured: events wait as PENDING");
    };
    let views = match topics.list().await {
        Ok(views) => views,
        Err(error) => return bad("topics", error),
    };
    let latency = begun.elapsed();
    let missing = outbox::topics::all_topics(&config.topic());
    let missing: Vec<&str> =
        missing.iter().map(String::as_str).filter(|name| !views.iter().any(|view| view.name == *name)).collect();
    let wanted = config.broker_create_topics;
    let lacking =
        if missing.is_empty() { "none missing".to_owned() } else { format!("missing: {}", missing.join(", ")) };
    let detail = format!("{} listed in {} ms, {lacking}", views.len(), latency.as_millis());
    Finding::new("topics", missing.is_empty() || !wanted, detail).after(latency)
}

async fn outbox(beside: &Beside) -> Finding {
    let depth = match beside.operations.depth().await {
        Ok(depth) => depth,
        Err(error) => return bad("outbox", error),
    };
    let waiting = depth.pending + depth.failed;
    let age = depth.oldest_unsent.unwrap_or_default().as_secs();
    let detail = format!(
        "{waiting} waiting (oldest {age} s), {} in flight, {} parked: see `posthaste outbox list --status PARKED`",
        depth.in_flight, depth.parked
    );
    Finding::new("outbox", depth.parked == 0, detail)
}

async fn partitions(config: &Config, beside: &Beside) -> Finding {
    let views = match beside.operations.partitions().await {
        Ok(views) => views,
        Err(error) => return bad("partitions", error),
    };
    let (there, wanted) = (views.len(), config.outbox_partitions);
    if there != wanted as usize {
        let detail = format!("outbox.partitions is {wanted}, and the store was made with {there}: set it to {there}");
        return Finding::new("partitions", false, detail);
    }
    let unowned = views.iter().filter(|view| view.owner.is_none()).count();
    let soonest = views.iter().filter_map(|view| view.expires_at).min().map(rfc3339).unwrap_or_default();
    let detail = match (config.broker_kind, unowned == there) {
        (BrokerKind::None, true) => "none is owned: no broker is configured, so nothing is to be moved".to_owned(),
        (_, true) => "none is owned: no instance runs on this store".to_owned(),
        (_, false) => format!("{} of {there} owned, first lease until {soonest}", there - unowned),
    };
    Finding::new("partitions", unowned == 0 || unowned == there, detail)
}

fn key(config: &Config) -> Finding {
    let (fine, detail) = match &config.auth_key {
        None => (false, "no key is set: serve will refuse to start without --dev; set auth.hs256_secret".to_owned()),
        Some(AuthKey::Secret(secret)) if secret == DEVELOPMENT_SECRET => {
            (false, "the development secret is known to everyone; set your own".to_owned())
        }
        Some(AuthKey::Secret(secret)) if secret.len() < 32 => {
            (false, "auth.hs256_secret is shorter than 32 bytes, which can be guessed".to_owned())
        }
        Some(AuthKey::Secret(_)) => (true, "a shared secret".to_owned()),
        Some(AuthKey::PublicKeyFile(path)) => (path.is_file(), format!("public key in {}", path.display())),
        Some(AuthKey::JwksUrl(url)) => (true, format!("keys from {url}")),
    };
    Finding::new("auth", fine, detail)
}
