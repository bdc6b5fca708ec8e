//! `webhook`: the endpoints that receive the events of topics, of a running service.
mod redrive;
mod tables;

use std::time::Duration;

use app::operators::dead_letters::{DeadLetterCursor, DeadLetterPosition};
use clap::Subcommand;
use posthaste::Config;
use serde_json::{Map, Value, json};

use super::super::confirm::require_if_interactive;
use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::output::terminal::TerminalFeatures;
use super::super::output::{pluralize, print_line, print_message};
use super::super::running_service::{RunningService, ServiceArguments};
use super::super::runtime::block_on;
use super::super::value_parsers::at_least_one;
use super::dlt::{cursor, position};
use redrive::WebhookRedrive;
use tables::{dead_letters_table, deliveries_table, text, webhooks_table};

/// Longest wait for the result of a test event: the service waits up to 10 s for the endpoint.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The arguments that every verb has.
#[derive(clap::Args)]
pub(crate) struct CommonArguments {
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

/// The values of a webhook that an operator may set.
#[derive(clap::Args)]
pub(crate) struct WebhookArguments {
    /// Only events of this type. May be repeated.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Whether the events of a key are delivered in their order, also when one of them is retried.
    #[arg(long, value_name = "BOOLEAN")]
    ordered: Option<bool>,
    /// Whether events are delivered; while false they wait.
    #[arg(long, value_name = "BOOLEAN")]
    active: Option<bool>,
    /// A text for operators.
    #[arg(long)]
    description: Option<String>,
}

impl WebhookArguments {
    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        put("types", (!self.types.is_empty()).then(|| json!(self.types)));
        put("ordered", self.ordered.map(Value::from));
        put("active", self.active.map(Value::from));
        put("description", self.description.clone().map(Value::from));
        members
    }
}

#[derive(Subcommand)]
pub(crate) enum WebhookCommand {
    /// List the webhooks with their latest deliveries.
    List {
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Subscribe an endpoint to topics; prints the secret that signs its requests, once.
    Create {
        /// Absolute URL of the endpoint.
        endpoint: String,
        /// Full name of a topic whose events are delivered. May be repeated.
        #[arg(long = "topic", value_name = "TOPIC", required = true)]
        topics: Vec<String>,
        #[command(flatten)]
        values: WebhookArguments,
        /// Deliver all events that the topics keep, instead of those from now on.
        #[arg(long)]
        from_beginning: bool,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Change a webhook; values that are not given stay as they are.
    Change {
        /// Id of the webhook.
        id: String,
        /// Absolute URL of the endpoint.
        #[arg(long = "endpoint", value_name = "URL")]
        endpoint: Option<String>,
        #[command(flatten)]
        values: WebhookArguments,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Delete a webhook with its delivery log.
    Delete {
        /// Id of the webhook.
        id: String,
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Replace the secret; for a time the former one signs as well.
    Rotate {
        /// Id of the webhook.
        id: String,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Send a test event and show the response. Exits with 1 where the endpoint does not accept it.
    Test {
        /// Id of the webhook.
        id: String,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// List the latest 100 attempts to deliver events, newest first.
    Deliveries {
        /// Id of the webhook.
        id: String,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// List the dead letters of a webhook: what its endpoint did not accept in all attempts.
    DeadLetters {
        /// Id of the webhook.
        id: String,
        /// Only dead letters after this partition and offset.
        #[arg(long, value_name = "PARTITION/OFFSET", value_parser = cursor)]
        after: Option<DeadLetterCursor>,
        /// Most dead letters, at most 500.
        #[arg(short = 'n', long, default_value_t = 100, value_parser = at_least_one())]
        limit: u32,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Deliver the dead letters of a webhook again, all of them or one.
    Redrive {
        /// Id of the webhook.
        id: String,
        /// Only the dead letter at this position, as `webhook dead-letters` shows it.
        #[arg(value_name = "PARTITION/OFFSET", value_parser = position, conflicts_with = "limit")]
        position: Option<DeadLetterPosition>,
        /// Count them and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Most dead letters that are delivered again.
        #[arg(short = 'n', long, default_value_t = 1_000, value_parser = at_least_one())]
        limit: u32,
        /// The reason; kept in the ledger of redrives.
        #[arg(long, default_value = "")]
        reason: String,
        /// Do not ask for confirmation on a terminal.
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        common: CommonArguments,
    },
}

pub(crate) fn webhook(config: &Config, command: WebhookCommand) -> Result<u8, Failure> {
    block_on(async {
        match command {
            WebhookCommand::List { common } => list(config, &common).await,
            WebhookCommand::Create { endpoint, topics, values, from_beginning, common } => {
                let mut body = values.members();
                body.insert("topics".to_owned(), topics.into());
                body.insert("url".to_owned(), endpoint.into());
                if from_beginning {
                    body.insert("from".to_owned(), "beginning".into());
                }
                let created = send(config, &common, "POST", "/webhooks", Some(body.into())).await?;
                print_secret(&created, &common)
            }
            WebhookCommand::Change { id, endpoint, values, common } => {
                let mut body = values.members();
                body.extend(endpoint.map(|url| ("url".to_owned(), Value::from(url))));
                let changed = send(config, &common, "PATCH", &path(&id, ""), Some(body.into())).await?;
                print(&changed, &common, || format!("webhook {id} is at version {}", changed["version"]))
            }
            WebhookCommand::Delete { id, yes, common } => {
                require_if_interactive(yes, &format!("Delete webhook {id}?"))?;
                send(config, &common, "DELETE", &path(&id, ""), None).await?;
                print_message(format_args!("webhook {id} was deleted"));
                Ok(0)
            }
            WebhookCommand::Rotate { id, common } => {
                let rotated = send(config, &common, "POST", &path(&id, "/secret"), Some(json!({}))).await?;
                print_secret(&rotated, &common)
            }
            WebhookCommand::Test { id, common } => test(config, &id, &common).await,
            WebhookCommand::Deliveries { id, common } => deliveries(config, &id, &common).await,
            WebhookCommand::DeadLetters { id, after, limit, common } => {
                let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
                dead_letters(config, &path(&id, &format!("/dead-letters?limit={limit}{after}")), &common).await
            }
            WebhookCommand::Redrive { id, position: Some(position), dry_run, reason, yes, common, .. } => {
                let body = json!({"dryRun": dry_run, "reason": reason});
                let path = path(&id, &format!("/dead-letters/{position}/redrive"));
                require_if_interactive(yes || dry_run, &format!("Deliver dead letter {position} again?"))?;
                let dead_letter = send(config, &common, "POST", &path, Some(body)).await?;
                let effect = if dry_run { "can be delivered again" } else { "is delivered again" };
                print(&dead_letter, &common, || format!("dead letter {position} {effect}"))
            }
            WebhookCommand::Redrive { id, position: None, dry_run, limit, reason, yes, common } => {
                let count = redrive(config, &common, &id, WebhookRedrive::new(true, limit, reason)).await?;
                if dry_run {
                    return print(&count.report(), &common, || count.sentence());
                }
                let mut run = count.confirmed();
                if count.matched() > 0 {
                    let dead_letters = pluralize(count.matched(), "dead letter", "dead letters");
                    require_if_interactive(yes, &format!("Deliver {dead_letters} again?"))?;
                    run = redrive(config, &common, &id, run).await?;
                }
                run.set_next_from(&count);
                print(&run.report(), &common, || run.sentence())?;
                run.unsent_summary().map_or(Ok(0), |unsent_summary| Err(Failure::new(unsent_summary)))
            }
        }
    })
}

async fn list(config: &Config, common: &CommonArguments) -> Result<u8, Failure> {
    let found = send(config, common, "GET", "/webhooks", None).await?;
    let webhooks = elements(&found, "webhooks");
    if webhooks.is_empty() {
        print_message(format_args!("there is no webhook; `posthaste webhook create` subscribes an endpoint"));
    } else if common.output.is_json() {
        webhooks.iter().try_for_each(|webhook| print_line(&webhook.to_string()))?;
    } else {
        print_line(&webhooks_table(&webhooks, TerminalFeatures::of_stdout()))?;
    }
    Ok(0)
}

async fn deliveries(config: &Config, id: &str, common: &CommonArguments) -> Result<u8, Failure> {
    let found = send(config, common, "GET", &path(id, "/deliveries"), None).await?;
    let deliveries = elements(&found, "deliveries");
    if deliveries.is_empty() {
        print_message(format_args!("no event was sent yet"));
    } else if common.output.is_json() {
        deliveries.iter().try_for_each(|delivery| print_line(&delivery.to_string()))?;
    } else {
        print_line(&deliveries_table(&deliveries, TerminalFeatures::of_stdout()))?;
    }
    Ok(0)
}

async fn dead_letters(config: &Config, path: &str, common: &CommonArguments) -> Result<u8, Failure> {
    let found = send(config, common, "GET", path, None).await?;
    let dead_letters = elements(&found, "deadLetters");
    if common.output.is_json() {
        dead_letters.iter().try_for_each(|dead_letter| print_line(&dead_letter.to_string()))?;
    } else if !dead_letters.is_empty() {
        print_line(&dead_letters_table(&dead_letters, TerminalFeatures::of_stdout()))?;
    }
    match found["next"].as_str() {
        Some(next) => print_message(format_args!("there may be more: --after {next}")),
        None if dead_letters.is_empty() => print_message(format_args!("no dead letters")),
        None => {}
    }
    Ok(0)
}

async fn test(config: &Config, id: &str, common: &CommonArguments) -> Result<u8, Failure> {
    let service = RunningService::new(config, &common.service)?.with_timeout(TEST_TIMEOUT);
    let report = service.send("POST", &path(id, "/test"), None).await?;
    let accepted = report["accepted"] == true;
    print(&report, common, || match report["error"].as_str() {
        None => format!("the endpoint accepted the test event with status {}", report["status"]),
        Some(error) => format!("the endpoint did not accept the test event: {error}"),
    })?;
    Ok(u8::from(!accepted))
}

/// Sends the requests of a redrive until its limit or the end.
async fn redrive(
    config: &Config,
    common: &CommonArguments,
    id: &str,
    mut redrive: WebhookRedrive,
) -> Result<WebhookRedrive, Failure> {
    let path = path(id, "/redrive");
    while redrive.add(&send(config, common, "POST", &path, Some(redrive.request())).await?) {}
    Ok(redrive)
}

async fn send(
    config: &Config,
    common: &CommonArguments,
    method: &'static str,
    path: &str,
    body: Option<Value>,
) -> Result<Value, Failure> {
    RunningService::new(config, &common.service)?.send(method, path, body).await
}

fn print(response: &Value, common: &CommonArguments, sentence: impl FnOnce() -> String) -> Result<u8, Failure> {
    print_line(&if common.output.is_json() { response.to_string() } else { sentence() })?;
    Ok(0)
}

fn print_secret(webhook: &Value, common: &CommonArguments) -> Result<u8, Failure> {
    print(webhook, common, || format!("webhook {}\nsecret  {}", text(webhook, "id"), text(webhook, "secret")))?;
    if !common.output.is_json() {
        print_message(format_args!("the secret is not shown again"));
    }
    Ok(0)
}

/// The path of a webhook. Characters that no id has are removed, so that the id cannot name another route.
fn path(id: &str, suffix: &str) -> String {
    let legal: String = id.chars().filter(|character| character.is_ascii_alphanumeric() || *character == '-').collect();
    format!("/webhooks/{legal}{suffix}")
}

fn elements(response: &Value, name: &str) -> Vec<Value> {
    response[name].as_array().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_leave_its_path_segment() {
        assert_eq!(path("../admin/x?y", "/test"), "/webhooks/adminxy/test");
    }
}
