//! Streamed responses on real sockets: the body has the form that its head announces.
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;

use crate::connections::request_bodies::request;
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
