//! `migrate`: the store's schema and the broker's topics, by hand.
use app::contract::rfc3339;
use clap::Args;
use posthaste::{Config, Migration};
use serde_json::json;

use super::{Failure, block_on, line};

#[derive(Args)]
pub(crate) struct Arguments {
    /// up (default) applies what is missing and makes missing topics; status looks.
    #[arg(value_parser = ["up", "status"], default_value = "up")]
    verb: String,
    /// Say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn looks(&self) -> bool {
        self.dry_run || self.verb == "status"
    }
}

pub(crate) fn migrate(config: &Config, arguments: &Arguments) -> Result<u8, Failure> {
    let steps = block_on(async {
        if arguments.looks() { posthaste::migrations(config).await } else { posthaste::migrate(config).await }
    })?;
    let Some(mut steps) = steps else {
        let folder = config.store_path.display();
        eprintln!("the embedded store in {folder} migrates itself when it is opened; nothing to do");
        return Ok(0);
    };
    if arguments.dry_run {
        steps.retain(|step| step.applied_at.is_none());
    }
    for step in &steps {
        line(&shown(step, arguments))?;
    }
    if steps.is_empty() {
        eprintln!("nothing to do: the schema is up to date");
    }
    Ok(0)
}

fn shown(step: &Migration, arguments: &Arguments) -> String {
    let Migration { version, name, applied_at } = step;
    let applied_at = applied_at.map(rfc3339);
    if arguments.json {
        return json!({"version": version, "name": name, "applied_at": applied_at}).to_string();
    }
    match applied_at {
        Some(at) => format!("V{version} {name}  applied {at}"),
        None if !arguments.looks() => format!("V{version} {name}  applied"),
        None if arguments.dry_run => format!("V{version} {name}  would be applied"),
        None => format!("V{version} {name}  pending: posthaste migrate up"),
    }
}
