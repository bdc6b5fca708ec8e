//! Load that records acknowledged orders, so that a test can compare them with the event log.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::harness::http::{Http, tea_order};

/// Acknowledged orders, each with the number of its acknowledged changes.
pub type Acknowledged = BTreeMap<String, u64>;

/// Requests that the service refused, of every load in this test process: they have no event in any log. Orders are named by their first
/// product, which is unique, changes by the id of their order.
#[derive(Default)]
pub struct Refused {
    pub orders: BTreeSet<String>,
    pub changes: BTreeSet<String>,
}

pub static REFUSED: Mutex<Refused> = Mutex::new(Refused { orders: BTreeSet::new(), changes: BTreeSet::new() });

/// Running clients, each on its own thread.
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients that create orders and change every second one until [`Load::finish`]. Refused requests and lost responses are
    /// expected; only acknowledged changes are recorded.
    pub fn start(http: &Http, clients: usize) -> Self {
        Self::start_with(http, clients, |round| tea_order(1 + round % 9))
    }

    /// Starts clients as [`Load::start`] does; `order` is the body of the order in each round.
    pub fn start_with(http: &Http, clients: usize, order: fn(u32) -> Value) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged: Arc<Mutex<Acknowledged>> = Arc::default();
        let clients = (0..clients)
            .map(|number| {
                let (http, stop, acknowledged) = (http.clone(), Arc::clone(&stop), Arc::clone(&acknowledged));
                std::thread::spawn(move || client(&http, number, order, &stop, &acknowledged))
            })
            .collect();
        Self { stop, acknowledged, clients }
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.lock().expect("not poisoned").len()
    }

    /// Stops the clients and returns the acknowledged orders.
    pub fn finish(self) -> Acknowledged {
        self.stop.store(true, SeqCst);
        for client in self.clients {
            client.join().expect("a client did not panic");
        }
        self.acknowledged.lock().expect("not poisoned").clone()
    }
}

fn client(http: &Http, number: usize, order: fn(u32) -> Value, stop: &AtomicBool, acknowledged: &Mutex<Acknowledged>) {
    let (user, admin) = (http.token(&format!("client-{number}"), "USER"), http.admin());
    let (mut round, label) = (0, rand::random::<u64>());
    while !stop.load(SeqCst) {
        round += 1;
        let (mut body, product) = (order(round), format!("Tea {label:016x}/{round}"));
        body["items"][0]["productName"] = json!(product);
        let body = body.to_string();
        let Ok(created) = http.send_once("POST", "/orders", Some(&user), &[], Some(body)) else { continue };
        match created.status {
            201 => {}
            // The outcome is unknown.
            500 => continue,
            // 408: this machine delayed the client for longer than `http.header_timeout`.
            408 | 503 => {
                REFUSED.lock().expect("not poisoned").orders.insert(product);
                continue;
            }
            _ => panic!("{created:?}"),
        }
        let id = created.json()["id"].as_str().expect("an id").to_owned();
        acknowledged.lock().expect("not poisoned").insert(id.clone(), 1);
        if round % 2 == 0 {
            let body = json!({"status": "PROCESSING", "version": 0}).to_string();
            let changed = http.send_once("PATCH", &format!("/orders/{id}/status"), Some(&admin), &[], Some(body));
            match changed.map(|response| response.status) {
                Ok(200) => drop(acknowledged.lock().expect("not poisoned").insert(id, 2)),
                Ok(408 | 503) => drop(REFUSED.lock().expect("not poisoned").changes.insert(id)),
                Ok(_) | Err(_) => {}
            }
        }
    }
}
