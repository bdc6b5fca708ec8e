//! The document: every route stands in it, its examples work, and live answers match its schemas.
use actix_web::test::TestRequest;
use serde_json::{Value, json};

use crate::house::*;

fn document() -> Value {
    serde_json::from_str(&api::openapi_json()).unwrap()
}

/// Holds a body against the schema of an answer.
fn matches(document: &Value, method: &str, path: &str, reply: &Reply) {
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
async fn live_answers_match_their_schemas() {
    let house = House::new();
    let document = document();
    let id = house.place("ann").await;
    crate::dead_letters::set_aside(&house, 1).await;
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
        let reply = house.ask(get(path).insert_header(admin())).await;
        matches(&document, "get", template, &reply);
    }
    matches(&document, "get", "/orders", &house.ask(get("/orders")).await);
    let sent =
        house.ask(get(&format!("/admin/outbox/why?event={}", crate::fakes::event(1))).insert_header(admin())).await;
    matches(&document, "get", "/admin/outbox/why", &sent);
    let fault = house.ask(post("/admin/actors/consumer-0/pause", "").insert_header(admin())).await;
    matches(&document, "post", "/admin/actors/{path}/{action}", &fault);
    let bad = house.ask(post("/orders", "{}").insert_header(user("ann"))).await;
    matches(&document, "post", "/orders", &bad);
}

#[actix_web::test]
async fn the_examples_of_bodies_work_and_match() {
    let house = House::new();
    let document = document();
    let example = |method: &str, path: &str| {
        document["paths"][path][method]["requestBody"]["content"]["application/json"]["example"].clone()
    };

    let created = house.ask(post("/orders", &example("post", "/orders").to_string()).insert_header(admin())).await;
    assert_eq!(created.status, 201);
    matches(&document, "post", "/orders", &created);
    let path = format!("/orders/{}/status", created.json()["id"].as_str().unwrap());
    let change = example("patch", "/orders/{id}/status");
    let changed = house.ask(patch(&path, &change.to_string()).insert_header(admin())).await;
    assert_eq!(changed.status, 200);
    matches(&document, "patch", "/orders/{id}/status", &changed);
    let redrive = example("post", "/admin/outbox/redrive");
    let redriven = house.ask(post("/admin/outbox/redrive", &redrive.to_string()).insert_header(admin())).await;
    assert_eq!(redriven.status, 200);
    matches(&document, "post", "/admin/outbox/redrive", &redriven);

    let letters = example("post", "/admin/dlt/redrive");
    let redriven = house.ask(post("/admin/dlt/redrive", &letters.to_string()).insert_header(admin())).await;
    assert_eq!(redriven.status, 200);
    matches(&document, "post", "/admin/dlt/redrive", &redriven);

    for (name, body) in [
        ("RedriveLetters", letters),
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
async fn examples_of_shapes_match_their_own_schemas() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut held = 0;
    for (name, schema) in schemas {
        for (member, part) in schema["properties"].as_object().into_iter().flatten() {
            let Some(example) = part.get("example") else { continue };
            let mut part = part.clone();
            part["components"] = document["components"].clone();
            assert!(jsonschema::is_valid(&part, example), "{name}.{member}: {example}");
            held += 1;
        }
    }
    assert!(held > 30, "{held}");
}

#[actix_web::test]
async fn every_documented_operation_is_routed() {
    let house = House::new();
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let concrete = path.replace("{path}", "consumer-0").replace("{", "").replace("}", "");
            let allow = house.ask(TestRequest::default().method("OPTIONS".parse().unwrap()).uri(&concrete)).await;
            assert_eq!(allow.status, 204, "{path}");
            assert!(allow.header("allow").contains(&method.to_uppercase()), "{method} {path}");
            operations += 1;
        }
    }
    assert_eq!(operations, 32);
    let served = house.ask(get("/openapi.json")).await;
    assert_eq!((served.status, served.json()), (200, document));
}

#[actix_web::test]
async fn the_ui_comes_out_of_the_binary() {
    let house = House::new();

    let page = house.ask(get("/docs")).await;
    let script = house.ask(get("/docs/swagger-initializer.js")).await;

    assert_eq!(page.status, 200);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.text().contains("<base href=\"/docs/\">"));
    assert!(!page.text().contains("http://") && !page.text().contains("https://"), "nothing comes from elsewhere");
    assert!(script.text().contains("/openapi.json"));
    for asset in ["swagger-ui-bundle.js", "swagger-ui.css"] {
        assert_eq!(house.ask(get(&format!("/docs/{asset}"))).await.status, 200, "{asset}");
    }
    assert_eq!(
        document()["components"]["schemas"]["OrderStatus"]["enum"],
        json!(domain::Status::ALL.map(|s| s.as_str()))
    );
}
