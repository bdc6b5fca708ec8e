//! Bodies that are not valid orders: each returns 400 and names the fields.
use crate::support::test_server::*;

fn line(line: &str) -> String {
    format!("{{\"items\":[{line}]}}")
}

#[actix_web::test]
async fn malformed_bodies_return_problems() {
    let server = TestServer::new();
    let good = r#"{"productName":"a","quantity":1,"price":1}"#;
    let deep = format!("{{\"x\":{}{},\"items\":[{good}]}}", "[".repeat(200), "]".repeat(200));
    let many = format!("{{\"items\":[{}]}}", vec![good; 501].join(","));
    let bodies = [
        String::new(),
        "null".into(),
        "[]".into(),
        "\"x\"".into(),
        "{".into(),
        "{}".into(),
        "{\"items\":null}".into(),
        "{\"items\":{}}".into(),
        "{\"items\":[]}".into(),
        "{\"items\":[1]}".into(),
        format!("{} ", line(good)) + "x",
        format!("\u{feff}{}", line(good)),
        format!("{{\"items\":[{good}],\"items\":[{good}]}}"),
        format!("{{\"items\":[{good}],\"x\":{{\"a\":1,\"a\":1}}}}"),
        line(r#"{"productName":"a","productName":"a","quantity":1,"price":1}"#),
        line(r#"{"quantity":1,"price":1}"#),
        line(r#"{"productName":"a","price":1}"#),
        line(r#"{"productName":"a","quantity":1}"#),
        line(r#"{"productName":"","quantity":1,"price":1}"#),
        line(r#"{"productName":" \u00a0\t","quantity":1,"price":1}"#),
        line(r#"{"productName":"a\u0000","quantity":1,"price":1}"#),
        line(r#"{"productName":"a\u0085","quantity":1,"price":1}"#),
        line(r#"{"productName":"\ud800","quantity":1,"price":1}"#),
        line(&format!(r#"{{"productName":"{}","quantity":1,"price":1}}"#, "é".repeat(257))),
        line(r#"{"productName":1,"quantity":1,"price":1}"#),
        line(r#"{"productName":"a","quantity":0,"price":1}"#),
        line(r#"{"productName":"a","quantity":1000001,"price":1}"#),
        line(r#"{"productName":"a","quantity":1.0,"price":1}"#),
        line(r#"{"productName":"a","quantity":1e2,"price":1}"#),
        line(r#"{"productName":"a","quantity":-1,"price":1}"#),
        line(r#"{"productName":"a","quantity":"1","price":1}"#),
        line(r#"{"productName":"a","quantity":99999999999999999999999999999999999999999999,"price":1}"#),
        line(r#"{"productName":"a","quantity":1,"price":-0.01}"#),
        line(r#"{"productName":"a","quantity":1,"price":01}"#),
        line(r#"{"productName":"a","quantity":1,"price":"01"}"#),
        line(r#"{"productName":"a","quantity":1,"price":NaN}"#),
        line(r#"{"productName":"a","quantity":2,"price":9999999999999999999999999999}"#),
        deep,
        many,
    ];
    for body in bodies {
        let reply = server.send(post("/orders", &body).insert_header(user("ann"))).await;
        reply.problem(400, "BAD_REQUEST");
        assert_eq!(reply.header("cache-control"), "private, no-cache");
    }
    let raw = post("/orders", "").insert_header(user("ann")).set_payload(&b"{\"items\":\"\xff\"}"[..]);
    server.send(raw.insert_header(("content-length", 13))).await.problem(400, "BAD_REQUEST");
}

#[actix_web::test]
async fn all_faults_are_reported_together_by_field() {
    let server = TestServer::new();
    let body = r#"{"items":[{"productName":" ","quantity":0,"price":"x"},{"productName":"a","quantity":1,"price":1},{"price":-1},7]}"#;

    let reply = server.send(post("/orders", body).insert_header(user("ann"))).await;

    let errors = reply.problem(400, "BAD_REQUEST")["errors"].clone();
    let fields: Vec<&str> = errors.as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
    assert_eq!(
        fields,
        [
            "items[0].productName",
            "items[0].quantity",
            "items[0].price",
            "items[2].productName",
            "items[2].quantity",
            "items[2].price",
            "items[3]"
        ]
    );
    let total = line(r#"{"productName":"a","quantity":10,"price":"9999999999999999999999999999"}"#);
    let reply = server.send(post("/orders", &total).insert_header(user("ann"))).await;
    assert_eq!(reply.problem(400, "BAD_REQUEST")["errors"][0]["field"], "items");
    let bad = vec!["0"; 500].join(",");
    let reply = server.send(post("/orders", &line(&bad)).insert_header(user("ann"))).await;
    assert_eq!(reply.problem(400, "BAD_REQUEST")["errors"].as_array().unwrap().len(), 100);
}

#[actix_web::test]
async fn unknown_members_are_ignored() {
    let server = TestServer::new();
    let body = r#"{"id":"x","status":"DELIVERED","version":9,"total":"0","items":[{"productName":"a","quantity":1,"price":1e2,"sku":null,"weight":1e999}]}"#;

    let reply = server.send(post("/orders", body).insert_header(user("ann"))).await;

    assert_eq!(reply.status, 201);
    let order = reply.json();
    assert_eq!((&order["status"], &order["version"], &order["total"]), (&"PENDING".into(), &0.into(), &"100".into()));
}
