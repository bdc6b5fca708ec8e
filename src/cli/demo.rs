//! `demo`: the newcomer's first minute. Starts embedded, places orders, shows each hop with its time, then stays up.
use std::time::{Duration, Instant};

use app::dispatch::{Fault, InjectError};
use posthaste::{Config, Service};
use serde_json::Value;
use telemetry::logging::{self, Format};

use super::client::Client;
use super::serve::{Signals, run};
use super::token::{Claims, DEVELOPMENT_SECRET, mint};
use super::{Failure, block_on, line};

/// How long to wait for one order's journey before saying that something is wrong.
const JOURNEY_MAX: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Orders to place.
    #[arg(long, default_value_t = 3)]
    orders: u32,
    /// Stop when the orders have arrived, instead of staying up.
    #[arg(long)]
    once: bool,
}

pub(crate) fn demo(mut config: Config, arguments: &Arguments) -> Result<u8, Failure> {
    let begun = Instant::now();
    logging::init_on_stderr(Format::Pretty, "warn").map_err(Failure::new)?;
    config.auth_key = Some(posthaste::config::AuthKey::Secret(DEVELOPMENT_SECRET.to_owned()));
    config.fault_injection_enabled = true;
    block_on(async move {
        let signals = Signals::listen()?;
        let service = posthaste::start(config.clone()).await?;
        tell(&config, &service, arguments.orders, begun).await?;
        if arguments.once {
            service.stop().await;
            return Ok(0);
        }
        line("\nIt stays up. Ctrl-C drains and stops it.")?;
        run(service, signals).await
    })
}

async fn tell(config: &Config, service: &Service, orders: u32, begun: Instant) -> Result<(), Failure> {
    let base = format!("http://{}", service.addr());
    line(&format!(
        "posthaste runs at {base} after {} ms, embedded in {}",
        begun.elapsed().as_millis(),
        config.store_path.display()
    ))?;
    let user = token(config, "demo", "USER")?;
    let admin = token(config, "operator", "ADMIN")?;
    let mut client = Client::connect(service.addr()).await?;
    for number in 1..=orders {
        journey(&mut client, &user, &admin, number, begun).await?;
    }
    kill_one(service, &mut client, &admin).await?;
    line(&format!(
        "\nTry it yourself:\n  curl -s {base}/orders -H 'Authorization: Bearer {user}' -H 'Content-Type: application/json' \
         -d '{{\"items\":[{{\"productName\":\"Tea\",\"quantity\":2,\"price\":\"2.50\"}}]}}'"
    ))?;
    line(&format!(
        "\n  console        {base}/console   (log in with the token below)\n  API documents  {base}/docs\n  metrics        {base}/metrics\n  events         posthaste topic tail {} --from-beginning --json",
        config.topic()
    ))?;
    line(&format!("\nToken of an administrator, for the console:\n  {admin}"))?;
    line(&format!(
        "\nBreak it:\n  curl -s -X POST {base}/admin/actors/relay/partition-worker-7/panic -H 'Authorization: Bearer {admin}'\n  \
         curl -s {base}/admin/actors -H 'Authorization: Bearer {admin}'\n  kill -9 {}   # then start it again: nothing is lost, nothing comes twice",
        std::process::id()
    ))
}

fn token(config: &Config, sub: &str, role: &str) -> Result<String, Failure> {
    let ttl = Duration::from_secs(24 * 60 * 60);
    mint(config, DEVELOPMENT_SECRET, &Claims { sub: sub.into(), roles: vec![role.into()], tier: None, ttl })
}

/// One order, hop by hop.
async fn journey(client: &mut Client, user: &str, admin: &str, number: u32, begun: Instant) -> Result<(), Failure> {
    let body = format!(r#"{{"items":[{{"productName":"Tea no. {number}","quantity":{number},"price":"2.50"}}]}}"#);
    let sent = Instant::now();
    let order = client.send("POST", "/orders", user, Some(&body)).await?.ok()?.json();
    let answered = sent.elapsed();
    let id = order["id"].as_str().unwrap_or_default().to_owned();
    line(&format!("\norder {number}: {id}"))?;
    line(&format!("  {:>9}  HTTP → OrderAggregate → order, event and mark in one transaction → 201", ms(answered)))?;
    let why = until(client, admin, &format!("/admin/outbox/why?key={id}"), |why| why["verdict"] == "SENT").await?;
    let place = format!("{} {}/{}", why["topic"].as_str().unwrap_or("?"), why["partition"], why["offset"]);
    line(&format!(
        "  {:>9}  OutboxPublisher → PartitionWorker: claimed, published to {place}, settled",
        ms(sent.elapsed())
    ))?;
    let consumed = |metrics: &Value| metrics["measurements"][0]["value"].as_f64().unwrap_or(0.0) >= f64::from(number);
    until(client, admin, "/actuator/metrics/kafka.consumer.processed.count", consumed).await?;
    line(&format!("  {:>9}  ConsumerActor → processed_events", ms(sent.elapsed())))?;
    if number == 1 {
        line(&format!("  (the first event was delivered {} after the process started)", ms(begun.elapsed())))?;
    }
    Ok(())
}

/// Asks again until the answer is as wished.
async fn until(
    client: &mut Client,
    token: &str,
    path: &str,
    wished: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    let begun = Instant::now();
    loop {
        let answer = client.send("GET", path, token, None).await?.json();
        if wished(&answer) {
            return Ok(answer);
        }
        if begun.elapsed() > JOURNEY_MAX {
            return Err(Failure::new(format!(
                "{path} did not come to what was expected within {JOURNEY_MAX:?}: {answer}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Shows a death and a return.
async fn kill_one(service: &Service, client: &mut Client, admin: &str) -> Result<(), Failure> {
    let path = "/relay/partition-worker-7";
    let died = Instant::now();
    let injected: Result<(), InjectError> = service.cast().dispatch().inject(path, Fault::Panic, "demo");
    injected.map_err(Failure::new)?;
    let back = |tree: &Value| {
        let actors = tree["actors"].as_array().into_iter().flatten();
        actors.into_iter().any(|actor| actor["path"] == path && actor["generation"] == 2 && actor["state"] == "running")
    };
    until(client, admin, "/admin/actors", back).await?;
    line(&format!("\na PartitionWorker was made to panic; its supervisor had it back after {}", ms(died.elapsed())))
}

fn ms(elapsed: Duration) -> String {
    format!("{:.1} ms", elapsed.as_secs_f64() * 1_000.0)
}
