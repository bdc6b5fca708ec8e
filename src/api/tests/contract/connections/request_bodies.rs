//! Request bodies that no handler reads, on real sockets: one request, one response, whatever follows on the connection.
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kit::wait::scaled;

use crate::server::{connect, on_socket};
use crate::support::test_server::*;

const CHUNK: usize = 64 * 1024;
const NEXT: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";

/// This number of chunks, the end of the body, and a further request behind it.
pub fn chunks_and_next_request(count: usize) -> Vec<u8> {
    let chunk = format!("{CHUNK:x}\r\n{}\r\n", "x".repeat(CHUNK));
    format!("{}0\r\n\r\n{NEXT}", chunk.repeat(count)).into_bytes()
}

pub fn request(line: &str, headers: &[(&str, &str)]) -> String {
    let headers = headers.iter().fold(String::new(), |text, (name, value)| format!("{text}{name}: {value}\r\n"));
    format!("{line} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")
}

pub fn chunked(line: &str, headers: &[(&str, &str)]) -> String {
    let mut all = vec![("transfer-encoding", "chunked")];
    all.extend(headers);
    request(line, &all)
}

/// Sends everything, and reads until the server closes.
pub fn until_close(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(address);
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

pub fn assert_last_response(text: &str, status: u16, case: &str) {
    let head = text.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    assert!(head.starts_with(&format!("http/1.1 {status} ")), "{case}: {text}");
    assert!(head.contains("\r\nconnection: close"), "{case}: {head}");
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{case}: one request, one response: {text}");
}

#[actix_web::test]
async fn nothing_follows_the_response_to_an_unread_body() {
    let mut config = TestConfig::default();
    // An idle connection closes by itself only after the limit below.
    config.options.header_timeout = scaled(Duration::from_secs(5));
    let server = TestServer::with_config(config);
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        let token = ("authorization", ann.as_str());
        let json = ("content-type", "application/json");
        let cases = [
            (200, chunked("GET /livez", &[])),
            (200, chunked("GET /orders", &[token])),
            (204, chunked("OPTIONS /orders", &[])),
            (303, chunked("GET /console", &[])),
            (401, chunked("POST /orders", &[json])),
            (403, chunked("GET /admin/outbox", &[token])),
            (404, chunked("POST /nothing", &[token])),
            (405, chunked("DELETE /orders", &[token])),
            (415, chunked("POST /orders", &[token])),
        ];
        for (status, head) in cases {
            for chunks in [3, 4, 40] {
                let mut bytes = head.clone().into_bytes();
                bytes.extend(chunks_and_next_request(chunks));
                let started = Instant::now();
                assert_last_response(&until_close(address, &bytes), status, &format!("{head} {chunks} chunks"));
                assert!(started.elapsed() < scaled(Duration::from_secs(4)), "{head}: {:?}", started.elapsed());
            }
        }
        let mut large = chunked("POST /orders", &[token, json]).into_bytes();
        large.extend(chunks_and_next_request(40));
        assert_last_response(&until_close(address, &large), 413, "chunks above the limit");
        let announced = request("POST /orders", &[token, json, ("content-length", "2000000")]);
        let all = [announced.as_bytes(), &b"x".repeat(2_000_000), NEXT.as_bytes()].concat();
        assert_last_response(&until_close(address, &all), 413, "an announced length above the limit");
    })
    .await;
}

#[actix_web::test]
async fn while_the_service_stops_a_body_that_does_not_go_on_is_refused() {
    let server = TestServer::new();
    let (_, ann) = user("ann");
    server.health.update(|snapshot| snapshot.draining = true);

    on_socket(&server, move |address| {
        let (token, json) = (("authorization", ann.as_str()), ("content-type", "application/json"));
        let length = ORDER.len().to_string();
        let head = request("POST /orders", &[token, json, ("content-length", length.as_str())]);
        let started = Instant::now();

        let refused = until_close(address, format!("{head}{}", &ORDER[..5]).as_bytes());

        assert_last_response(&refused, 503, "half a body");
        assert!(refused.to_ascii_lowercase().contains("retry-after: 1"), "{refused}");
        // http.body_timeout is 30 s.
        assert!(started.elapsed() < scaled(Duration::from_secs(10)), "{:?}", started.elapsed());
        let whole = until_close(
            address,
            format!("{head}{ORDER}").replace("host: x", "host: x\r\nconnection: close").as_bytes(),
        );
        assert_last_response(&whole, 201, "a whole body");
    })
    .await;
}

#[actix_web::test]
async fn a_broken_transfer_coding_has_one_response() {
    let server = TestServer::new();
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        let token = ("authorization", ann.as_str());
        let json = ("content-type", "application/json");
        let cases = [
            (400, chunked("POST /orders", &[token, json])),
            (401, chunked("POST /orders", &[json])),
            (404, chunked("POST /nothing", &[])),
            (401, chunked("GET /orders/page", &[])),
            (200, chunked("GET /orders", &[token])),
            (400, chunked("OPTIONS /orders", &[])),
        ];
        for (status, head) in cases {
            let bytes = format!("{head}2\r\n{{}}\r\nzz\r\n{NEXT}");
            assert_last_response(&until_close(address, bytes.as_bytes()), status, &head);
        }
    })
    .await;
}

#[actix_web::test]
async fn a_body_that_has_ended_keeps_its_connection() {
    let server = TestServer::new();
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        let (token, json) = (("authorization", ann.as_str()), ("content-type", "application/json"));
        let length = ORDER.len().to_string();
        let sized = |line: &str, headers: &[(&str, &str)]| {
            let headers = [headers, &[("content-length", length.as_str())]].concat();
            format!("{}{ORDER}", request(line, &headers))
        };
        let pieces = format!("{:x}\r\n{ORDER}\r\n0\r\n\r\n", ORDER.len());
        let cases = [
            (201, sized("POST /orders", &[token, json])),
            (201, format!("{}{pieces}", chunked("POST /orders", &[token, json]))),
            (401, sized("POST /orders", &[json])),
            (401, format!("{}{pieces}", chunked("POST /orders", &[json]))),
            (404, format!("{}0\r\n\r\n", chunked("POST /nothing", &[]))),
            (415, sized("POST /orders", &[token])),
            (200, sized("GET /orders", &[token])),
            (200, format!("{}0\r\n\r\n", chunked("GET /livez", &[]))),
            (200, request("GET /livez", &[("content-length", "0")])),
            (204, request("OPTIONS /orders", &[])),
        ];
        let mut kept = connect(address);
        for (status, text) in &cases {
            kept.write_all(text.as_bytes()).unwrap();
            assert_eq!(read_response(&mut kept), *status, "{text}");
        }
        // The same requests in one piece: each gets its response, in order.
        kept.write_all(cases.iter().map(|(_, text)| text.as_str()).collect::<String>().as_bytes()).unwrap();
        for (status, text) in &cases {
            assert_eq!(read_response(&mut kept), *status, "{text}");
        }
    })
    .await;
}

#[actix_web::test]
async fn a_client_that_never_ends_its_body_is_disconnected() {
    let server = TestServer::new();

    on_socket(&server, move |address| {
        let mut client = connect(address);
        client.set_write_timeout(Some(scaled(Duration::from_secs(10)))).unwrap();
        client.write_all(chunked("POST /orders", &[]).as_bytes()).unwrap();
        let started = Instant::now();
        let chunk = format!("{CHUNK:x}\r\n{}\r\n", "x".repeat(CHUNK));
        let refused = loop {
            if let Err(error) = client.write_all(chunk.as_bytes()) {
                break error.kind();
            }
            assert!(started.elapsed() < scaled(Duration::from_secs(60)), "the connection is still open");
        };
        assert!(matches!(refused, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{refused}");
    })
    .await;
}

/// Reads the head of one response and nothing behind it; returns it in lower case.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&head)));
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

/// Reads one response and returns its status.
fn read_response(stream: &mut TcpStream) -> u16 {
    let head = read_head(stream);
    assert!(!head.contains("connection: close"), "{head}");
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned));
    if header("transfer-encoding").is_some() {
        read_chunks(stream);
    } else {
        let length = header("content-length").map_or(0, |length| length.parse().unwrap());
        stream.read_exact(&mut vec![0; length]).unwrap();
    }
    head[9..12].parse().unwrap()
}

fn read_chunks(stream: &mut TcpStream) {
    let mut body = Vec::new();
    let mut byte = [0];
    // JSON contains no such line.
    while !body.ends_with(b"0\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        body.push(byte[0]);
    }
}
