//! The order in which a request is checked, the headers of every response, and the rate limit.
use actix_web::http::Method;
use actix_web::test::TestRequest;
use api::{Surface, TrustedProxies};

use crate::support::test_server::*;

/// Starts with a request in which everything is wrong, and corrects one thing at each step.
#[actix_web::test]
async fn requests_are_checked_in_the_contracts_order() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    let path = format!("/orders/{id}/status");
    let large = " ".repeat(1024 * 1024 + 1);
    let html = ("accept", "text/html");
    let json = ("content-type", "application/json");

    let wrong_route = patch("/orders/x/nothing", &large).insert_header(html);
    server.send(wrong_route).await.problem(404, "NOT_FOUND");
    let wrong_method = TestRequest::delete().uri(&path).insert_header(html);
    server.send(wrong_method).await.problem(405, "METHOD_NOT_ALLOWED");
    let raw = |path: &str| {
        TestRequest::patch().uri(path).insert_header(("content-length", large.len())).set_payload(large.clone())
    };
    server.send(raw("/orders/x/status").insert_header(html)).await.problem(401, "UNAUTHORIZED");
    server.send(raw("/orders/x/status").insert_header(html).insert_header(user("ann"))).await.problem(403, "FORBIDDEN");
    *server.rate_limiter.tokens.lock() = 0;
    server.send(raw("/orders/x/status").insert_header(html).insert_header(admin())).await.problem(429, "RATE_LIMITED");
    *server.rate_limiter.tokens.lock() = 100;
    server
        .send(raw("/orders/x/status").insert_header(html).insert_header(admin()))
        .await
        .problem(406, "NOT_ACCEPTABLE");
    server.send(raw("/orders/x/status").insert_header(admin())).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    server
        .send(raw("/orders/x/status").insert_header(admin()).insert_header(json))
        .await
        .problem(413, "PAYLOAD_TOO_LARGE");
    let bad_id = server.send(patch("/orders/x/status", "{").insert_header(admin())).await.problem(400, "BAD_REQUEST");
    assert_eq!(bad_id["errors"][0]["field"], "id");
    let bad_body = server.send(patch(&path, "{").insert_header(admin()).insert_header(("if-match", "\"9\""))).await;
    bad_body.problem(400, "BAD_REQUEST");
    let body = r#"{"status":"PENDING","version":9}"#;
    let missing = patch("/orders/019a9c1e-7b1a-7c3e-9d55-2f6b1c0a4e11/status", body).insert_header(admin());
    server.send(missing.insert_header(("if-match", "\"9\""))).await.problem(404, "NOT_FOUND");
    server
        .send(patch(&path, body).insert_header(admin()).insert_header(("if-match", "\"9\"")))
        .await
        .problem(412, "PRECONDITION_FAILED");
    server
        .send(patch(&path, body).insert_header(admin()).insert_header(("if-match", "\"0\"")))
        .await
        .problem(409, "CONFLICT");
}

#[actix_web::test]
async fn a_body_of_exactly_the_limit_is_accepted() {
    let server = TestServer::new();
    let pad = 1024 * 1024 - ORDER.len();

    let fits = server.send(post("/orders", &format!("{ORDER}{}", " ".repeat(pad))).insert_header(user("ann"))).await;
    let over =
        server.send(post("/orders", &format!("{ORDER}{}", " ".repeat(pad + 1))).insert_header(user("ann"))).await;

    assert_eq!(fits.status, 201);
    over.problem(413, "PAYLOAD_TOO_LARGE");
}

#[actix_web::test]
async fn bodies_must_be_unencoded_json() {
    let server = TestServer::new();
    for (name, value) in
        [("content-type", "text/plain"), ("content-type", "application/merge-patch+json"), ("content-encoding", "gzip")]
    {
        let reply = server.send(post("/orders", ORDER).insert_header(user("ann")).insert_header((name, value))).await;
        reply.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let bare = TestRequest::post().uri("/orders").insert_header(user("ann")).set_payload(ORDER);
    server.send(bare).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
}

#[actix_web::test]
async fn methods_are_allowed_by_the_route_table() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    for (path, allow) in [
        ("/orders".to_owned(), "GET, HEAD, POST, OPTIONS"),
        ("/orders/page".to_owned(), "GET, HEAD, OPTIONS"),
        (format!("/orders/{id}"), "GET, HEAD, OPTIONS"),
        (format!("/orders/{id}/cancel"), "PATCH, OPTIONS"),
        ("/admin/outbox/redrive".to_owned(), "POST, OPTIONS"),
        ("/admin/actors/relay/partition-worker-7/panic".to_owned(), "POST, OPTIONS"),
        ("/livez".to_owned(), "GET, HEAD, OPTIONS"),
    ] {
        let options = server.send(TestRequest::default().method(Method::OPTIONS).uri(&path)).await;
        assert_eq!((options.status, options.header("allow")), (204, allow), "{path}");
        let put = server.send(TestRequest::put().uri(&path)).await;
        put.problem(405, "METHOD_NOT_ALLOWED");
        assert_eq!(put.header("allow"), allow);
    }
    let head = TestRequest::default().method(Method::HEAD).uri(&format!("/orders/{id}"));
    let head = server.send(head.insert_header(user("ann"))).await;
    assert_eq!((head.status, head.header("etag")), (200, "\"0\""));
}

#[actix_web::test]
async fn unknown_routes_return_problems() {
    let server = TestServer::new();
    for path in [
        "/",
        "/orders/",
        "/orders/x/",
        "/nothing",
        "/livez/",
        "/admin/",
        "/docs/nothing.js",
        "/orders//",
        "/admin/actors/panic",
    ] {
        let reply = server.send(get(path)).await;
        assert_eq!(reply.problem(404, "NOT_FOUND")["instance"], path);
        assert_eq!(reply.header("vary") == "Authorization", path.starts_with("/orders"), "{path}");
        assert_eq!(reply.header("x-region-id"), "r1");
    }
    server.send(TestRequest::default().method(Method::OPTIONS).uri("/nothing")).await.problem(404, "NOT_FOUND");
}

#[actix_web::test]
async fn surfaces_have_their_own_routes_and_share_health_and_metrics() {
    let server = TestServer::new();
    for (surface, path, status) in [
        (Surface::Public, "/admin/actors", 404),
        (Surface::Public, "/orders", 401),
        (Surface::Admin, "/orders", 404),
        (Surface::Admin, "/admin/actors", 401),
        (Surface::Public, "/readyz", 200),
        (Surface::Admin, "/readyz", 200),
        (Surface::Public, "/metrics", 200),
        (Surface::Admin, "/metrics", 200),
        (Surface::Public, "/actuator/health", 200),
        (Surface::Admin, "/actuator/prometheus", 200),
        (Surface::Public, "/openapi.json", 200),
        (Surface::Admin, "/openapi.json", 200),
        (Surface::Public, "/docs", 404),
        (Surface::Admin, "/docs", 200),
        (Surface::Public, "/docs/swagger-initializer.js", 404),
        (Surface::Public, "/actuator/info", 404),
        (Surface::Admin, "/actuator/info", 401),
    ] {
        assert_eq!(server.send_to(surface, get(path)).await.status, status, "{surface:?} {path}");
    }
}

#[actix_web::test]
async fn oversized_requests_return_problems() {
    let server = TestServer::new();
    let long = "x".repeat(8 * 1024);

    server.send(get(&format!("/{long}"))).await.problem(414, "URI_TOO_LONG");
    server.send(get(&format!("/orders?status={long}"))).await.problem(414, "URI_TOO_LONG");
    let fits = format!("/livez?{}", "x".repeat(8 * 1024 - 7));
    assert_eq!(server.send(get(&fits)).await.status, 200);
    let heavy =
        get("/orders").insert_header(("x-a", "x".repeat(40 * 1024))).insert_header(("x-b", "x".repeat(30 * 1024)));
    server.send(heavy).await.problem(431, "HEADERS_TOO_LARGE");
}

#[actix_web::test]
async fn a_request_id_is_echoed_or_replaced() {
    let server = TestServer::new();
    let with_id = |id: &str| get("/livez").insert_header(("x-request-id", id.to_owned()));

    assert_eq!(server.send(with_id("A.b_c-1")).await.header("x-request-id"), "A.b_c-1");
    let longest = "a".repeat(128);
    assert_eq!(server.send(with_id(&longest)).await.header("x-request-id"), longest);
    for bad in ["", "a b", "a\tb", "é", "a/b", &"a".repeat(129)] {
        let reply = server.send(with_id(bad)).await;
        assert!(!reply.header("x-request-id").is_empty() && reply.header("x-request-id") != bad, "{bad}");
    }
}

#[actix_web::test]
async fn rate_limit_headers_are_sent_and_unauthorized_requests_take_no_token() {
    let server = TestServer::with_config(TestConfig { tokens: 2, ..TestConfig::default() });

    server.send(get("/orders")).await.problem(401, "UNAUTHORIZED");
    server.send(get("/admin/actors").insert_header(user("ann"))).await.problem(403, "FORBIDDEN");
    let open = server.send(get("/livez")).await;
    let first = server.send(get("/orders").insert_header(user("ann"))).await;
    let bad = server.send(get("/orders/x").insert_header(user("ann"))).await;
    let refused = server.send(get("/orders").insert_header(user("ann"))).await;

    assert_eq!(open.header("ratelimit"), "");
    assert_eq!(first.header("ratelimit-policy"), "\"default\";q=120;w=60");
    assert_eq!(first.header("ratelimit"), "\"default\";r=1;t=1");
    bad.problem(400, "BAD_REQUEST");
    assert_eq!(bad.header("ratelimit"), "\"default\";r=0;t=1");
    refused.problem(429, "RATE_LIMITED");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.header("ratelimit"), "\"default\";r=0;t=1");
    assert_eq!(refused.header("vary"), "Authorization");
    assert_eq!(
        *server.rate_limiter.requested.lock(),
        ["ann\nGET\n/orders\n10.1.1.1", "ann\nGET\n/orders/{id}\n10.1.1.1", "ann\nGET\n/orders\n10.1.1.1"]
    );
    assert_eq!(server.metrics.rate_limit_allowed_count.get(), 2);
    assert_eq!(server.metrics.rate_limit_blocked_count.get(), 1);
}

#[actix_web::test]
async fn anonymous_requests_except_probes_are_limited_by_address() {
    let server = TestServer::new();
    for path in ["/openapi.json", "/docs"] {
        assert!(server.send(get(path)).await.header("ratelimit").starts_with("\"default\";r="), "{path}");
    }
    assert_eq!(
        *server.rate_limiter.requested.lock(),
        ["10.1.1.1\nGET\n/openapi.json\n10.1.1.1", "10.1.1.1\nGET\n/docs\n10.1.1.1"]
    );
    for path in ["/livez", "/readyz", "/startupz", "/metrics", "/actuator/health", "/actuator/metrics"] {
        assert_eq!(server.send(get(path)).await.header("ratelimit"), "", "{path}");
    }
}

#[actix_web::test]
async fn a_forwarded_address_counts_only_from_a_trusted_proxy() {
    for (trusted, expected) in [(vec![], "10.1.1.1"), (vec!["10.0.0.0/8"], "1.2.3.4")] {
        let mut config = TestConfig::default();
        config.options.trusted_proxies = TrustedProxies::parse(&trusted).unwrap();
        let server = TestServer::with_config(config);
        server
            .send(get("/orders").insert_header(user("ann")).insert_header(("x-forwarded-for", "6.6.6.6, 1.2.3.4")))
            .await;
        assert_eq!(*server.rate_limiter.requested.lock(), [format!("ann\nGET\n/orders\n{expected}")]);
    }
}

#[actix_web::test]
async fn requests_are_counted_by_method_template_and_status() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    server.send(get(&format!("/orders/{id}")).insert_header(user("ann"))).await;
    server.send(TestRequest::default().method(Method::from_bytes(b"BREW").unwrap()).uri("/no/such/route")).await;

    let text = server.metrics.render();

    assert!(
        text.contains("http_server_requests_seconds_count{method=\"GET\",status=\"200\",uri=\"/orders/{id}\"} 1"),
        "{text}"
    );
    assert!(text.contains("http_server_requests_seconds_count{method=\"OTHER\",status=\"404\",uri=\"UNKNOWN\"} 1"));
    assert!(text.contains("http_server_requests_by_region_total{region=\"r1\"} 3"));
    assert!(text.contains("orders_operation_duration_seconds_count{operation=\"find\"} 1"));
    assert!(!text.contains(&id));
}
