//! The OpenAPI document: it contains every route, its examples work, and live responses match its schemas.
use actix_web::test::TestRequest;
use serde_json::{Value, json};

use crate::support::test_server::*;

fn document() -> Value {
    serde_json::from_str(&api::openapi_json()).unwrap()
}

/// Asserts that a response matches its schema in the document.
fn assert_matches(document: &Value, method: &str, path: &str, reply: &TestResponse) {
    let status = reply.status.to_string();
    let response = &document["paths"][path][method]["responses"][&status];
    let media = reply.header("content-type").split(';').next().unwrap().to_owned();
    let mut schema = response["content"][&media]["schema"].clone();
    assert!(schema.is_object(), "{method} {path} {status} {media} has no schema");
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let body = reply.json();
    let errors: Vec<String> =
        validator.iter_errors(&body).map(|error| format!("{error} at {}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{method} {path} {status}: {errors:?}\n{body:#}");
}

#[actix_web::test]
async fn live_responses_match_their_schemas() {
    let server = TestServer::new();
    let document = document();
    let id = server.create_order("ann").await;
    crate::dead_letters::dead_letter_records(&server, 1).await;
    let order = format!("/orders/{id}");
    for (template, path) in [
        ("/orders", "/orders"),
        ("/orders/page", "/orders/page"),
        ("/orders/page", "/orders/page?after="),
        ("/orders/{id}", order.as_str()),
        ("/orders/{id}", "/orders/x"),
        ("/actuator/health", "/actuator/health"),
        ("/actuator/health/liveness", "/actuator/health/liveness"),
        ("/actuator/health/readiness", "/actuator/health/readiness"),
        ("/actuator/health/{component}", "/actuator/health/db"),
        ("/actuator/info", "/actuator/info"),
        ("/actuator/metrics", "/actuator/metrics"),
        ("/actuator/metrics/{name}", "/actuator/metrics/http.server.requests"),
        ("/actuator/metrics/{name}", "/actuator/metrics/x"),
        ("/admin/actors", "/admin/actors"),
        ("/admin/outbox", "/admin/outbox"),
        ("/admin/outbox/{id}", "/admin/outbox/2"),
        ("/admin/outbox/why", "/admin/outbox/why?key=019a9c1e-7b1a-7c3e-9d55-2f6b1c0a4e11"),
        ("/admin/dlt", "/admin/dlt"),
        ("/admin/dlt/{partition}/{offset}", "/admin/dlt/0/0"),
        ("/admin/partitions", "/admin/partitions"),
    ] {
        let reply = server.send(get(path).insert_header(admin())).await;
        assert_matches(&document, "get", template, &reply);
    }
    assert_matches(&document, "get", "/orders", &server.send(get("/orders")).await);
    let sent = server
        .send(get(&format!("/admin/outbox/why?event={}", crate::support::fake_ports::event(1))).insert_header(admin()))
        .await;
    assert_matches(&document, "get", "/admin/outbox/why", &sent);
    let fault = server.send(post("/admin/actors/consumer-0/pause", "").insert_header(admin())).await;
    assert_matches(&document, "post", "/admin/actors/{path}/{action}", &fault);
    let bad = server.send(post("/orders", "{}").insert_header(user("ann"))).await;
    assert_matches(&document, "post", "/orders", &bad);
}

#[actix_web::test]
async fn request_examples_succeed_and_match_their_schemas() {
    let server = TestServer::new();
    let document = document();
    let example = |method: &str, path: &str| {
        document["paths"][path][method]["requestBody"]["content"]["application/json"]["example"].clone()
    };

    let created = server.send(post("/orders", &example("post", "/orders").to_string()).insert_header(admin())).await;
    assert_eq!(created.status, 201);
    assert_matches(&document, "post", "/orders", &created);
    let path = format!("/orders/{}/status", created.json()["id"].as_str().unwrap());
    let change = example("patch", "/orders/{id}/status");
    let changed = server.send(patch(&path, &change.to_string()).insert_header(admin())).await;
    assert_eq!(changed.status, 200);
    assert_matches(&document, "patch", "/orders/{id}/status", &changed);
    let redrive = example("post", "/admin/outbox/redrive");
    let redriven = server.send(post("/admin/outbox/redrive", &redrive.to_string()).insert_header(admin())).await;
    assert_eq!(redriven.status, 200);
    assert_matches(&document, "post", "/admin/outbox/redrive", &redriven);

    let dead_letters = example("post", "/admin/dlt/redrive");
    let redriven = server.send(post("/admin/dlt/redrive", &dead_letters.to_string()).insert_header(admin())).await;
    assert_eq!(redriven.status, 200);
    assert_matches(&document, "post", "/admin/dlt/redrive", &redriven);

    for (name, body) in [
        ("RedriveLetters", dead_letters),
        ("CreateOrder", example("post", "/orders")),
        ("ChangeStatus", change),
        ("Redrive", redrive),
    ] {
        let mut schema = document["components"]["schemas"][name].clone();
        schema["components"] = document["components"].clone();
        assert!(jsonschema::is_valid(&schema, &body), "{name}");
    }
}

#[actix_web::test]
async fn property_examples_match_their_schemas() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut checked = 0;
    for (name, schema) in schemas {
        for (member, part) in schema["properties"].as_object().into_iter().flatten() {
            let Some(example) = part.get("example") else { continue };
            let mut part = part.clone();
            part["components"] = document["components"].clone();
            assert!(jsonschema::is_valid(&part, example), "{name}.{member}: {example}");
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}

#[actix_web::test]
async fn every_documented_operation_is_routed() {
    let server = TestServer::new();
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let concrete = path.replace("{path}", "consumer-0").replace("{", "").replace("}", "");
            let allow = server.send(TestRequest::default().method("OPTIONS".parse().unwrap()).uri(&concrete)).await;
            assert_eq!(allow.status, 204, "{path}");
            assert!(allow.header("allow").contains(&method.to_uppercase()), "{method} {path}");
            operations += 1;
        }
    }
    assert_eq!(operations, 32);
    let served = server.send(get("/openapi.json")).await;
    assert_eq!((served.status, served.json()), (200, document));
}

#[actix_web::test]
async fn the_documentation_ui_is_served_from_the_binary() {
    let server = TestServer::new();

    let page = server.send(get("/docs")).await;
    let script = server.send(get("/docs/swagger-initializer.js")).await;

    assert_eq!(page.status, 200);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.text().contains("<base href=\"/docs/\">"));
    assert!(!page.text().contains("http://") && !page.text().contains("https://"), "no external resources");
    assert!(script.text().contains("/openapi.json"));
    for asset in ["swagger-ui-bundle.js", "swagger-ui.css"] {
        assert_eq!(server.send(get(&format!("/docs/{asset}"))).await.status, 200, "{asset}");
    }
    assert_eq!(
        document()["components"]["schemas"]["OrderStatus"]["enum"],
        json!(domain::Status::ALL.map(|s| s.as_str()))
    );
}
