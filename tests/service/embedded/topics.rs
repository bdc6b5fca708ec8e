//! Reading topics over HTTP without Kafka: groups, crashes, waits, streams and bad requests.
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kit::wait::{scaled, until};
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::external_events::publish;
use crate::harness::http::{Http, Response, tea_order};
use crate::harness::metrics::{await_metric, metric};
use crate::harness::ports::free_port;
use crate::harness::process::{Posthaste, run};

const RECORDS: &str = "/topics/order.events/records";
const OFFSETS: &str = "/groups/billing/topics/order.events/offsets";

/// The lines of a response: its records, and the last cursor.
struct Page {
    records: Vec<Value>,
    cursor: String,
}

impl Page {
    fn of(response: &Response) -> Self {
        assert_eq!(response.status, 200, "{}", response.text);
        let lines = response.text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let (records, cursors): (Vec<Value>, Vec<Value>) = lines.partition(|line: &Value| line["offset"].is_u64());
        let cursor = cursors.last().expect("a complete response ends with a cursor")["cursor"].as_str().expect("text");
        Self { records, cursor: cursor.to_owned() }
    }

    fn positions(&self) -> Vec<(u64, u64)> {
        let number = |record: &Value, name: &str| record[name].as_u64().expect("a number");
        self.records.iter().map(|record| (number(record, "partition"), number(record, "offset"))).collect()
    }
}

fn consumer(http: &Http) -> String {
    http.token("reader", "CONSUMER")
}

fn read(http: &Http, query: &str) -> Page {
    Page::of(&http.get(&format!("{RECORDS}{query}"), Some(&consumer(http))))
}

fn commit(http: &Http, body: &Value) -> Value {
    let response = http.post(OFFSETS, &consumer(http), &[], body);
    assert_eq!(response.status, 200, "{}", response.text);
    response.json()
}

/// Places orders and waits until their events are in the topic; returns the orders' ids.
fn place_orders(service: &Posthaste, count: u32) -> Vec<String> {
    let place_order = |_| {
        let created = service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
        assert_eq!(created.status, 201, "{}", created.text);
        created.json()["id"].as_str().expect("text").to_owned()
    };
    let ids = (0..count).map(place_order).collect();
    service.drain();
    ids
}

#[test]
fn a_reader_resumes_after_kill_9_and_repeats_only_uncommitted_records() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let ids = place_orders(&service, 12);
    let first = read(&service.http, "?group=billing&limit=5");
    commit(&service.http, &json!({"cursor": first.cursor}));
    let uncommitted = read(&service.http, &format!("?group=billing&limit=3&after={}", first.cursor));
    service.kill();

    let service = Posthaste::start(&backend, &[]);
    let resumed = read(&service.http, "?group=billing");

    let repeated = resumed.positions();
    assert!(uncommitted.positions().iter().all(|position| repeated.contains(position)), "{repeated:?}");
    assert!(first.positions().iter().all(|position| !repeated.contains(position)), "{repeated:?}");
    let mut keys: Vec<&str> =
        first.records.iter().chain(&resumed.records).map(|record| record["key"].as_str().expect("text")).collect();
    keys.sort_unstable();
    let mut expected: Vec<&str> = ids.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(keys, expected, "each event once: what was committed, and then everything else");
}

#[test]
fn topic_tail_starts_where_a_group_continues_and_acknowledges_nothing() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    place_orders(&service, 5);
    let first = read(&service.http, "?group=billing&limit=2");
    commit(&service.http, &json!({"cursor": first.cursor}));
    let tail = |group: &str| {
        let arguments = ["topic", "tail", "order.events", "--group", group, "--json"];
        let (code, stdout, stderr) = run(&backend, &arguments);
        assert_eq!(code, 0, "{stderr}");
        stdout.lines().count()
    };

    let counts = [tail("billing"), tail("billing"), tail("a-new-group")];

    assert_eq!(counts, [3, 3, 5]);
}

#[test]
fn records_of_a_key_come_in_order_and_as_topic_tail_prints_them() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    for id in place_orders(&service, 3) {
        for (version, status) in ["PROCESSING", "SHIPPED", "DELIVERED"].into_iter().enumerate() {
            let body = json!({"status": status, "version": version});
            let changed = service.http.patch(&format!("/orders/{id}/status"), &service.http.admin(), &[], &body);
            assert_eq!(changed.status, 200, "{}", changed.text);
        }
    }
    service.drain();

    let (mut cursor, mut records) = ("beginning".to_owned(), Vec::new());
    loop {
        let page = read(&service.http, &format!("?limit=2&after={cursor}"));
        cursor = page.cursor;
        if page.records.is_empty() {
            break;
        }
        records.extend(page.records);
    }

    let mut sequences: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for record in &records {
        let sequence = record["headers"]["x-sequence"].as_str().expect("text");
        sequences.entry(record["key"].as_str().expect("text")).or_default().push(sequence);
    }
    assert_eq!(sequences.len(), 3);
    assert!(sequences.values().all(|sequence| sequence == &["1", "2", "3", "4"]), "{sequences:?}");
    let mut printed = backend.events();
    let position = |record: &Value| (record["partition"].as_u64(), record["offset"].as_u64());
    printed.sort_by_key(position);
    records.sort_by_key(position);
    assert_eq!(records, printed);
}

#[test]
fn a_waiting_read_wakes_at_a_new_event_and_is_counted() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    place_orders(&service, 1);
    let (http, served) = (service.http.clone(), metric(&service.http, "topic_records_served_total"));
    let waiting = std::thread::spawn(move || (read(&http, "?after=end&wait=30s"), Instant::now()));
    await_metric(&service.http, "topic_readers", Duration::from_secs(10), |readers| readers == 1.0);

    let created = Instant::now();
    let id = service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json()["id"].clone();
    let (page, woken) = waiting.join().expect("the read succeeds");

    assert!(woken - created < scaled(Duration::from_secs(5)), "{:?}", woken - created);
    assert_eq!((page.records.len(), &page.records[0]["key"]), (1, &id));
    let expect = |name, value| await_metric(&service.http, name, Duration::from_secs(10), |found| found == value);
    expect("topic_records_served_total{topic=\"order.events\"}", served + 1.0);
    expect("topic_readers", 0.0);
}

#[test]
fn two_readers_of_a_group_get_the_same_records_unless_they_divide_the_partitions() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    place_orders(&service, 20);
    let http = &service.http;

    let (one, two) = (read(http, "?group=billing&limit=8"), read(http, "?group=billing"));
    assert_eq!((one.records.len(), two.records.len()), (8, 20));
    assert!(one.positions().iter().all(|position| two.positions().contains(position)));
    commit(http, &json!({"cursor": two.cursor}));
    let late = commit(http, &json!({"cursor": one.cursor}));
    assert_eq!(late["cursor"], two.cursor.as_str(), "the late commit of the other reader changes nothing");
    assert_eq!(read(http, "?group=billing").records.len(), 0);
    let back = commit(http, &json!({"cursor": one.cursor, "reset": true}));
    assert_eq!(back["cursor"], one.cursor.as_str());
    until("the reset is logged", Duration::from_secs(20), || service.logged("group_offsets_reset").pop());
    assert_eq!(read(http, "?group=billing").records.len(), 12);
    commit(http, &json!({"cursor": "end"}));
    until("the jump to the end is logged", Duration::from_secs(20), || {
        (service.logged("group_offsets_reset").len() == 2).then_some(())
    });

    let even = read(http, "?group=shared&partitions=0,2,4,6,8,10");
    let odd = read(http, "?group=shared&partitions=1,3,5,7,9,11");
    assert_eq!(even.records.len() + odd.records.len(), 20);
    assert!(even.positions().iter().all(|(partition, _)| partition % 2 == 0));
}

#[test]
fn an_event_stream_resumes_at_the_id_of_its_last_event() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    place_orders(&service, 3);
    let stream = |limit: u32, resume: Option<&str>| {
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(resume.map(|id| ("Last-Event-ID", id)));
        let path = format!("{RECORDS}?limit={limit}");
        let response = service.http.send_once("GET", &path, Some(&consumer(&service.http)), &headers, None);
        let response = response.expect("a response");
        assert_eq!(response.header("content-type"), Some("text/event-stream"));
        let values = |name: &str| -> Vec<String> {
            response.text.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
        };
        (values("data: "), values("id: ").pop().expect("an id"))
    };

    let (first, id) = stream(2, None);
    let (rest, _) = stream(1, Some(&id));

    let mut records: Vec<Value> =
        first.iter().chain(&rest).map(|data| serde_json::from_str(data).expect("JSON")).collect();
    let mut printed = backend.events();
    let position = |record: &Value| (record["partition"].as_u64(), record["offset"].as_u64());
    records.sort_by_key(position);
    printed.sort_by_key(position);
    assert_eq!(records, printed);
}

#[test]
fn a_stop_ends_waiting_reads_with_a_complete_response() {
    let backend = Backend::new();
    let mut service = Posthaste::start(&backend, &[]);
    place_orders(&service, 1);
    let http = service.http.clone();
    let waiting = std::thread::spawn(move || read(&http, "?after=end&wait=14s"));
    await_metric(&service.http, "topic_readers", Duration::from_secs(10), |readers| readers == 1.0);

    service.signal("TERM");
    let status = service.await_exit(Duration::from_secs(10));

    assert_eq!(status.code(), Some(0));
    assert_eq!(waiting.join().expect("the response is complete").records.len(), 0);
}

#[test]
fn large_topics_are_read_in_bounded_responses() {
    let backend = Backend::new();
    let limits = [("POSTHASTE__READ__BYTES_MAX", "1000"), ("POSTHASTE__READ__RECORDS_MAX", "7")];
    let service = Posthaste::start(&backend, &limits);
    place_orders(&service, 20);

    assert!((1..7).contains(&read(&service.http, "?limit=1000000").records.len()), "1000 bytes end the response");
    assert_eq!(read(&service.http, "?limit=-1").records.len(), 1);
    let offsets = service.http.get(OFFSETS, Some(&consumer(&service.http))).json();
    let lag = |partition: &Value| partition["lag"].as_u64().expect("a number");
    assert_eq!(offsets["partitions"].as_array().expect("partitions").iter().map(lag).sum::<u64>(), 20);
}

#[test]
fn the_example_consumer_handles_every_event_and_survives_a_restart() {
    let backend = Backend::new();
    let address = format!("127.0.0.1:{}", free_port());
    let settings = [("POSTHASTE__HTTP__LISTEN", address.as_str())];
    let service = Posthaste::start(&backend, &settings);
    let mut expected = place_orders(&service, 3);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/read/consumer.py");
    let arguments = [script, service.http.base(), &consumer(&service.http), "example"];
    let mut example =
        Command::new("python3").args(arguments).stdout(Stdio::piped()).spawn().expect("python3 is installed");
    let (lines, handled) = mpsc::channel();
    let stdout = example.stdout.take().expect("piped");
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
    });
    // At least once: a record is repeated when its acknowledgement was too slow.
    let mut keys = BTreeSet::new();
    let mut await_keys = |count: usize| {
        until("the example handles the events", Duration::from_secs(30), || {
            keys.extend(handled.try_iter().map(|line| line.split(' ').next().expect("a key").to_owned()));
            (keys.len() >= count).then(|| keys.clone())
        })
    };

    await_keys(3);
    let offsets = "/groups/example/topics/order.events/offsets";
    until("the example commits", Duration::from_secs(10), || {
        let offsets = service.http.get(offsets, Some(&consumer(&service.http))).json();
        let partitions = offsets["partitions"].as_array().expect("partitions").clone();
        partitions.iter().all(|partition| partition["lag"] == 0).then_some(())
    });
    service.kill();
    let service = Posthaste::start(&backend, &settings);
    expected.extend(place_orders(&service, 2));
    let keys = await_keys(5);
    example.kill().expect("it runs");
    example.wait().expect("it is a child of this process");

    assert_eq!(keys, BTreeSet::from_iter(expected));
}

#[test]
fn events_for_the_retry_topics_of_a_configured_topic_are_refused() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__TOPICS__INVOICES__POISON", "skip-row")]);
    let send = |topic: &str, header: &str| {
        let event =
            json!({"topic": topic, "key": "k", "type": "Paid", "payload": 1, "headers": {header: "2147483646"}});
        service.http.post("/events", &service.http.token("billing", "PUBLISHER"), &[], &event)
    };

    for topic in ["invoices-retry-0", "invoices-retry-3", "invoices-dlt", "order.events-retry-3"] {
        let refused = send(topic, "tenant");
        assert!(refused.status == 400 && refused.text.contains("writes itself"), "{topic}: {}", refused.text);
    }
    let forged = send("invoices", "x-detour-round");
    assert!(forged.status == 400 && forged.text.contains("x-detour-round"), "{}", forged.text);
    assert_eq!(send("invoices", "tenant").status, 201);
}

#[test]
fn records_of_topics_that_are_not_configured_count_as_other() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__TOPICS", "invoices")]);
    let http = &service.http;

    for topic in ["invoices", "invented-1", "invented-2"] {
        let event = json!({"topic": topic, "key": "k", "type": "Anything", "payload": 1});
        publish(http, &event);
        until("the record is served", Duration::from_secs(30), || {
            let read = http.get(&format!("/topics/{topic}/records"), Some(&consumer(http)));
            (read.status == 200 && !Page::of(&read).records.is_empty()).then_some(())
        });
    }

    let served = |topic: &str| metric(http, &format!("topic_records_served_total{{topic=\"{topic}\"}}"));
    assert_eq!([served("invoices"), served("other")], [1.0, 2.0]);
    assert!(!http.get("/metrics", None).text.contains("invented"));
}
