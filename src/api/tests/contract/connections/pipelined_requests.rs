//! Pipelined requests on real sockets: each response has the form that its own request asks for.
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kit::wait::scaled;

use crate::connections::request_bodies::{read_head, request};
use crate::server::{connect, on_socket};
use crate::support::test_server::*;

const LIVE: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";

/// One response of a connection.
struct WireResponse {
    status: u16,
    head: String,
    body: String,
}

/// Reads one response. That to a HEAD request has no body, whatever its head announces.
fn read_response(stream: &mut TcpStream, is_head: bool) -> WireResponse {
    let head = read_head(stream);
    assert!(head.starts_with("http/1.1 "), "{head}");
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; if is_head { 0 } else { length }];
    stream.read_exact(&mut body).unwrap();
    WireResponse { status: head[9..12].parse().unwrap(), head, body: String::from_utf8(body).unwrap() }
}

/// A request that creates an order, and the same with a chunked body.
fn create(token: &str) -> [String; 2] {
    let (token, json) = (("authorization", token), ("content-type", "application/json"));
    let length = ORDER.len().to_string();
    let pieces =
        format!("5;a=b\r\n{}\r\n{:X}\r\n{}\r\n0\r\nx-trailer: y\r\n\r\n", &ORDER[..5], ORDER.len() - 5, &ORDER[5..]);
    [
        format!("{}{ORDER}", request("POST /orders", &[token, json, ("content-length", &length)])),
        format!("{}{pieces}", request("POST /orders", &[token, json, ("transfer-encoding", "chunked")])),
    ]
}

/// Sends the bytes in two pieces, or at once when `split` is 0, on a connection of their own.
fn send(address: SocketAddr, bytes: &str, split: usize) -> TcpStream {
    let mut stream = connect(address);
    stream.set_nodelay(true).unwrap();
    for piece in [&bytes[..split], &bytes[split..]] {
        stream.write_all(piece.as_bytes()).unwrap();
    }
    stream
}

fn assert_kept(mut stream: TcpStream, case: &str) {
    stream.write_all(LIVE.as_bytes()).unwrap();
    let last = read_response(&mut stream, false);
    assert_eq!((last.status, last.body.as_str()), (200, "ok\n"), "{case}");
}

#[actix_web::test]
async fn a_pipelined_head_request_leaves_the_earlier_response_its_body() {
    let server = TestServer::new();
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        for create in create(&ann) {
            let both = format!("{create}{}", request("HEAD /livez", &[]));
            for split in 0..both.len() {
                let mut stream = send(address, &both, split);
                let created = read_response(&mut stream, false);
                assert_eq!(created.status, 201, "{split}: {}", created.head);
                assert!(created.body.contains("keyboard"), "{split}: {}", created.head);
                let live = read_response(&mut stream, true);
                assert_eq!(live.status, 200, "{split}: {}", live.head);
                assert_kept(stream, &format!("split at {split}"));
            }
        }
    })
    .await;
}

#[actix_web::test]
async fn a_pipelined_request_adds_no_body_to_the_response_to_head() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        let both = format!("{}{LIVE}", request(&format!("HEAD /orders/{id}"), &[("authorization", &ann)]));
        for split in 0..both.len() {
            let mut stream = send(address, &both, split);
            let order = read_response(&mut stream, true);
            assert!(order.status == 200 && order.head.contains("\r\ncontent-length: "), "{split}: {}", order.head);
            let live = read_response(&mut stream, false);
            assert_eq!((live.status, live.body.as_str()), (200, "ok\n"), "{split}: {}", live.head);
            assert_kept(stream, &format!("split at {split}"));
        }
    })
    .await;
}

#[actix_web::test]
async fn only_the_response_to_the_last_request_closes_the_connection() {
    let server = TestServer::new();
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        for create in create(&ann) {
            let mut stream =
                send(address, &format!("{create}{}", request("GET /livez", &[("connection", "close")])), 0);
            let created = read_response(&mut stream, false);
            assert_eq!(created.status, 201, "{}", created.head);
            assert!(!created.head.contains("\r\nconnection: "), "{}", created.head);
            let live = read_response(&mut stream, false);
            assert!(live.status == 200 && live.head.contains("\r\nconnection: close\r\n"), "{}", live.head);
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server closes");
        }
    })
    .await;
}

#[actix_web::test]
async fn a_request_behind_the_last_one_is_not_executed() {
    let server = TestServer::new();
    let (_, ann) = user("ann");
    let last = request("GET /livez", &[("connection", "close")]);
    let splits = [0, last.len(), last.len() + 20];

    on_socket(&server, move |address| {
        for create in create(&ann) {
            for split in splits {
                let mut stream = send(address, &format!("{last}{create}"), split);
                let live = read_response(&mut stream, false);
                assert_eq!((live.status, live.body.as_str()), (200, "ok\n"), "{split}: {}", live.head);
                assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{split}: the server closes and resets nothing");
            }
        }
    })
    .await;

    assert!(server.orders.all.lock().is_empty(), "no order was created");
}

#[actix_web::test]
async fn a_body_that_is_still_arriving_does_not_end_the_earlier_request() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        let read = |headers: &[(&str, &str)]| {
            let headers = [&[("authorization", ann.as_str())], headers].concat();
            request(&format!("GET /orders/{id}"), &headers)
        };
        let mut stream = send(address, &read(&[]), 0);
        let order = read_response(&mut stream, false);
        let etag =
            order.head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("an order has one").to_owned();
        for create in create(&ann) {
            let both = format!("{}{create}", read(&[("if-none-match", &etag)]));
            // The response to the first request ends before the rest of the second one is sent.
            let (start, rest) = both.split_at(both.len() - 20);
            let mut stream = send(address, start, 0);
            let unchanged = read_response(&mut stream, false);
            assert_eq!(unchanged.status, 304, "{}", unchanged.head);
            assert!(!unchanged.head.contains("\r\nconnection: "), "{}", unchanged.head);
            stream.write_all(rest.as_bytes()).unwrap();
            let created = read_response(&mut stream, false);
            assert!(created.status == 201 && created.body.contains("keyboard"), "{}", created.head);
            assert_kept(stream, "after 304 and 201");
        }
    })
    .await;
}

#[actix_web::test]
async fn many_pipelined_requests_get_their_responses_in_order() {
    let server = TestServer::new();
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        // More than the parser's buffer takes in one read.
        let rounds = 300;
        let round = create(&ann).concat() + LIVE + &request("HEAD /livez", &[]);
        let mut stream = connect(address);
        let mut sender = stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || sender.write_all(round.repeat(rounds).as_bytes()).unwrap());
        for number in 0..rounds {
            for (status, is_head) in [(201, false), (201, false), (200, false), (200, true)] {
                let response = read_response(&mut stream, is_head);
                assert_eq!(response.status, status, "round {number}: {}", response.head);
            }
        }
        sending.join().unwrap();
        assert_kept(stream, "after the last round");
    })
    .await;
}

#[actix_web::test]
async fn a_client_that_closes_its_side_gets_the_responses_to_all_its_requests() {
    let server = TestServer::new();
    let (_, ann) = user("ann");

    on_socket(&server, move |address| {
        let mut stream = send(address, &(create(&ann).concat() + LIVE), 0);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        for status in [201, 201, 200] {
            assert_eq!(read_response(&mut stream, false).status, status);
        }
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server closes");
    })
    .await;
}

/// Some clients offer another protocol with each request.
#[actix_web::test]
async fn a_connection_serves_further_requests_after_an_offer_to_upgrade() {
    let server = TestServer::new();
    let (_, token) = user("ann");

    on_socket(&server, move |address| {
        for connection in ["Upgrade", "keep-alive, Upgrade", "upgrade,HTTP2-Settings"] {
            let [create, _] = create(&token);
            let offer = format!("HTTP/1.1\r\nconnection: {connection}\r\nupgrade: h2c\r\n");
            let mut stream = send(address, &create.replacen("HTTP/1.1\r\n", &offer, 1), 0);
            let created = read_response(&mut stream, false);
            assert_eq!(created.status, 201, "{connection}: {}", created.head);
            assert!(!created.head.contains("upgrade"), "{connection}: {}", created.head);
            assert_kept(stream, connection);
        }
    })
    .await;
}

/// Some clients send an empty line behind a body.
#[actix_web::test]
async fn empty_line_behind_a_request_begins_no_request() {
    let mut config = TestConfig::default();
    let header_timeout = scaled(Duration::from_millis(500));
    config.options.header_timeout = header_timeout;
    let server = TestServer::with_config(config);
    let (_, token) = user("ann");

    on_socket(&server, move |address| {
        let mut stream = send(address, &format!("{}\r\n", create(&token)[0]), 0);
        assert_eq!(read_response(&mut stream, false).status, 201);

        stream.set_read_timeout(Some(header_timeout + Duration::from_secs(1))).unwrap();
        let unasked = stream.read(&mut [0]);
        assert!(unasked.is_err(), "a response to an empty line, or the end: {unasked:?}");
        stream.set_read_timeout(None).unwrap();
        stream.write_all(LIVE.as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream, false).status, 200);
    })
    .await;
}
