//! `doctor`: what is wrong, and what to do. Exit 1 when something is.
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use app::contract::rfc3339;
use posthaste::config::{self, AuthKey};
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
}

pub(crate) fn doctor(file: Option<&Path>, environment: &Environment, arguments: &Arguments) -> Result<u8, Failure> {
    let config = Config::load(file, environment)?;
    let mut findings = vec![sources(file, environment)?, key(&config)];
    findings.extend(block_on(examine(&config)));
    for Finding { what, fine, detail } in &findings {
        if arguments.json {
            line(&serde_json::json!({"check": what, "ok": fine, "detail": detail}).to_string())?;
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
    Ok(Finding {
        what: "config",
        fine: true,
        detail: format!("{defaults} keys at their defaults{}", told.collect::<String>()),
    })
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
    let took = begun.elapsed().as_millis();
    let detail = match config.store_kind {
        config::StoreKind::Embedded => {
            format!(
                "{} opened in {took} ms, schema up to date, same machine and same clock",
                config.store_path.display()
            )
        }
        config::StoreKind::Postgres | config::StoreKind::Redis => format!("opened in {took} ms, schema up to date"),
    };
    let mut findings = vec![Finding { what: "store", fine: true, detail }];
    findings.extend(checked(config).await);
    findings.extend([topics(config, &beside).await, outbox(&beside).await, partitions(&beside).await]);
    findings
}

async fn checked(config: &Config) -> Vec<Finding> {
    let found = posthaste::checkup(config).await.into_iter();
    found.map(|posthaste::Checked { what, fine, detail }| Finding { what, fine, detail }).collect()
}

fn bad(what: &'static str, error: impl std::fmt::Display) -> Finding {
    Finding { what, fine: false, detail: error.to_string() }
}

async fn topics(config: &Config, beside: &Beside) -> Finding {
    let begun = Instant::now();
    let Some(topics) = &beside.topics else {
        return Finding {
            what: "topics",
            fine: true,
            detail: "no broker is configured: events wait as PENDING".into(),
        };
    };
    let views = match topics.list().await {
        Ok(views) => views,
        Err(error) => return bad("topics", error),
    };
    let took_ms = begun.elapsed().as_millis();
    let missing = app::intake::all_topics(&config.topic());
    let missing: Vec<&str> =
        missing.iter().map(String::as_str).filter(|name| !views.iter().any(|view| view.name == *name)).collect();
    let wanted = config.broker_create_topics;
    let lacking =
        if missing.is_empty() { "none missing".to_owned() } else { format!("missing: {}", missing.join(", ")) };
    Finding {
        what: "topics",
        fine: missing.is_empty() || !wanted,
        detail: format!("{} listed in {took_ms} ms, {lacking}", views.len()),
    }
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
    Finding { what: "outbox", fine: depth.parked == 0, detail }
}

async fn partitions(beside: &Beside) -> Finding {
    let views = match beside.operations.partitions().await {
        Ok(views) => views,
        Err(error) => return bad("partitions", error),
    };
    let unowned = views.iter().filter(|view| view.owner.is_none()).count();
    let soonest = views.iter().filter_map(|view| view.expires_at).min().map(rfc3339).unwrap_or_default();
    let detail = if unowned == views.len() {
        "no instance runs on this store".to_owned()
    } else {
        format!("{} of {} owned, first lease until {soonest}", views.len() - unowned, views.len())
    };
    Finding { what: "partitions", fine: unowned == 0 || unowned == views.len(), detail }
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
    Finding { what: "auth", fine, detail }
}
