//! Load that remembers what it was answered, so that the log can be held against it.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::json;

use crate::http::{Http, tea};

/// Answered orders, each with the number of its answered changes.
pub type Answered = BTreeMap<String, u64>;

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<Mutex<Answered>>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// So many clients: each places orders, and moves every other one on, until told to stop. Refusals and lost answers are part of
    /// the game; only what was answered is remembered.
    pub fn start(http: &Http, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered: Arc<Mutex<Answered>> = Arc::default();
        let clients = (0..clients)
            .map(|number| {
                let (http, stop, answered) = (http.clone(), Arc::clone(&stop), Arc::clone(&answered));
                std::thread::spawn(move || client(&http, number, &stop, &answered))
            })
            .collect();
        Self { stop, answered, clients }
    }

    pub fn answered(&self) -> usize {
        self.answered.lock().expect("not poisoned").len()
    }

    /// Stops and tells what was answered.
    pub fn finish(self) -> Answered {
        self.stop.store(true, SeqCst);
        for client in self.clients {
            client.join().expect("a client did not panic");
        }
        self.answered.lock().expect("not poisoned").clone()
    }
}

fn client(http: &Http, number: usize, stop: &AtomicBool, answered: &Mutex<Answered>) {
    let (user, admin) = (http.token(&format!("client-{number}"), "USER"), http.admin());
    let mut turn = 0;
    while !stop.load(SeqCst) {
        turn += 1;
        let body = tea(1 + turn % 9).to_string();
        let Ok(created) = http.try_send("POST", "/orders", Some(&user), &[], Some(body)) else { continue };
        assert!([201, 500, 503].contains(&created.status), "{created:?}");
        if created.status != 201 {
            continue;
        }
        let id = created.json()["id"].as_str().expect("an id").to_owned();
        answered.lock().expect("not poisoned").insert(id.clone(), 1);
        if turn % 2 == 0 {
            let body = json!({"status": "PROCESSING", "version": 0}).to_string();
            let changed = http.try_send("PATCH", &format!("/orders/{id}/status"), Some(&admin), &[], Some(body));
            if changed.is_ok_and(|answer| answer.status == 200) {
                answered.lock().expect("not poisoned").insert(id, 2);
            }
        }
    }
}
