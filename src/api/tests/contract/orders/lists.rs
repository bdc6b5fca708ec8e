//! Long lists: their orders are large, so they are read in parts and written as a stream.
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use actix_web::App;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::Method;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::web::Bytes;
use api::{Surface, serve};
use domain::{Item, Items, Money};
use kit::wait::scaled;
use ports::orders::LIST_BYTES;
use serde_json::{Value, json};

use crate::server::{blocking, connect};
use crate::support::test_server::*;

const ORDERS: usize = 12;
/// Stored bytes of one of these orders.
const ORDER_BYTES: usize = 500 * 1024;

/// A server with orders of the largest size that fits in a request: 500 names of 256 characters with four bytes each.
async fn server_with_large_orders() -> TestServer {
    let server = TestServer::new();
    let item = Item::new(&"\u{1f600}".repeat(256), 7, Money::parse("0.10").unwrap()).unwrap();
    for _ in 0..ORDERS {
        server.create_order("ann").await;
    }
    for order in server.orders.all.lock().iter_mut() {
        order.items = Items::new(vec![item.clone(); 500]).unwrap();
    }
    server
}

struct Streamed {
    size: BodySize,
    body: Pin<Box<BoxBody>>,
}

impl Streamed {
    async fn next(&mut self) -> Option<Result<Bytes, String>> {
        let piece = poll_fn(|cx| self.body.as_mut().poll_next(cx)).await;
        piece.map(|piece| piece.map_err(|error| error.to_string()))
    }
}

async fn open(server: &TestServer, method: Method, path: &str) -> Streamed {
    let app = init_service(App::new().configure(api::configure(Arc::clone(&server.state), Surface::Both))).await;
    let request = TestRequest::default().method(method).uri(path).insert_header(user("ann"));
    let response = call_service(&app, request.to_request()).await;
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers().get("content-type").unwrap(), "application/json");
    let body = response.into_body();
    Streamed { size: body.size(), body: Box::pin(body) }
}

/// The orders as `GET /orders/{id}` returns them, newest first.
async fn singles(server: &TestServer) -> Vec<Value> {
    let mut ids: Vec<String> = server.orders.all.lock().iter().map(|order| order.id.to_string()).collect();
    ids.reverse();
    let mut singles = Vec::new();
    for id in ids {
        singles.push(server.send(get(&format!("/orders/{id}")).insert_header(user("ann"))).await.json());
    }
    singles
}

#[actix_web::test]
async fn a_long_list_is_streamed_and_holds_the_same_orders() {
    let server = server_with_large_orders().await;
    let singles = singles(&server).await;

    let list = server.send(get("/orders").insert_header(user("ann"))).await;
    assert!(list.json() == json!(singles), "the list differs");

    let page = server.send(get("/orders/page?size=8&page=1").insert_header(user("ann"))).await;
    assert!(page.json()["orders"] == json!(singles[8..]), "the page differs");
    assert_eq!((page.json()["page"].as_u64(), page.json()["totalElements"].as_u64()), (Some(1), Some(ORDERS as u64)));
    assert!(page.header("link").contains("rel=\"last\""));

    assert_eq!(open(&server, Method::GET, "/orders").await.size, BodySize::Stream);
    let mut head = open(&server, Method::HEAD, "/orders").await;
    let reads = server.orders.lists.load(SeqCst);
    assert!(head.next().await.is_none(), "a HEAD has no body");
    assert_eq!(server.orders.lists.load(SeqCst), reads, "a HEAD reads no further orders");
}

#[actix_web::test]
async fn a_short_list_has_its_length() {
    let server = TestServer::new();
    server.create_order("ann").await;

    for path in ["/orders", "/orders/page", "/orders/page?after="] {
        let mut list = open(&server, Method::GET, path).await;
        let BodySize::Sized(length) = list.size else { panic!("{path}: {:?}", list.size) };
        assert_eq!(list.next().await.unwrap().unwrap().len() as u64, length);
        assert_eq!(open(&server, Method::HEAD, path).await.size, BodySize::Sized(length), "HEAD {path}");
    }
}

#[actix_web::test]
async fn keyset_pages_of_large_orders_are_shorter_and_miss_none() {
    let server = server_with_large_orders().await;
    let singles = singles(&server).await;
    let mut seen = Vec::new();
    let mut path = "/orders/page?size=500&after=".to_owned();
    loop {
        let page = server.send(get(&path).insert_header(user("ann"))).await;
        let orders = page.json()["orders"].as_array().unwrap().clone();
        assert!((1..ORDERS).contains(&orders.len()), "{}", orders.len());
        seen.extend(orders);
        let Some(next) = page.header("link").split(['<', '>']).nth(1).map(str::to_owned) else { break };
        path = next;
    }

    assert!(seen == singles, "the pages differ");
}

#[actix_web::test]
async fn a_reader_that_reads_nothing_holds_one_part_and_one_piece() {
    let server = server_with_large_orders().await;
    let mut list = open(&server, Method::GET, "/orders").await;
    let first = list.next().await.unwrap().unwrap();
    assert!(first.len() < 512 * 1024, "{}", first.len());

    let mut received = first.len();
    loop {
        let reads = server.orders.lists.load(SeqCst);
        // Whatever the reader does meanwhile: without a poll nothing is read and nothing is written.
        tokio::task::yield_now().await;
        assert_eq!(server.orders.lists.load(SeqCst), reads);
        let Some(piece) = list.next().await else { break };
        let piece = piece.unwrap();
        assert!(piece.len() <= 64 * 1024, "a piece of {}", piece.len());
        assert!(server.orders.lists.load(SeqCst) <= reads + 1, "one part is read at a time");
        received += piece.len();
        let part = server.orders.largest_part.load(SeqCst);
        assert!(part <= LIST_BYTES + ORDER_BYTES + 16_000, "a part of {part} bytes");
    }

    assert!(received > ORDERS * ORDER_BYTES, "{received}");
}

#[actix_web::test]
async fn a_failure_amid_a_list_ends_it_before_its_end() {
    let server = server_with_large_orders().await;
    let mut list = open(&server, Method::GET, "/orders").await;
    let mut received = list.next().await.unwrap().unwrap().len();
    *server.orders.unavailable.lock() = true;
    let error = loop {
        match list.next().await.expect("the list does not end as if it were complete") {
            Ok(piece) => received += piece.len(),
            Err(error) => break error,
        }
    };

    assert!(error.contains("refused") && received < ORDERS * ORDER_BYTES, "{error}");
    assert_eq!(server.metrics.orders_operation_failure_count.with(["list"]).get(), 1);
    server.send(get("/orders").insert_header(user("ann"))).await.problem(503, "INFRASTRUCTURE_ERROR");
}

#[actix_web::test]
async fn a_stop_disconnects_a_client_that_has_stopped_reading() {
    let server = server_with_large_orders().await;
    let service = serve(&server.state).unwrap();
    let address = service.bound()[0].address;
    let (_, token) = user("ann");
    let request = format!("GET /orders HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\n\r\n");
    let client = blocking(move || {
        let mut client = connect(address);
        client.write_all(request.as_bytes()).unwrap();
        // The response has begun.
        client.peek(&mut [0]).unwrap();
        client
    })
    .await;
    let started = Instant::now();

    service.stop(scaled(Duration::from_secs(25))).await;

    assert!(started.elapsed() < scaled(Duration::from_secs(10)), "the stop waited: {:?}", started.elapsed());
    drop(client);
}
