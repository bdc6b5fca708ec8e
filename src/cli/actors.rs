//! `actors`: the supervision tree of a running service, asked of its admin port.
use std::net::{SocketAddr, ToSocketAddrs};

use clap::Subcommand;
use posthaste::Config;
use posthaste::config::AuthKey;
use serde_json::Value;

use super::token::{Claims, DEVELOPMENT_SECRET, mint};
use super::{Failure, block_on, client, line};

#[derive(clap::Args)]
pub(crate) struct Reach {
    /// The service's admin port, such as http://127.0.0.1:8080; otherwise as configured.
    #[arg(long)]
    url: Option<String>,
    /// An ADMIN's token; otherwise one is minted with the configured secret.
    #[arg(long, env = "POSTHASTE_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Every actor: state, generation, restarts, mailbox.
    Tree {
        #[command(flatten)]
        reach: Reach,
        /// One JSON object a line, as in /admin/actors.
        #[arg(long)]
        json: bool,
    },
    /// Make an actor panic (needs fault_injection.enabled), to see it come back.
    Kill {
        /// Its path, as the tree shows it.
        path: String,
        #[command(flatten)]
        reach: Reach,
        /// What was done, as a JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn actors(config: &Config, verb: Verb) -> Result<u8, Failure> {
    match verb {
        Verb::Tree { reach, json } => block_on(tree(config, &reach, json)),
        Verb::Kill { path, reach, json } => block_on(kill(config, &reach, &path, json)),
    }
}

async fn tree(config: &Config, reach: &Reach, json: bool) -> Result<u8, Failure> {
    let answer = ask(config, reach, "GET", "/admin/actors").await?;
    for actor in answer["actors"].as_array().into_iter().flatten() {
        if json {
            line(&actor.to_string())?;
            continue;
        }
        let text = |name: &str| actor[name].as_str().unwrap_or("-").to_owned();
        let number = |name: &str| actor[name].as_u64().unwrap_or(0);
        line(&format!(
            "{:<32} {:<10} generation {:<3} restarts {:<3} mailbox {}/{}  {}",
            text("path"),
            text("state"),
            number("generation"),
            number("restarts"),
            number("mailboxDepth"),
            number("mailboxCapacity"),
            actor["lastExit"].as_str().unwrap_or("")
        ))?;
    }
    Ok(0)
}

async fn kill(config: &Config, reach: &Reach, path: &str, json: bool) -> Result<u8, Failure> {
    let path = path.trim_start_matches('/');
    let injected = ask(config, reach, "POST", &format!("/admin/actors/{path}/panic")).await?;
    eprintln!("/{path} was told to panic");
    if json {
        line(&injected.to_string())?;
    }
    Ok(0)
}

async fn ask(config: &Config, reach: &Reach, method: &str, path: &str) -> Result<Value, Failure> {
    let address = address(config, reach)?;
    let token = match &reach.token {
        Some(token) => token.clone(),
        None => admin_token(config)?,
    };
    Ok(client::once(address, method, path, &token).await?.ok()?.json())
}

fn address(config: &Config, reach: &Reach) -> Result<SocketAddr, Failure> {
    let Some(url) = &reach.url else { return Ok(config.http_admin_listen.unwrap_or(config.http_listen)) };
    let host = url.strip_prefix("http://").ok_or_else(|| Failure::new("--url must begin with http://"))?;
    let host = host.trim_end_matches('/');
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let found = host.to_socket_addrs().map_err(|error| Failure::new(format!("{host}: {error}")))?.next();
    found.ok_or_else(|| Failure::new(format!("{host}: no address")))
}

fn admin_token(config: &Config) -> Result<String, Failure> {
    let secret = match &config.auth_key {
        Some(AuthKey::Secret(secret)) => secret.as_str(),
        None => DEVELOPMENT_SECRET,
        Some(AuthKey::PublicKeyFile(_) | AuthKey::JwksUrl(_)) => {
            return Err(Failure::new("give an ADMIN's token with --token"));
        }
    };
    let ttl = std::time::Duration::from_secs(60);
    mint(config, secret, &Claims { sub: "operator".into(), roles: vec!["ADMIN".into()], tier: None, ttl })
}
