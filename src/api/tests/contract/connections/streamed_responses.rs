//! Streamed responses on real sockets: the body has the form that its head announces.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use kit::wait::until;

use crate::connections::request_bodies::{read_head, request};
use crate::server::{connect, exchange, on_socket};
use crate::support::test_server::*;

const STREAMS: [&str; 2] = ["/admin/events", "/topics/t/records"];

/// The head of a response in lower case, and the first line of its body.
fn beginning(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let (mut reader, mut head, mut first) = (BufReader::new(stream), String::new(), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    reader.read_line(&mut first).unwrap();
    (head.to_ascii_lowercase(), first)
}

/// Begins to read, and returns the connection with the status.
fn open(address: SocketAddr, request: &str) -> (TcpStream, u16) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let head = read_head(&mut stream);
    (stream, head[9..12].parse().unwrap())
}

/// What follows until the server closes or sends a keep-alive.
fn rest_of(stream: &mut TcpStream) -> String {
    let (mut rest, mut piece) = (String::new(), [0; 4_096]);
    while !rest.contains("keep-alive") {
        let length = stream.read(&mut piece).unwrap_or_else(|error| panic!("{error}: {rest}"));
        if length == 0 {
            break;
        }
        rest.push_str(std::str::from_utf8(&piece[..length]).unwrap());
    }
    rest
}

#[actix_web::test]
async fn a_stream_has_chunks_where_its_head_announces_them() {
    let server = TestServer::new();
    let (_, token) = admin();

    on_socket(&server, move |address| {
        let token = ("authorization", token.as_str());
        for path in STREAMS {
            for upgrade in
                [vec![], vec![("upgrade", "websocket")], vec![("connection", "upgrade"), ("upgrade", "WebSocket")]]
            {
                let headers = [&[token], &upgrade[..]].concat();
                let (head, first) = beginning(address, &request(&format!("GET {path}"), &headers));
                assert!(head.starts_with("http/1.1 200 "), "{path} {upgrade:?}: {head}");
                assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{path} {upgrade:?}: {head}");
                assert!(usize::from_str_radix(first.trim_end(), 16).is_ok(), "{path} {upgrade:?}: {first}");
            }
            let (head, first) = beginning(address, &request(&format!("GET {path}"), &[token]).replace("/1.1", "/1.0"));
            assert!(head.starts_with("http/1.0 200 ") && !head.contains("\r\ntransfer-encoding: "), "{path}: {head}");
            assert!(usize::from_str_radix(first.trim_end(), 16).is_err(), "{path}: {first}");
        }
    })
    .await;
}

#[actix_web::test]
async fn body_of_a_request_to_upgrade_ends_at_its_length() {
    let server = TestServer::new();
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        let length = ORDER.len().to_string();
        let headers = [
            ("authorization", ann.as_str()),
            ("content-type", "application/json"),
            ("upgrade", "websocket"),
            ("content-length", &length),
            ("connection", "close"),
        ];
        let head = request("POST /orders", &headers);
        let whole = exchange(address, format!("{head}{ORDER}").into_bytes());
        assert!(whole.starts_with("HTTP/1.1 201 "), "{whole}");
        let (start, rest) = ORDER.split_at(20);
        let mut stream = connect(address);
        stream.write_all(format!("{head}{start}").as_bytes()).unwrap();
        // The first part has been read when a later request on another connection is answered: there is one worker.
        assert!(
            exchange(address, request("GET /livez", &[("connection", "close")]).into_bytes())
                .starts_with("HTTP/1.1 200 ")
        );
        stream.write_all(rest.as_bytes()).unwrap();
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).unwrap();
        assert_eq!(status, "HTTP/1.1 201 Created\r\n");
    })
    .await;
}

#[actix_web::test]
async fn a_reader_that_closes_its_side_makes_room_for_the_next_one() {
    let mut config = TestConfig::default();
    (config.options.streams_max, config.options.reads.readers_max) = (1, 1);
    config.options.reads.wait_max = Duration::from_secs(3_600);
    let server = TestServer::with_config(config);
    let (_, token) = admin();

    on_socket(&server, move |address| {
        let token = ("authorization", token.as_str());
        let events = ("accept", "text/event-stream");
        let cases = [
            ("GET /admin/events", events, "\n\n\r\n0\r\n\r\n"),
            ("GET /topics/t/records", events, "\n\n\r\n0\r\n\r\n"),
            ("GET /topics/t/records?after=end&wait=1h", ("accept", "*/*"), "}\n\r\n0\r\n\r\n"),
        ];
        for (line, accept, end) in cases {
            let request = request(line, &[token, accept]);
            // A client that is gone also makes room where it has sent a further request.
            let pipelined = format!("{request}GET /livez HTTP/1.1\r\nhost: x\r\n\r\n");
            let admitted_twice = || Some(open(address, &pipelined)).filter(|(_, status)| *status == 200);
            drop(until(line, Duration::from_secs(5), admitted_twice));
            let admitted = || Some(open(address, &request)).filter(|(_, status)| *status == 200);
            let (mut first, _) = until(line, Duration::from_secs(5), admitted);
            assert_eq!(open(address, &request).1, 503, "{line}: there is room for one");

            // A client that closes only its side still receives the end of its response.
            first.shutdown(Shutdown::Write).unwrap();
            let rest = rest_of(&mut first);
            assert!(rest.ends_with(end), "{line}: {rest}");

            until(line, Duration::from_secs(5), admitted);
        }
    })
    .await;
}
