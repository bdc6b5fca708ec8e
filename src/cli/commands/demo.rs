//! `demo`: starts an embedded service, places orders, prints each step of their events with its time, then keeps running.
mod next_steps;

use std::path::Path;
use std::time::{Duration, Instant};

use api::shell_quoted;
use app::dispatch::{InjectError, InjectedFault};
use posthaste::config::{BrokerKind, CacheKind, StoreKind};
use posthaste::{Config, SchemaState, Service};
use serde_json::Value;
use telemetry::logging;

use super::super::admin_client::AdminClient;
use super::super::failure::Failure;
use super::super::output::{print_line, print_message};
use super::super::runtime::block_on;
use super::serve::{STOPPED, Signals, run, start, stop};
use super::token::{CallerClaims, DEVELOPMENT_SECRET, accepts_development_secret, mint};
use next_steps::{NextSteps, shell_name};

/// Longest wait for one step of an event before the demo fails.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest pause between two polls.
const POLL_MIN: Duration = Duration::from_millis(2);
const TOKEN_TTL: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of orders to place.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    orders: u32,
    /// Stop when the events have arrived, instead of running on.
    #[arg(long)]
    once: bool,
}

pub(crate) fn demo(mut config: Config, file: Option<&Path>, arguments: &Arguments) -> Result<u8, Failure> {
    let started = Instant::now();
    logging::init_brief_on_stderr("warn").map_err(Failure::new)?;
    refuse_foreign_store(&config)?;
    for unused in make_embedded(&mut config) {
        print_message(format_args!("posthaste: the demo is embedded: {unused} is not used"));
    }
    // Not with a configured secret: other services may accept the administrator's token that the demo prints.
    let commands_can_mint = config.auth.source().is_none() || accepts_development_secret(&config);
    config.auth.set_secret(DEVELOPMENT_SECRET);
    config.fault_injection.enabled = true;
    block_on(async move {
        let Some((service, mut signals)) = start(config.clone(), Signals::listen()?).await? else {
            return Ok(STOPPED);
        };
        let demo = Demo::new(&config, file, commands_can_mint, &service, started)?;
        let is_interrupted = tokio::select! {
            // Dropping this future loses nothing: the service continues with the orders that were placed.
            shown = demo.show(&service, arguments) => shown.map(|()| false)?,
            () = signals.next() => true,
        };
        if arguments.once || is_interrupted {
            return stop(service, signals, STOPPED).await;
        }
        print_line("\nThe service keeps running. Ctrl-C drains and stops it.")?;
        run(service, signals, None).await
    })
}

/// Refuses a store whose broker is not the embedded one: the demo would publish its waiting events to the embedded topics, and the
/// configured broker would never receive them.
fn refuse_foreign_store(config: &Config) -> Result<(), Failure> {
    if config.store.kind != StoreKind::Embedded || config.broker.kind == BrokerKind::Embedded {
        return Ok(());
    }
    match block_on(posthaste::schema_state(config))? {
        SchemaState::EmbeddedFile { version: Some(_), folder, .. } => Err(Failure::new(format!(
            "the store in {} is set up with another broker (broker.kind), which would not get the events that the demo publishes; \
             give the demo a folder of its own: POSTHASTE__STORE__PATH=FOLDER posthaste demo",
            folder.display()
        ))),
        SchemaState::EmbeddedFile { .. } | SchemaState::Migrations(_) | SchemaState::RedisInstallation(_) => Ok(()),
    }
}

/// Sets store, broker and cache to the embedded ones, because the demo kills an actor and prints an administrator's token. Returns the
/// settings that it overrides.
fn make_embedded(config: &mut Config) -> Vec<&'static str> {
    let mut unused = Vec::new();
    unused.extend(match config.store.kind {
        StoreKind::Embedded => None,
        StoreKind::Postgres => Some("store.kind = postgres"),
        StoreKind::Redis => Some("store.kind = redis"),
    });
    unused.extend(match config.broker.kind {
        BrokerKind::Embedded => None,
        BrokerKind::Kafka => Some("broker.kind = kafka"),
        BrokerKind::None => Some("broker.kind = none"),
    });
    unused.extend((config.cache.kind == CacheKind::Redis).then_some("cache.kind = redis"));
    // The demo sends orders and admin requests to one address.
    unused.extend(config.http.admin_listen.take().map(|_| "http.admin_listen"));
    (config.store.kind, config.broker.kind, config.cache.kind) =
        (StoreKind::Embedded, BrokerKind::Embedded, CacheKind::Memory);
    unused
}

/// A running demo: its client, its tokens, and when the process started.
struct Demo<'a> {
    config: &'a Config,
    file: Option<&'a Path>,
    /// Whether other commands sign tokens with the same secret.
    commands_can_mint: bool,
    client: AdminClient,
    base: String,
    user_token: String,
    admin_token: String,
    started: Instant,
}

/// A state that the demo waits for, and a hint for the case that it is not reached.
struct AwaitedState {
    description: String,
    hint: String,
}

impl<'a> Demo<'a> {
    fn new(
        config: &'a Config,
        file: Option<&'a Path>,
        commands_can_mint: bool,
        service: &Service,
        started: Instant,
    ) -> Result<Self, Failure> {
        let base = format!("http://{}", service.addr());
        let token = |sub: &str, role: &str| {
            let claims = CallerClaims { sub: sub.to_owned(), roles: vec![role.to_owned()], tier: None, ttl: TOKEN_TTL };
            mint(config, DEVELOPMENT_SECRET, &claims)
        };
        let (user_token, admin_token) = (token("demo", "USER")?, token("operator", "ADMIN")?);
        Ok(Self {
            config,
            file,
            commands_can_mint,
            client: AdminClient::new(&base),
            base,
            user_token,
            admin_token,
            started,
        })
    }

    async fn show(&self, service: &Service, arguments: &Arguments) -> Result<(), Failure> {
        let path = &self.config.store.path;
        let folder = path.canonicalize().unwrap_or_else(|_| path.clone());
        let (base, elapsed) = (&self.base, self.started.elapsed().as_millis());
        print_line(&format!("posthaste runs at {base} after {elapsed} ms,\nembedded in {}", folder.display()))?;
        for number in 1..=arguments.orders {
            self.place_order(number).await?;
        }
        self.kill_actor(service).await?;
        // The next steps need the service, which ends with --once.
        if arguments.once { Ok(()) } else { self.print_next_steps() }
    }

    /// Places one order and follows its event from the outbox to the consumer.
    async fn place_order(&self, number: u32) -> Result<(), Failure> {
        let body = format!(r#"{{"items":[{{"productName":"Tea no. {number}","quantity":{number},"price":"2.50"}}]}}"#);
        let sent = Instant::now();
        let order = self.client.send("POST", "/orders", &self.user_token, Some(body)).await?.success()?;
        let response_time = sent.elapsed();
        let id = order["id"].as_str().unwrap_or_default();
        print_line(&format!("\norder {number}: {id}"))?;
        print_step(response_time, "HTTP → OrderAggregate → order and event in one transaction → 201")?;
        let settled = AwaitedState {
            description: format!("the event of order {id} was sent"),
            hint: format!("posthaste outbox why --key {id}, and whether outbox.enabled is false"),
        };
        let path = format!("/admin/outbox/why?key={id}");
        let why = self.poll(&path, &settled, |why| why["verdict"] == "SENT").await?;
        let position = format!("{} {}/{}", why["topic"].as_str().unwrap_or("?"), why["partition"], why["offset"]);
        let text = format!("OutboxPublisher → PartitionWorker → {position}, then settled");
        print_step(sent.elapsed(), &text)?;
        let consumed = AwaitedState {
            description: format!("the event of order {id} was consumed"),
            hint: "posthaste dlt list, and whether consumer.count is 0".to_owned(),
        };
        let all = |metric: &Value| metric["measurements"][0]["value"].as_f64().unwrap_or(0.0) >= f64::from(number);
        self.poll("/actuator/metrics/kafka.consumer.processed.count", &consumed, all).await?;
        print_step(sent.elapsed(), "ConsumerActor → processed_events")?;
        if number == 1 {
            let elapsed = ms(self.started.elapsed());
            print_line(&format!("  (the first event was delivered {elapsed} after the start)"))?;
        }
        Ok(())
    }

    /// Repeats an admin request until its response satisfies the condition.
    async fn poll(
        &self,
        path: &str,
        awaited: &AwaitedState,
        condition: impl Fn(&Value) -> bool,
    ) -> Result<Value, Failure> {
        let started = Instant::now();
        loop {
            let response = self.client.send("GET", path, &self.admin_token, None).await?;
            if condition(&response.body) {
                return Ok(response.body);
            }
            if started.elapsed() > STEP_TIMEOUT {
                let AwaitedState { description, hint } = awaited;
                let refused = response.success().err().map(|failure| format!(" ({})", failure.message));
                return Err(Failure::new(format!(
                    "the demo gave up after {} s: it waited until {description}{}; look at: {hint}",
                    STEP_TIMEOUT.as_secs(),
                    refused.unwrap_or_default()
                )));
            }
            // The pause grows with the wait: a fast step is timed exactly, and a slow one stays within the rate limit.
            tokio::time::sleep((started.elapsed() / 4).max(POLL_MIN)).await;
        }
    }

    /// Makes a PartitionWorker panic and waits until its supervisor has restarted it.
    async fn kill_actor(&self, service: &Service) -> Result<(), Failure> {
        let path = worker_to_kill(self.config);
        print_line(&format!(
            "\nNow {path} panics, on purpose. Two log lines (WARN and\nERROR) report it, and its supervisor restarts it:"
        ))?;
        let started = Instant::now();
        let injected: Result<(), InjectError> = service.actors().dispatch().inject(&path, InjectedFault::Panic, "demo");
        injected.map_err(Failure::new)?;
        let restarted = |tree: &Value| {
            let mut actors = tree["actors"].as_array().into_iter().flatten();
            actors
                .any(|actor| actor["path"] == path.as_str() && actor["generation"] == 2 && actor["state"] == "running")
        };
        let awaited =
            AwaitedState { description: format!("{path} runs again"), hint: "posthaste actors tree".to_owned() };
        self.poll("/admin/actors", &awaited, restarted).await?;
        let elapsed = ms(started.elapsed());
        print_line(&format!("  {elapsed:>9}  it runs again, and took over where it had stopped"))
    }

    fn print_next_steps(&self) -> Result<(), Failure> {
        let program = std::env::current_exe().map_err(Failure::new)?;
        let folder = std::env::current_dir().map_err(Failure::new)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let steps = NextSteps {
            program: shell_name(&program, &folder, &path),
            config: self.file.map(|file| format!("--config {}", shell_quoted(&file.display().to_string()))),
            base: self.base.clone(),
            is_default_address: self.base == format!("http://{}", Config::defaults().http.listen),
            topic: self.config.topic(),
            actor: worker_to_kill(self.config),
            user_token: (!self.commands_can_mint).then(|| self.user_token.clone()),
            admin_token: self.admin_token.clone(),
            process: std::process::id(),
        };
        print_line(&steps.text())
    }
}

/// The PartitionWorker that the demo kills; a configuration may have fewer than eight.
fn worker_to_kill(config: &Config) -> String {
    format!("/relay/partition-worker-{}", config.outbox.partitions.saturating_sub(1).min(7))
}

fn print_step(elapsed: Duration, text: &str) -> Result<(), Failure> {
    print_line(&format!("  {:>9}  {text}", ms(elapsed)))
}

fn ms(elapsed: Duration) -> String {
    format!("{:.1} ms", elapsed.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_uses_no_shared_service() {
        let mut config = Config::defaults();
        (config.store.kind, config.broker.kind, config.cache.kind) =
            (StoreKind::Redis, BrokerKind::Kafka, CacheKind::Redis);

        assert_eq!(make_embedded(&mut config), ["store.kind = redis", "broker.kind = kafka", "cache.kind = redis"]);

        let kinds = (config.store.kind, config.broker.kind, config.cache.kind);
        assert_eq!(kinds, (StoreKind::Embedded, BrokerKind::Embedded, CacheKind::Memory));
        assert_eq!(make_embedded(&mut config), Vec::<&str>::new());
    }
}
