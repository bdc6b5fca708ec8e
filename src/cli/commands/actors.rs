//! `actors`: the supervision tree of a running service, read from its admin port.
use std::time::Duration;

use api::auth::KeySource;
use clap::Subcommand;
use posthaste::Config;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::super::admin_client::AdminClient;
use super::super::failure::Failure;
use super::super::output::print_line;
use super::super::runtime::block_on;
use super::token::{CallerClaims, DEVELOPMENT_SECRET, mint};

#[derive(clap::Args)]
pub(crate) struct ServiceArguments {
    /// The service's admin port, such as http://127.0.0.1:8080; by default the configured one.
    #[arg(long)]
    url: Option<String>,
    /// A token with the role ADMIN; by default one is minted with the configured secret.
    #[arg(long, env = "POSTHASTE_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show every actor: state, generation, restarts, mailbox.
    Tree {
        #[command(flatten)]
        service: ServiceArguments,
        /// Print one JSON object a line, as in /admin/actors.
        #[arg(long)]
        json: bool,
    },
    /// Make an actor panic (needs fault_injection.enabled); its supervisor restarts it.
    Kill {
        /// The actor's path, as `actors tree` shows it.
        path: String,
        #[command(flatten)]
        service: ServiceArguments,
        /// Print the result as a JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn actors(config: &Config, verb: Verb) -> Result<u8, Failure> {
    match verb {
        Verb::Tree { service, json } => block_on(tree(config, &service, json)),
        Verb::Kill { path, service, json } => block_on(kill(config, &service, &path, json)),
    }
}

async fn tree(config: &Config, service: &ServiceArguments, json: bool) -> Result<u8, Failure> {
    let tree = request(config, service, "GET", "/admin/actors").await?;
    for actor in tree["actors"].as_array().into_iter().flatten() {
        if json {
            print_line(&actor.to_string())?;
            continue;
        }
        let text = |name: &str| actor[name].as_str().unwrap_or("-").to_owned();
        let number = |name: &str| actor[name].as_u64().unwrap_or(0);
        print_line(&format!(
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

async fn kill(config: &Config, service: &ServiceArguments, path: &str, json: bool) -> Result<u8, Failure> {
    let path = path.trim_start_matches('/');
    let injected = request(config, service, "POST", &format!("/admin/actors/{path}/panic")).await?;
    eprintln!("/{path} was made to panic");
    if json {
        print_line(&injected.to_string())?;
    }
    Ok(0)
}

async fn request(
    config: &Config,
    service: &ServiceArguments,
    method: &'static str,
    path: &str,
) -> Result<Value, Failure> {
    let base = base_url(config, service)?;
    let token = match &service.token {
        Some(token) => token.clone(),
        None => admin_token(config)?,
    };
    AdminClient::new(base).send(method, path, &token, None).await?.success()
}

fn base_url(config: &Config, service: &ServiceArguments) -> Result<String, Failure> {
    match &service.url {
        None => Ok(format!("http://{}", config.http.admin_listen.unwrap_or(config.http.listen))),
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => Ok(url.clone()),
        Some(_) => Err(Failure::new("--url must begin with http:// or https://")),
    }
}

fn admin_token(config: &Config) -> Result<String, Failure> {
    let claims = CallerClaims {
        sub: "operator".to_owned(),
        roles: vec!["ADMIN".to_owned()],
        tier: None,
        ttl: Duration::from_secs(60),
    };
    match config.auth.source() {
        Some(KeySource::Secret(secret)) => mint(config, secret.expose_secret(), &claims),
        None => mint(config, DEVELOPMENT_SECRET, &claims),
        Some(KeySource::PublicKeyFile(_) | KeySource::JwksUrl(_)) => {
            Err(Failure::new("give a token with the role ADMIN with --token"))
        }
    }
}
