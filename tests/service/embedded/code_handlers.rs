//! A program that starts the service with handlers of its own.
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use async_trait::async_trait;
use domain::EventType;
use kit::wait::scaled;
use ports::inbox::Effect;
use posthaste::{Config, ConsumedEvent, Environment, EventHandler, HandlerChain, HandlerFault};

use crate::harness::backend::Backend;
use crate::harness::http::{Http, SECRET, tea_order};
use crate::harness::process::setting;

const WAIT_MAX: Duration = Duration::from_secs(20);

/// Passes the id of each order on.
struct SendToChannel(Sender<String>);

#[async_trait]
impl EventHandler for SendToChannel {
    fn needs_order(&self) -> bool {
        false
    }

    async fn handle(&self, consumed: ConsumedEvent<'_>) -> Result<Vec<Effect>, HandlerFault> {
        self.0.send(consumed.event.order_id.to_string()).expect("the test waits");
        Ok(Vec::new())
    }
}

fn config(backend: &Backend) -> Config {
    let mut variables = Environment::default();
    variables.0.extend(backend.settings().into_iter().map(|(name, value)| (name.to_owned(), value)));
    let request_max = setting(Duration::from_secs(10));
    let settings = [
        ("HTTP__LISTEN", "127.0.0.1:0"),
        ("AUTH__HS256_SECRET", SECRET),
        ("HTTP__REQUEST_TIMEOUT", request_max.as_str()),
    ];
    for (name, value) in settings {
        variables.0.insert(format!("POSTHASTE__{name}"), value.to_owned());
    }
    Config::load(None, &variables).expect("no mistakes")
}

#[test]
fn handler_from_code_receives_the_events_of_its_type() {
    let backend = Backend::new();
    let config = config(&backend);
    let ((seen, orders), (ready, address)) = (channel(), channel());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let service = std::thread::spawn(move || {
        actix_rt::System::new().block_on(async move {
            let chain = HandlerChain::new(Arc::new(SendToChannel(seen)));
            let registered = posthaste::start_with(config, |handlers| handlers.with(EventType::OrderCreated, chain));
            let service = registered.await.expect("it starts");
            ready.send(service.addr()).expect("the test waits");
            // The test ends it, also by a panic.
            let _ = stopped.await;
            service.stop().await
        })
    });
    let http = Http::new(&address.recv_timeout(scaled(WAIT_MAX)).expect("it listens").to_string());

    let created = http.post("/orders", &http.user(), &[], &tea_order(1));

    assert_eq!(created.status, 201, "{}", created.text);
    let order = orders.recv_timeout(scaled(WAIT_MAX)).expect("the handler is called");
    assert_eq!(created.json()["id"], order);
    stop.send(()).expect("it runs");
    assert!(service.join().expect("it stops").unfinished_actors.is_empty());
}
