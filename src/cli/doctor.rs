//! `doctor`: what is wrong, and what to do. Exit 1 when something is.
use std::time::Instant;

use app::contract::rfc3339;
use posthaste::Config;
use posthaste::config::AuthKey;

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

pub(crate) fn doctor(config: Config, arguments: &Arguments) -> Result<u8, Failure> {
    let findings = block_on(examine(&config));
    for Finding { what, fine, detail } in &findings {
        if arguments.json {
            line(&serde_json::json!({"check": what, "ok": fine, "detail": detail}).to_string())?;
        } else {
            line(&format!("{} {what}: {detail}", if *fine { "ok  " } else { "BAD " }))?;
        }
    }
    Ok(u8::from(findings.iter().any(|finding| !finding.fine)))
}

async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![key(config)];
    let begun = Instant::now();
    let beside = match posthaste::beside(config) {
        Ok(beside) => beside,
        Err(error) => {
            findings.push(Finding { what: "store", fine: false, detail: error.to_string() });
            return findings;
        }
    };
    let folder = config.store_path.display();
    findings.push(Finding {
        what: "store",
        fine: true,
        detail: format!("{folder} opened in {} ms", begun.elapsed().as_millis()),
    });
    match beside.operations.depth().await {
        Ok(depth) => {
            let waiting = depth.pending + depth.failed;
            let age = depth.oldest_unsent.unwrap_or_default().as_secs();
            findings.push(Finding {
                what: "outbox",
                fine: depth.parked == 0,
                detail: format!("{waiting} waiting (oldest {age} s), {} in flight, {} parked: see `posthaste outbox list --status PARKED`", depth.in_flight, depth.parked),
            });
        }
        Err(error) => findings.push(Finding { what: "outbox", fine: false, detail: error.to_string() }),
    }
    match beside.operations.partitions().await {
        Ok(views) => {
            let unowned = views.iter().filter(|view| view.owner.is_none()).count();
            let soonest = views.iter().filter_map(|view| view.expires_at).min().map(rfc3339).unwrap_or_default();
            let detail = if unowned == views.len() {
                "no instance runs on this store".to_owned()
            } else {
                format!("{} of {} owned, first lease until {soonest}", views.len() - unowned, views.len())
            };
            findings.push(Finding { what: "partitions", fine: unowned == 0 || unowned == views.len(), detail });
        }
        Err(error) => findings.push(Finding { what: "partitions", fine: false, detail: error.to_string() }),
    }
    findings
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
