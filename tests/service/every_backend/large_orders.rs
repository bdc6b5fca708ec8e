//! Orders of the largest size: what lists of them cost in memory.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kit::wait::scaled;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::process::Posthaste;

const ORDERS: usize = 24;
const READERS: usize = 12;
/// Memory that a list may use, and memory that the allocator keeps after earlier requests.
const BYTES_PER_LIST: u64 = 2 << 20;
const SLACK: u64 = 32 << 20;

/// An order of half a megabyte: 500 names of 256 characters with four bytes each.
fn large_order() -> Value {
    let name = "\u{1f600}".repeat(256);
    let item = json!({"productName": name, "quantity": 1, "price": "1.00"});
    json!({"items": vec![item; 500]})
}

/// A value in bytes of /proc/<pid>/status.
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find(|line| line.starts_with(name)).expect(name);
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number") * 1024
}

#[test]
fn unread_lists_of_large_orders_use_two_mebibytes_each() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__OUTBOX__ENABLED", "false")]);
    let user = service.http.user();
    for _ in 0..ORDERS {
        assert_eq!(service.http.post("/orders", &user, &[], &large_order()).status, 201);
    }
    // The first list allocates what stays: buffers of the store, arenas of the allocator.
    assert_eq!(service.http.get("/orders", Some(&user)).json().as_array().map(Vec::len), Some(ORDERS));
    let before = memory(service.pid(), "VmRSS:");
    // Begins a new measurement of the peak.
    std::fs::write(format!("/proc/{}/clear_refs", service.pid()), "5").expect("it is a child of this process");

    let address = service.http.base().trim_start_matches("http://").to_owned();
    let readers: Vec<TcpStream> = (0..READERS)
        .map(|_| {
            let mut reader = TcpStream::connect(&address).expect("the service listens");
            reader.set_read_timeout(Some(scaled(Duration::from_secs(20)))).expect("a legal time");
            let request = format!("GET /orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {user}\r\n\r\n");
            reader.write_all(request.as_bytes()).expect("the request is sent");
            let mut status = [0; 12];
            reader.read_exact(&mut status).expect("the response begins");
            assert_eq!(&status, b"HTTP/1.1 200");
            reader
        })
        .collect();
    // A whole list takes longer than the others take to fill what their connections hold.
    let list = service.http.get("/orders", Some(&user));
    assert_eq!(list.json().as_array().map(Vec::len), Some(ORDERS), "a slow reader delays no other");

    let grown = memory(service.pid(), "VmHWM:").saturating_sub(before);
    let limit = (READERS as u64 + 1) * BYTES_PER_LIST + SLACK;
    assert!(grown <= limit, "{grown} bytes for {READERS} unread lists, {limit} are allowed");
    drop(readers);
}
