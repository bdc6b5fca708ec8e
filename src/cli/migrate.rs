//! `migrate`: the store's schema and the broker's topics, by hand.
use std::path::Path;

use app::contract::rfc3339;
use clap::Args;
use posthaste::config::BrokerKind;
use posthaste::{Config, Migration, Schema};
use serde_json::json;

use super::{Failure, block_on, line};

#[derive(Args)]
pub(crate) struct Arguments {
    /// up (default) applies what is missing and makes missing topics; status looks. Exit 1 where a later program wrote the store.
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
    block_on(async {
        if arguments.looks() {
            let code = tell(posthaste::migrations(config).await?, arguments)?;
            if makes_topics(config) {
                eprintln!("`migrate up` also makes the topics that are missing");
            }
            return Ok(code);
        }
        let code = tell(posthaste::migrate(config).await?, arguments)?;
        // Told before the broker is asked: whoever reads that it is away must know what was done all the same.
        for name in posthaste::provide_topics(config).await? {
            eprintln!("topic {name} was made");
        }
        if makes_topics(config) {
            eprintln!("every topic is there");
        }
        Ok(code)
    })
}

fn makes_topics(config: &Config) -> bool {
    config.broker_kind == BrokerKind::Kafka && config.broker_create_topics
}

/// Says how the schema stands, or what was done; the exit code.
fn tell(schema: Schema, arguments: &Arguments) -> Result<u8, Failure> {
    match schema {
        Schema::Steps(steps) => steps_told(steps, arguments),
        Schema::File { folder, found, known } => file_told(&folder, found, known, arguments),
        Schema::Keys { installed, made } => keys_told(installed, made, arguments),
    }
}

fn steps_told(mut steps: Vec<Migration>, arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.dry_run {
        steps.retain(|step| step.applied_at.is_none());
    }
    for step in &steps {
        line(&shown(step, arguments))?;
    }
    if steps.is_empty() {
        eprintln!("nothing to do: the schema is up to date");
    } else if !arguments.looks() {
        eprintln!("the schema is up to date now: {} steps were applied", steps.len());
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

fn file_told(folder: &Path, found: Option<u32>, known: u32, arguments: &Arguments) -> Result<u8, Failure> {
    let place = folder.display();
    if arguments.json {
        let told = json!({"store": "embedded", "path": place.to_string(), "version": found, "known": known});
        line(&told.to_string())?;
    }
    let stands = match found {
        None => {
            format!("there is no store in {place} yet: the service's first start makes it, with schema version {known}")
        }
        Some(newer) if newer > known => {
            return Err(Failure::new(format!(
                "the store in {place} has schema version {newer}, this program knows {known} at most: run the later program"
            )));
        }
        Some(version) if version == known => format!("the store in {place} has schema version {version}: up to date"),
        Some(older) => format!(
            "the store in {place} has schema version {older}: the service brings it to {known} by itself when it starts"
        ),
    };
    told(&stands, arguments)
}

fn keys_told(installed: bool, made: bool, arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.json {
        line(&json!({"store": "redis", "installed": installed, "made": made}).to_string())?;
    }
    told(
        match (installed, made) {
            (true, _) => "a Redis store has no migrations, and its installation is there: nothing to do",
            (false, true) => "a Redis store has no migrations; its installation was made",
            (false, false) => {
                "a Redis store has no migrations; its installation is not there yet: `migrate up` or the service's first start makes it"
            }
        },
        arguments,
    )
}

/// One sentence: data for who looks, a message for who acts or reads JSON.
fn told(sentence: &str, arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.looks() && !arguments.json {
        line(sentence)?;
    } else {
        eprintln!("{sentence}");
    }
    Ok(0)
}
