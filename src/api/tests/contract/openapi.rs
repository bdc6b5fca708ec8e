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
        ("/groups/{group}/topics/{topic}/offsets", "/groups/g/topics/t/offsets"),
        ("/topics/{topic}/records", "/topics/t/records?after=end"),
        ("/topics/{topic}/records", "/topics/t/records?after=0:3"),
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
        ("RedriveDeadLetters", dead_letters),
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
    assert_eq!(operations, 48);
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

/// Whether the document allows a request body.
fn allows(document: &Value, schema: &str, body: &Value) -> bool {
    let mut schema = document["components"]["schemas"][schema].clone();
    schema["components"] = document["components"].clone();
    jsonschema::is_valid(&schema, body)
}

#[actix_web::test]
async fn schema_and_code_refuse_the_same_orders() {
    let server = TestServer::new();
    let document = document();
    let item = |member: &str, value: Value| {
        let mut item = json!({"productName": "tea", "quantity": 1, "price": "1"});
        item[member] = value;
        json!({"items": [item]})
    };
    let digits = |count: usize| "9".repeat(count);
    let prices =
        ["0", "0.0", "12.990", "1e2", "1.5e-6", "0.000000000001", "01", "1.", ".5", "-1", "+1", "1E2", " 1", "", "NaN"];
    let prices = prices.into_iter().map(|price| json!(price));
    let long =
        [digits(28), digits(29), format!("{}.{}", digits(16), digits(12)), format!("{}.{}", digits(17), digits(12))];
    let long = long.into_iter().chain([format!("0.{}", "0".repeat(13))]).map(|price| json!(price));
    let numbers = [json!(0), json!(1.5), json!(-1), json!(-0.5), json!(1e28), json!(null), json!([]), json!(true)];
    let mut bodies: Vec<Value> = prices.chain(long).chain(numbers).map(|price| item("price", price)).collect();
    let names = ["a", " a ", "\u{a0}", "\u{3000} ", "", " ", "a\u{85}", "\u{0}a", "a\nb", "\u{feff}", "é"];
    bodies.extend(names.into_iter().map(|name| item("productName", json!(name))));
    bodies.extend([256, 257].map(|count| item("productName", json!("\u{1f600}".repeat(count)))));
    bodies.extend(
        [json!(0), json!(1), json!(1_000_000), json!(1_000_001), json!("1"), json!(null)].map(|n| item("quantity", n)),
    );
    bodies.extend([
        json!({}),
        json!({"items": []}),
        json!({"items": null}),
        json!({"items": {}}),
        json!([]),
        json!(null),
    ]);
    for body in bodies {
        let allowed = allows(&document, "CreateOrder", &body);
        let status = server.send(post("/orders", &body.to_string()).insert_header(admin())).await.status;
        assert_eq!(status, if allowed { 201 } else { 400 }, "{body}");
    }

    let path = format!("/orders/{}/status", server.create_order("ann").await);
    for (status, version) in [("PENDING", json!(0)), ("PROCESSING", json!(7)), ("pending", json!(0)), ("", json!(0))]
        .into_iter()
        .chain([json!(-1), json!("0"), json!(null), json!(1e30), json!(u64::MAX)].map(|version| ("SHIPPED", version)))
    {
        let body = json!({"status": status, "version": version});
        let refused = server.send(patch(&path, &body.to_string()).insert_header(admin())).await.status == 400;
        // 1e30 is an integer for a schema; the code asks for one that is written as such.
        assert!(refused != allows(&document, "ChangeStatus", &body) || version == json!(1e30), "{body}");
    }
}

#[actix_web::test]
async fn schema_and_code_refuse_the_same_operator_commands() {
    let server = TestServer::new();
    let document = document();
    let members = [
        ("type", vec![json!("ORDER_CREATED"), json!("a\u{0}"), json!("a\nb"), json!(1)]),
        ("key", vec![json!(crate::support::fake_ports::KEY), json!("x"), json!(1)]),
        ("failureType", vec![json!("NETWORK"), json!("network"), json!(""), json!(1)]),
        ("olderThan", vec![json!("5s"), json!("0"), json!("250ms"), json!("5"), json!("s"), json!("-1s"), json!(5)]),
        ("limit", vec![json!(1), json!(10_000), json!(0), json!(10_001), json!(-1), json!("1"), json!(1.5)]),
        ("dryRun", vec![json!(true), json!("true"), json!(1)]),
        ("reason", vec![json!(""), json!("x\ny"), json!("x".repeat(1_001)), json!("\u{0}"), json!(1)]),
        ("unknown", vec![json!(1)]),
    ];
    for (member, mut values) in members {
        values.push(json!(null));
        for value in values {
            let body = json!({member: value});
            let allowed = allows(&document, "Redrive", &body);
            let request = post("/admin/outbox/redrive", &body.to_string()).insert_header(admin());
            assert_eq!(server.send(request).await.status, if allowed { 200 } else { 400 }, "{body}");
        }
    }
    let null = post("/admin/outbox/redrive", "null").insert_header(admin());
    server.send(null).await.problem(400, "BAD_REQUEST");
    let content = &document["paths"]["/admin/outbox/redrive"]["post"]["requestBody"]["content"];
    assert_eq!(content["application/json"]["schema"], json!({"$ref": "#/components/schemas/Redrive"}));
}

#[test]
fn no_parameter_is_nullable_and_ids_have_a_minimum() {
    let document = document();
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    let parameters: Vec<&Value> =
        operations.flat_map(|one| one["parameters"].as_array().into_iter().flatten()).collect();
    assert!(parameters.len() > 30, "{}", parameters.len());
    for parameter in parameters {
        assert!(!parameter["schema"].to_string().contains("null"), "{parameter}");
        let is_number = parameter["in"] == "path" && parameter["schema"]["type"] == "integer";
        assert!(!is_number || parameter["schema"]["minimum"] == 0, "{parameter}");
    }
    let row = &document["components"]["schemas"]["OutboxRow"]["properties"];
    assert_eq!(
        (&row["id"]["minimum"], &row["status"]["$ref"]),
        (&json!(0), &json!("#/components/schemas/RowStatusName"))
    );
    assert!(row["failureType"].to_string().contains("FailureTypeName"), "{row}");
    let names = &document["components"]["schemas"]["FailureTypeName"]["enum"];
    assert_eq!(*names, json!(["NETWORK", "TIMEOUT", "VALIDATION", "SYSTEM"]));
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for property in schema["properties"].as_object().into_iter().flatten().map(|(property, _)| property) {
            assert!(!property.contains('_'), "{name}.{property} is not in camelCase");
        }
    }
}
