//! The console of the real service, as a browser meets it: forms, a cookie, pages, the stream.
use std::io::{BufRead, BufReader};
use std::time::Duration;

use kit::wait::until;
use serde_json::json;

use crate::ground::Ground;
use crate::http::tea;
use crate::process::Posthaste;

const SOON: Duration = Duration::from_secs(10);

/// A browser that is logged in; it is led nowhere by itself.
struct Browser {
    agent: ureq::Agent,
    base: String,
    cookie: String,
    mark: String,
}

struct Shown {
    status: u16,
    location: String,
    cookie: String,
    text: String,
}

impl Browser {
    fn log_in(service: &Posthaste) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build();
        let base = service.http.base().to_owned();
        let mut browser = Self { agent: config.into(), base, cookie: String::new(), mark: String::new() };
        let door = browser.get("/console/actors");
        assert_eq!((door.status, &*door.location), (303, "/console/login?next=/console/actors"));
        let entered = browser.send(&door.location, &[("token", &service.http.admin())]);
        assert_eq!((entered.status, &*entered.location), (303, "/console/actors"), "{}", entered.text);
        browser.cookie = entered.cookie.split(';').next().expect("a cookie").to_owned();
        let page = browser.get("/console").text;
        let mark = page.split("name=\"mark\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        browser.mark = mark.expect("a mark").to_owned();
        browser
    }

    fn ask(&self, path: &str) -> ureq::http::request::Builder {
        ureq::http::Request::builder().uri(format!("{}{path}", self.base)).header("Cookie", &self.cookie)
    }

    fn get(&self, path: &str) -> Shown {
        shown(self.agent.run(self.ask(path).body(()).expect("a legal request")).expect("an answer"))
    }

    fn send(&self, path: &str, fields: &[(&str, &str)]) -> Shown {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let mark = [("mark", &*self.mark)];
        let pairs = fields.iter().chain(&mark).map(|(name, value)| format!("{name}={}", encoded(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let request = self.ask(path).method("POST").header("Content-Type", "application/x-www-form-urlencoded");
        shown(self.agent.run(request.body(body).expect("a legal request")).expect("an answer"))
    }

    /// Sends a form and follows it to the page with its note.
    fn act(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.send(path, fields);
        assert_eq!(answer.status, 303, "{path}: {}", answer.text);
        let page = self.get(&answer.location);
        assert_eq!(page.status, 200, "{}", page.text);
        page.text
    }

    /// The stream behind an event, line by line.
    fn stream(&self, after: &str) -> impl Iterator<Item = String> + use<> {
        let request = self.ask("/console/events/stream").header("Last-Event-ID", after);
        let answer = self.agent.run(request.body(()).expect("a legal request")).expect("an answer");
        assert_eq!(answer.status(), 200);
        BufReader::new(answer.into_body().into_reader()).lines().map(|line| line.expect("the stream goes on"))
    }

    /// The row of an actor on its page.
    fn actor(&self, path: &str) -> String {
        let page = self.get("/console/actors").text;
        let row = page.split("<tr>").find(|row| row.contains(&format!(">{path}</th>")));
        row.unwrap_or_else(|| panic!("{path} is not in {page}")).to_owned()
    }
}

fn shown(mut answer: ureq::http::Response<ureq::Body>) -> Shown {
    let header = |name: &str| answer.headers().get(name).map_or("", |value| value.to_str().expect("text")).to_owned();
    let (location, cookie) = (header("location"), header("set-cookie"));
    let text = answer.body_mut().read_to_string().expect("text");
    Shown { status: answer.status().as_u16(), location, cookie, text }
}

/// Reads on to an event of this name and child, and tells its id.
fn id_of(lines: &mut impl Iterator<Item = String>, event: &str, child: &str) -> String {
    let (mut id, mut name) = (String::new(), String::new());
    let child = format!("\"child\":\"{child}\"");
    for line in lines {
        match line.split_once(": ") {
            Some(("id", told)) => id = told.to_owned(),
            Some(("event", told)) => name = told.to_owned(),
            Some(("data", told)) if name == event && told.contains(&child) => return id,
            _ => {}
        }
    }
    panic!("the stream ended before {event}");
}

#[test]
fn an_actor_is_killed_on_the_page_and_its_return_is_seen_there_and_on_the_stream() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    let browser = Browser::log_in(&service);
    let worker = "/relay/partition-worker-7";
    until("the worker runs", SOON, || browser.actor(worker).contains("running").then_some(()));
    let mut live = browser.stream("0");

    let page = browser.act("/console/actors/fault", &[("path", worker), ("action", "panic")]);

    assert!(page.contains(&format!("{worker} was told: panic.")), "{page}");
    let generation = |row: String| row.split("<td class=\"number\">").nth(1).is_some_and(|cell| cell.starts_with("2<"));
    until("the second generation runs", SOON, || {
        let row = browser.actor(worker);
        (row.contains("running") && generation(row)).then_some(())
    });
    let died = id_of(&mut live, "child_exited", worker);
    let back = id_of(&mut live, "child_restarted", worker);
    drop(live);
    let behind = id_of(&mut browser.stream(&died), "child_restarted", worker);
    assert_eq!(behind, back, "a reader that comes back misses nothing");
    assert!(browser.get("/console/events?event=child_restarted").text.contains(worker));
    let log = until("the log tells who did it", SOON, || {
        service.logged("operator_action").into_iter().find(|line| line["action"] == "panic")
    });
    assert_eq!((&log["by"], &log["on"]), (&json!("root"), &json!(worker)));
}

#[test]
fn a_row_is_parked_and_redriven_from_the_console_and_then_leaves() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    let browser = Browser::log_in(&service);
    service.http.post("/orders", &service.http.user(), &[], &tea(1));
    service.drain();
    // While the publisher handles nothing, nothing leaves, and a row can be parked.
    let publisher = "/relay/outbox-publisher";
    browser.act("/console/actors/fault", &[("path", publisher), ("action", "pause")]);
    until("the publisher is paused", SOON, || browser.actor(publisher).contains("paused").then_some(()));
    // A run that the publisher requested before its pause may still claim the next row.
    until("no run is left", SOON, || {
        let tree = service.http.get("/admin/actors", Some(&service.http.admin())).json();
        let actors = tree["actors"].as_array().expect("actors");
        let workers = actors.iter().filter(|actor| actor["actor"] == "PartitionWorker");
        workers.map(|worker| worker["mailboxDepth"].as_u64()).all(|depth| depth == Some(0)).then_some(())
    });
    let order = service.http.post("/orders", &service.http.user(), &[], &tea(2)).json();
    let key = order["id"].as_str().expect("an id");
    let rows = browser.get(&format!("/console/outbox?key={key}")).text;
    let row = rows.split("href=\"/console/outbox/").nth(1).and_then(|rest| rest.split('"').next()).expect("a row");
    let row = format!("/console/outbox/{row}");

    let page = browser.act(&format!("{row}/park"), &[("reason", "look at it first")]);
    assert!(page.contains("■</span> PARKED"), "{page}");
    browser.act("/console/actors/fault", &[("path", publisher), ("action", "resume")]);
    until("the overview tells of it", SOON, || browser.get("/console").text.contains("PARKED: 1 now").then_some(()));
    let counted = browser.get(&format!("/console/outbox/redrive?key={key}")).text;
    assert!(counted.contains("<strong>1</strong> parked rows match"), "{counted}");
    assert!(browser.get(&row).text.contains("PARKED"), "counting changes nothing");
    let done = browser.act("/console/outbox/redrive", &[("key", key), ("matched", "1"), ("reason", "looked at")]);
    assert!(done.contains("1 parked rows are due now."), "{done}");

    until("it has left", SOON, || browser.get(&row).text.contains("●</span> SENT").then_some(()));
    assert!(ground.events().iter().any(|event| event["key"] == key), "and stands in the topic");
    let told = until("the log tells both", SOON, || {
        let told = service.logged("operator_action");
        let reasons = ["look at it first", "looked at"];
        reasons.iter().all(|reason| told.iter().any(|line| line["reason"] == *reason)).then_some(told)
    });
    assert!(told.iter().all(|line| line["by"] == "root"), "{told:?}");
}
