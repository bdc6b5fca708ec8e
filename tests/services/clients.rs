//! Clients who will know: each places orders and moves them on, at whichever instance, and asks again until it knows what became of it,
//! but for some that walk away from an unknown outcome.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::Status;
use kit::clock::SeededRng;
use ports::clock::Rng;
use serde_json::{Value, json};

use crate::book::{Line, Shown};
use crate::chaos::pass;
use crate::http::Http;

/// Before a client asks again.
const PAUSE: Duration = Duration::from_millis(40);
/// Longest that a client asks for the same thing: everything is back long before.
const PATIENCE: Duration = Duration::from_secs(180);

/// Clients at work.
pub struct Clients {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<Line>>>,
}

impl Clients {
    /// So many of them at these doors.
    pub fn start(doors: &[Http], number: usize, seed: u64) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |number| Client {
            doors: doors.to_vec(),
            dice: SeededRng::new(seed.wrapping_add(number as u64)),
            name: name(number),
            lines: Vec::new(),
            answered: Arc::clone(&answered),
        };
        let work = |mut client: Client| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(SeqCst) {
                    client.place();
                }
                client.lines
            })
        };
        let threads = (0..number).map(client).map(work).collect();
        Self { stop, answered, threads }
    }

    /// Creates and changes that were answered so far.
    pub fn answered(&self) -> usize {
        self.answered.load(SeqCst)
    }

    /// Lets everyone finish what they began.
    pub fn finish(self) -> Vec<Line> {
        self.stop.store(true, SeqCst);
        self.threads
            .into_iter()
            .flat_map(|client| client.join().expect("a client was told what it must not be"))
            .collect()
    }
}

/// The subject of a client.
pub fn name(number: usize) -> String {
    format!("client-{number}")
}

struct Client {
    doors: Vec<Http>,
    dice: SeededRng,
    name: String,
    lines: Vec<Line>,
    answered: Arc<AtomicUsize>,
}

/// What a client was told.
enum Told {
    Done(Value),
    /// Nothing was changed, says the contract.
    Refused,
    /// 409: another state than the one that was meant.
    Conflict,
    /// It may have happened.
    Nothing,
}

impl Client {
    fn one_in(&self, many: u64) -> bool {
        self.dice.next_u64().is_multiple_of(many)
    }

    /// Asks at any door.
    fn ask(&self, method: &str, path: &str, as_admin: bool, headers: &[(&str, &str)], body: &Value) -> Told {
        let door = &self.doors[(self.dice.next_u64() % self.doors.len() as u64) as usize];
        let token = if as_admin { door.admin() } else { door.token(&self.name, "USER") };
        let told = match door.try_send(method, path, Some(&token), headers, Some(body.to_string())) {
            Ok(answer) => match answer.status {
                200 | 201 => Told::Done(answer.json()),
                // A client that this machine held up for longer than `http.header_timeout` is told 408.
                408 | 503 => Told::Refused,
                409 => Told::Conflict,
                500 => Told::Nothing,
                _ => panic!("{} was told {answer:?} for {method} {path}", self.name),
            },
            Err(_) => Told::Nothing,
        };
        match &told {
            Told::Done(order) => self.done(door, &token, order),
            _ => pass(PAUSE),
        }
        told
    }

    /// Whoever answered a change shows it at once.
    fn done(&self, door: &Http, token: &str, order: &Value) {
        self.answered.fetch_add(1, SeqCst);
        if !self.one_in(8) {
            return;
        }
        let path = format!("/orders/{}", order["id"].as_str().expect("an id"));
        if let Ok(answer) = door.try_send("GET", &path, Some(token), &[], None)
            && answer.status < 500
        {
            assert_eq!(answer.status, 200, "an answered order is not there: {}", answer.text);
            assert_eq!(Shown::of(&answer.json()), Shown::of(order), "whoever answered a change shows another state");
        }
    }

    /// Places an order and moves it on for a while.
    fn place(&mut self) {
        let label = format!("{}-{}", self.name, self.lines.len());
        let keyed = !self.one_in(4);
        let line = if keyed { self.create_until_told(&label) } else { self.create_once(&label) };
        let line = if line.id.is_some() { self.move_on(line) } else { line };
        self.lines.push(line);
    }

    fn create_until_told(&self, label: &str) -> Line {
        let begun = Instant::now();
        loop {
            // Told of a conflict, an earlier try of ours still runs.
            if let Told::Done(order) = self.ask("POST", "/orders", false, &[("Idempotency-Key", label)], &draft(label))
            {
                return created(label, &order);
            }
            assert!(begun.elapsed() < PATIENCE, "{label} was not placed within {PATIENCE:?}");
        }
    }

    fn create_once(&self, label: &str) -> Line {
        let nowhere = Line { label: label.to_owned(), ..Line::default() };
        match self.ask("POST", "/orders", false, &[], &draft(label)) {
            Told::Done(order) => created(label, &order),
            Told::Refused => nowhere,
            Told::Nothing => Line { open: Some(Status::Pending), ..nowhere },
            Told::Conflict => panic!("{label}: a create without a key cannot conflict"),
        }
    }

    fn move_on(&self, mut line: Line) -> Line {
        while line.open.is_none() && !self.one_in(3) {
            let now = line.told.last().expect("it was placed");
            let next = now.successors();
            if next.is_empty() {
                return line;
            }
            let to = next[(self.dice.next_u64() % next.len() as u64) as usize];
            self.change(&mut line, to);
        }
        line
    }

    /// Asks until it is known to have happened, or walks away.
    fn change(&self, line: &mut Line, to: Status) {
        let (begun, walks_away) = (Instant::now(), self.one_in(6));
        let (id, version) = (line.id.as_ref().expect("it was placed"), line.told.len() as u64 - 1);
        let by_status = (format!("/orders/{id}/status"), json!({"status": to.as_str(), "version": version}));
        let cancels = to == Status::Cancelled && self.one_in(2);
        let (path, body) = if cancels { (format!("/orders/{id}/cancel"), json!({})) } else { by_status };
        let mut unknown = false;
        loop {
            match self.ask("PATCH", &path, !cancels, &[], &body) {
                Told::Done(order) => {
                    let shown = Shown::of(&order);
                    assert_eq!(
                        (shown.status, shown.version),
                        (to, version + 1),
                        "{} was answered otherwise",
                        line.label
                    );
                    return line.told.push(to);
                }
                Told::Conflict => {
                    assert!(unknown, "{}: nobody else moves it, yet {path} {body} conflicts", line.label);
                    return line.told.push(to);
                }
                Told::Nothing if walks_away => return line.open = Some(to),
                Told::Refused if walks_away && !unknown => return,
                Told::Nothing => unknown = true,
                Told::Refused => {}
            }
            assert!(begun.elapsed() < PATIENCE, "{}: {path} was not answered within {PATIENCE:?}", line.label);
        }
    }
}

fn draft(label: &str) -> Value {
    json!({"items": [{"productName": label, "quantity": 1, "price": "2.50"}]})
}

fn created(label: &str, order: &Value) -> Line {
    let id = order["id"].as_str().expect("an id").to_owned();
    // A repeated create shows the order as it is now: nobody has moved it yet.
    let shown = Shown::of(order);
    assert_eq!((shown.label.as_str(), shown.status, shown.version), (label, Status::Pending, 0));
    Line { label: label.to_owned(), id: Some(id), told: vec![Status::Pending], open: None }
}
