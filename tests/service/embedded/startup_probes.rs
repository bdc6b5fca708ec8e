//! The start while the store does not answer: the probes during its first attempt, and its end.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kit::wait::{scaled, until};
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::command;

#[test]
fn probes_are_answered_before_the_first_attempt_to_open_the_store_ends() {
    // A machine that pauses for a second when the probes are due ends the attempt first: then the service is started again.
    let response = until("probes are answered", Duration::from_secs(60), probe_of_a_start);

    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
}

/// The store closes its connections at first, as a proxy without a server does, and then answers nothing.
#[test]
fn start_that_its_deadline_cuts_short_names_the_last_error_of_the_store() {
    let store = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("postgres://user@{}/orders", store.local_addr().expect("bound"));
    let is_silent = Arc::new(AtomicBool::new(false));
    let answers_nothing = Arc::clone(&is_silent);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in store.incoming().flatten().filter(|_| answers_nothing.load(Ordering::SeqCst)) {
            open.push(stream);
        }
    });
    let backend = Backend::new();
    let settings =
        [("KIND", "postgres"), ("URL", url.as_str())].map(|(key, value)| (format!("POSTHASTE__STORE__{key}"), value));
    let mut service = command(&backend, &["serve"]);
    // Shorter than the time after which an attempt ends by itself.
    service.envs(settings).env("POSTHASTE__BROKER__KIND", "none").env("POSTHASTE__STARTUP__DEADLINE", "4s");
    let mut service = service.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");

    let lines = BufReader::new(service.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line).expect("an object a line"));
    events.find(|line| line["event"] == "store_unreachable").expect("it is logged");
    is_silent.store(true, Ordering::SeqCst);
    events.for_each(drop);
    let ended = service.wait_with_output().expect("it ends");

    let error = String::from_utf8(ended.stderr).expect("UTF-8");
    assert_eq!(ended.status.code(), Some(1), "{error}");
    // The first attempts may fail in different ways: the connection is closed before or after the client has written.
    let names_cause = error.contains("; the previous attempt failed: ");
    assert!(error.contains("startup.deadline") && names_cause, "{error}");
}

/// The response to a probe of a service without an answer from its store; `None` when its first attempt has ended before it listened.
fn probe_of_a_start() -> Option<String> {
    // The system accepts its connections, and nothing answers them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("postgres://user@{}/orders", silent.local_addr().expect("bound"));
    let backend = Backend::new();
    let mut service = command(&backend, &["serve"]);
    service.env("POSTHASTE__STORE__KIND", "postgres").env("POSTHASTE__STORE__URL", &url);
    service.env("POSTHASTE__BROKER__KIND", "none").stdout(Stdio::piped());
    let mut service = service.spawn().expect("it starts");

    let lines = BufReader::new(service.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line).expect("an object a line"));
    let first = events.find(|line| line["event"] == "listening" || line["event"] == "store_unreachable");
    let first = first.expect("the service runs");
    let response = first["address"].as_str().map(startup_probe);
    service.kill().expect("it runs");
    service.wait().expect("it ends");
    response
}

fn startup_probe(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(scaled(Duration::from_secs(5)))).expect("a socket");
    stream.write_all(b"GET /startupz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}
