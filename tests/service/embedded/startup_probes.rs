//! The probes during the first attempt to open a store that does not answer.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
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
