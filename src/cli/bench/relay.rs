//! `relay`: waiting events drained by the service; beside it, in turns and on equal data, what the store's statements do by themselves.
use std::time::{Duration, Instant};

use posthaste::config::{BrokerKind, StoreKind};
use posthaste::{Config, Throwaway};
use serde_json::json;

use super::super::failure::Failure;
use super::Bench;
use super::check::Checked;
use super::figures::{median, ratio, rounded};
use super::ground::on_ground;
use super::process::Running;

pub(super) async fn relay(bench: &Bench<'_>) -> Result<(), Failure> {
    let arguments = bench.arguments;
    let (mut ours, mut alone, mut starts, mut checked) = (Vec::new(), Vec::new(), Vec::new(), Checked::default());
    for round in 1..=arguments.rounds {
        bench.progress(&format!("relay, round {round} of {}: the service", arguments.rounds));
        let drained = on_ground(&bench.config, async |ground| drained(bench, ground).await).await?;
        ours.push(arguments.events as f64 / drained.took.as_secs_f64());
        starts.push(drained.began_after.as_millis() as f64);
        checked.add(&drained.checked);
        bench.progress(&format!("relay, round {round} of {}: the statements alone", arguments.rounds));
        alone.push(
            on_ground(&without_kafka(&bench.config), async |ground| statements_alone(bench, ground).await).await?,
        );
    }
    let rate = median(&ours);
    let until = if includes_consumer(&bench.config) { "consumed" } else { "acknowledged and settled" };
    bench.report(
        "relay",
        &json!({
            "events_per_s": rate.round(), "rounds_per_s": rounded(&ours), "until": until, "first_claim_after_ms": median(&starts),
            "statements_alone_per_s": median(&alone).round(), "alone_rounds_per_s": rounded(&alone),
            "share_of_statements_alone": ratio(&ours, &alone), "checked": checked.json(),
        }),
    )
}

/// The embedded broker and its consumers write to the store's own file, so they belong to what is measured; Kafka's do not.
fn includes_consumer(config: &Config) -> bool {
    config.broker.kind == BrokerKind::Embedded
}

fn without_kafka(config: &Config) -> Config {
    let mut config = config.clone();
    config.broker.kind = if config.store.kind == StoreKind::Embedded { BrokerKind::Embedded } else { BrokerKind::None };
    config
}

struct Drained {
    took: Duration,
    began_after: Duration,
    checked: Checked,
}

async fn drained(bench: &Bench<'_>, ground: &Throwaway) -> Result<Drained, Failure> {
    let (events, keys) = (bench.arguments.events, bench.arguments.keys);
    posthaste::fill(&ground.config, events, keys).await?;
    let consumers: &[(&str, &str)] =
        if includes_consumer(&ground.config) { &[] } else { &[("POSTHASTE__CONSUMER__COUNT", "0")] };
    let ready = Instant::now();
    let service = Running::start(bench, ground, consumers).await?;
    let begun = service.claimed().await?;
    let ended = if includes_consumer(&ground.config) {
        service.drained(events).await?;
        Instant::now()
    } else {
        service.delivered(events).await?
    };
    let (took, began_after) = (ended - begun, begun - ready);
    let checked = service.stop_and_check(events).await?;
    Ok(Drained { took, began_after, checked })
}

async fn statements_alone(bench: &Bench<'_>, ground: &Throwaway) -> Result<f64, Failure> {
    posthaste::fill(&ground.config, bench.arguments.events, bench.arguments.keys).await?;
    Ok(posthaste::statements_alone(&ground.config).await?)
}
