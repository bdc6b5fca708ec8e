//! `demo`: the newcomer's first minute. Starts embedded, places orders, shows each hop with its time, then stays up.
use std::time::{Duration, Instant};

use app::dispatch::{InjectError, InjectedFault};
use posthaste::config::{AuthKey, BrokerKind, StoreKind};
use posthaste::{Config, Schema, Service};
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
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    orders: u32,
    /// Stop when the orders have arrived, instead of staying up.
    #[arg(long)]
    once: bool,
}

pub(crate) fn demo(mut config: Config, arguments: &Arguments) -> Result<u8, Failure> {
    let begun = Instant::now();
    logging::init_on_stderr(Format::Pretty, "warn").map_err(Failure::new)?;
    spare(&config)?;
    for unused in embed(&mut config) {
        eprintln!("posthaste: the demo is embedded: {unused} is not used");
    }
    config.auth_key = Some(AuthKey::Secret(DEVELOPMENT_SECRET.to_owned()));
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

/// An embedded store whose events go elsewhere: the demo would take them to its own topics, and nobody would ever send them on.
fn spare(config: &Config) -> Result<(), Failure> {
    if config.store_kind != StoreKind::Embedded || config.broker_kind == BrokerKind::Embedded {
        return Ok(());
    }
    match block_on(posthaste::migrations(config))? {
        Schema::File { found: Some(_), folder, .. } => Err(Failure::new(format!(
            "the store in {} is set up with another broker (broker.kind), and the demo would keep its waiting events from it; \
             give the demo a folder of its own: POSTHASTE__STORE__PATH=FOLDER posthaste demo",
            folder.display()
        ))),
        Schema::File { .. } | Schema::Steps(_) | Schema::Keys { .. } => Ok(()),
    }
}

/// Keeps the demo, which kills an actor and hands out an administrator's token, away from what somebody works with. Says what was set
/// otherwise.
fn embed(config: &mut Config) -> Vec<&'static str> {
    let mut unused = Vec::new();
    unused.extend(match config.store_kind {
        StoreKind::Embedded => None,
        StoreKind::Postgres => Some("store.kind = postgres"),
        StoreKind::Redis => Some("store.kind = redis"),
    });
    unused.extend(match config.broker_kind {
        BrokerKind::Embedded => None,
        BrokerKind::Kafka => Some("broker.kind = kafka"),
        BrokerKind::None => Some("broker.kind = none"),
    });
    unused.extend(config.cache_redis.then_some("cache.kind = redis"));
    // The demo asks its own admin pages where it places its orders.
    unused.extend(config.http_admin_listen.take().map(|_| "http.admin_listen"));
    (config.store_kind, config.broker_kind, config.cache_redis) = (StoreKind::Embedded, BrokerKind::Embedded, false);
    unused
}

async fn tell(config: &Config, service: &Service, orders: u32, begun: Instant) -> Result<(), Failure> {
    let base = format!("http://{}", service.addr());
    let folder = config.store_path.canonicalize().unwrap_or_else(|_| config.store_path.clone());
    line(&format!(
        "posthaste runs at {base} after {} ms, embedded in {}",
        begun.elapsed().as_millis(),
        folder.display()
    ))?;
    let user = token(config, "demo", "USER")?;
    let admin = token(config, "operator", "ADMIN")?;
    let mut client = Client::connect(service.addr()).await?;
    for number in 1..=orders {
        journey(&mut client, &user, &admin, number, begun).await?;
    }
    kill_one(config, service, &mut client, &admin).await?;
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
        "\nBreak it:\n  curl -s -X POST {base}/admin/actors{}/panic -H 'Authorization: Bearer {admin}'\n  \
         curl -s {base}/admin/actors -H 'Authorization: Bearer {admin}'\n  kill -9 {}   # then start it again: nothing is lost, nothing comes twice",
        victim(config),
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
    let left = Expected {
        what: format!("the event of order {id} has left"),
        otherwise: format!("posthaste outbox why --key {id}, and whether outbox.enabled is false"),
    };
    let why =
        until(client, admin, &format!("/admin/outbox/why?key={id}"), &left, |why| why["verdict"] == "SENT").await?;
    let place = format!("{} {}/{}", why["topic"].as_str().unwrap_or("?"), why["partition"], why["offset"]);
    line(&format!(
        "  {:>9}  OutboxPublisher → PartitionWorker: claimed, published to {place}, settled",
        ms(sent.elapsed())
    ))?;
    let consumed = |metrics: &Value| metrics["measurements"][0]["value"].as_f64().unwrap_or(0.0) >= f64::from(number);
    let taken = Expected {
        what: format!("the event of order {id} was consumed"),
        otherwise: "posthaste dlt list, and whether consumer.count is 0".to_owned(),
    };
    until(client, admin, "/actuator/metrics/kafka.consumer.processed.count", &taken, consumed).await?;
    line(&format!("  {:>9}  ConsumerActor → processed_events", ms(sent.elapsed())))?;
    if number == 1 {
        line(&format!("  (the first event was delivered {} after the process started)", ms(begun.elapsed())))?;
    }
    Ok(())
}

/// What the demo waits for, and where to look when it does not come.
struct Expected {
    what: String,
    otherwise: String,
}

/// Asks again until the answer is as wished.
async fn until(
    client: &mut Client,
    token: &str,
    path: &str,
    expected: &Expected,
    wished: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    let begun = Instant::now();
    loop {
        let answer = client.send("GET", path, token, None).await?;
        let found = answer.json();
        if wished(&found) {
            return Ok(found);
        }
        if begun.elapsed() > JOURNEY_MAX {
            let Expected { what, otherwise } = expected;
            let (waited, said) =
                (JOURNEY_MAX.as_secs(), answer.ok().err().map(|refused| format!(" ({})", refused.message)));
            let said = said.unwrap_or_default();
            return Err(Failure::new(format!(
                "the demo waited {waited} s until {what}, in vain{said}; look at: {otherwise}"
            )));
        }
        // Precise while it is quick, and few enough questions for the rate limit when it is not.
        tokio::time::sleep((begun.elapsed() / 4).max(Duration::from_millis(2))).await;
    }
}

/// Shows a death and a return.
async fn kill_one(config: &Config, service: &Service, client: &mut Client, admin: &str) -> Result<(), Failure> {
    let path = &victim(config);
    let died = Instant::now();
    let injected: Result<(), InjectError> = service.cast().dispatch().inject(path, InjectedFault::Panic, "demo");
    injected.map_err(Failure::new)?;
    let back = |tree: &Value| {
        let mut actors = tree["actors"].as_array().into_iter().flatten();
        actors.any(|actor| actor["path"] == path.as_str() && actor["generation"] == 2 && actor["state"] == "running")
    };
    let lives = Expected { what: format!("{path} lives again"), otherwise: "posthaste actors tree".to_owned() };
    until(client, admin, "/admin/actors", &lives, back).await?;
    line(&format!("\na PartitionWorker was made to panic; its supervisor had it back after {}", ms(died.elapsed())))
}

/// An actor to kill: a few partitions are enough for somebody.
fn victim(config: &Config) -> String {
    format!("/relay/partition-worker-{}", config.outbox_partitions.saturating_sub(1).min(7))
}

fn ms(elapsed: Duration) -> String {
    format!("{:.1} ms", elapsed.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_touches_nothing_that_somebody_works_with() {
        let mut config = Config { store_kind: StoreKind::Redis, cache_redis: true, ..Config::defaults() };
        config.broker_kind = BrokerKind::Kafka;

        assert_eq!(embed(&mut config), ["store.kind = redis", "broker.kind = kafka", "cache.kind = redis"]);

        assert_eq!(config, Config::defaults());
        assert_eq!(embed(&mut config), Vec::<&str>::new());
    }
}
